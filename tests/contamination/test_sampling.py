"""The sample for judges, their files read back, and what they say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.contamination.proportions import Share
from cairn.contamination.sampling import (
    NO,
    UNSURE,
    YES,
    Judgements,
    Sample,
    agreement_of_judges,
    allocate,
    draw_sample,
    read_judgements,
    read_sample,
    report_judgements,
    unique_judges,
    weighted,
    write_sample,
)
from cairn.errors import InputError
from tests.contamination.cases import flagged, training, verdict

COUNTS = {1: 30, 2: 20, 3: 40, 4: 10}
CLASSES = [flagged(1, "unique:a", 30), flagged(2, "ctx:b", 20), flagged(3, "blanket:town", 40)]


def sample(size: int = 30, seed: int = 0) -> Sample:
    verdicts = {
        f"{one}-{k}": verdict(f"{one}-{k}", k % (one + 1) == 0) for one, n in COUNTS.items() for k in range(n)
    }
    return draw_sample(CLASSES, training(COUNTS), verdicts, size, seed)


def test_sample_is_stratified_seeded_and_says_nothing_in_its_order() -> None:
    drawn = sample()
    assert len(drawn.items) == 30 and drawn == sample() and drawn != sample(seed=1)
    assert sum(drawn.strata.values()) == 90  # class 4 is not flagged
    for name in drawn.strata:
        assert sum(one.stratum == name for one in drawn.items) >= 2
    assert len({one.image_id for one in drawn.items}) == 30
    assert [one.item_id for one in drawn.items] == [f"{k:04d}" for k in range(1, 31)]
    assert [one.class_id for one in drawn.items] != sorted(one.class_id for one in drawn.items)
    assert len(sample(size=1000).items) == 90


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(1, 300))
def test_allocation_is_proportional_and_closes(sizes: list[int], total: int) -> None:
    counts = allocate(sizes, total)
    assert sum(counts) == min(total, sum(sizes))
    assert all(0 <= count <= size for count, size in zip(counts, sizes, strict=True))
    if sum(min(2, size) for size in sizes) <= total:
        assert all(count >= min(2, size) for count, size in zip(counts, sizes, strict=True))


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(InputError, match="nothing to judge"):
        draw_sample(CLASSES, training(COUNTS), {}, 10, 0)
    with pytest.raises(InputError, match="sample of 0 images"):
        sample(size=0)


def test_sample_survives_its_file_and_changes_are_noticed(tmp_path: Path) -> None:
    drawn = sample()
    write_sample(tmp_path / "sample.json", drawn)
    assert read_sample(tmp_path / "sample.json") == drawn
    value = json.loads((tmp_path / "sample.json").read_text("utf-8"))
    value["items"][0]["detector"] = not value["items"][0]["detector"]
    (tmp_path / "sample.json").write_text(json.dumps(value), "utf-8")
    with pytest.raises(InputError, match="changed after it was drawn"):
        read_sample(tmp_path / "sample.json")
    (tmp_path / "sample.json").write_text('{"items": [{}]}', "utf-8")
    with pytest.raises(InputError, match="not a sample"):
        read_sample(tmp_path / "sample.json")


def judged(drawn: Sample, *, wrong: int = 0, unsure: int = 0, judge: str = "ann") -> Judgements:
    """A judge who agrees with the detector, but for some items."""
    verdicts = {}
    for number, one in enumerate(drawn.items):
        says = one.detector != (number < wrong)
        verdicts[one.item_id] = UNSURE if number >= len(drawn.items) - unsure else (YES if says else NO)
    return Judgements(judge, verdicts)


def test_judgements_give_precision_interval_and_kappa(tmp_path: Path) -> None:
    drawn = sample()
    path = tmp_path / "ann.json"
    content = {"sample": drawn.digest, "judge": "ann", "verdicts": dict(judged(drawn, unsure=4).verdicts)}
    path.write_text(json.dumps(content), "utf-8")
    report = report_judgements(drawn, read_judgements(path, drawn))
    assert (report.judge, report.judged.part, report.unsure, report.precision.whole) == ("ann", 30, 4, 26)
    assert report.against_detector.kappa == 1 and report.against_detector.n == 26
    assert sum(one.whole for one in report.by_stratum.values()) == 26
    # Strata are split by the detector's verdict, with which this judge agrees: the estimate is its share.
    confirmed = sum(size for name, size in drawn.strata.items() if name.endswith(", confirmed"))
    assert report.estimate == pytest.approx(confirmed / 90)
    low, high = report.interval  # type: ignore[misc]
    assert low < confirmed / 90 < high
    assert json.dumps(report.as_json())


def test_disagreement_lowers_kappa_and_judges_are_compared() -> None:
    drawn = sample()
    ann, bob = judged(drawn), judged(drawn, wrong=10, judge="bob")
    assert report_judgements(drawn, bob).against_detector.kappa < 0.6  # type: ignore[operator]
    between = agreement_of_judges([ann, bob])["ann / bob"]
    assert between.observed == pytest.approx(20 / 30)
    partly = replace(bob, verdicts=dict(list(bob.verdicts.items())[:5]))
    assert agreement_of_judges([ann, partly])["ann / bob"].n == 5
    with pytest.raises(InputError, match="two files of judgements are by 'ann'"):
        unique_judges([ann, ann])


def test_weights_undo_the_unequal_sampling() -> None:
    shares = {"a": Share(10, 10), "b": Share(0, 10)}
    estimate, interval = weighted(shares, {"a": 10, "b": 990})
    assert estimate == pytest.approx(0.01) and interval[0] < 0.01 < interval[1]  # type: ignore[index]
    everything, exact = weighted({"a": Share(3, 10)}, {"a": 10})
    assert everything == 0.3 and exact == (0.3, 0.3)
    assert weighted({"a": Share(0, 0)}, {"a": 10}) == (None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": "0123"}, "it judges the sample 0123, this one is"),
        ({"verdicts": {"9999": 1}}, "no item '9999'"),
        ({"verdicts": {"0001": 4}}, "item 0001: verdict 4; expected 1, 2 or 3"),
        ({"verdicts": {"0001": True}}, "verdict True"),
        ({"verdicts": {"0001": [1]}}, r"verdict \[1\]"),
        ({"verdicts": []}, "not a file of judgements"),
    ],
)
def test_damaged_judgements_are_refused(tmp_path: Path, change: dict, message: str) -> None:
    drawn = sample()
    path = tmp_path / "j.json"
    path.write_text(json.dumps({"sample": drawn.digest, "judge": "x", "verdicts": {}} | change), "utf-8")
    with pytest.raises(InputError, match=message):
        read_judgements(path, drawn)


def test_a_nameless_judge_is_called_after_the_file(tmp_path: Path) -> None:
    drawn = sample()
    path = tmp_path / "second.json"
    path.write_text(json.dumps({"sample": drawn.digest, "judge": " ", "verdicts": {"0001": 1}}), "utf-8")
    assert read_judgements(path, drawn).judge == "second"
