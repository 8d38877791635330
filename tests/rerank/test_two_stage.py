"""The two-stage protocol: the reference case, and its rules on small lists."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError, ParameterError
from cairn.rerank.two_stage import (
    Cell,
    RankedQuery,
    chained,
    mixed_score,
    rerank_query,
    settings_of,
    shortlist,
    united_shortlist,
)

SETTINGS = ("easy", "medium", "hard", "all")


def ranking(scores: np.ndarray, keep: np.ndarray | None = None) -> RankedQuery:
    """The whole gallery ranked by `scores` [gallery], or only the images `keep` with their exact ranks."""
    order = np.argsort(-scores, kind="stable")
    rank = np.arange(len(order))
    if keep is not None:
        chosen = np.isin(order, keep)
        order, rank = order[chosen], rank[chosen]
    names = tuple(f"i{row}" for row in order)
    return RankedQuery("q", names, order, rank, scores[order].astype(np.float32), len(scores))


def trapezoid_ap(ranks_of_positives: np.ndarray, n: int) -> float:
    """`compute_ap` of the revisited-Oxford code."""
    total = 0.0
    for j, r in enumerate(sorted(ranks_of_positives)):
        before = 1.0 if r == 0 else j / r
        total += (before + (j + 1) / (r + 1)) / 2 / n
    return total


def map_percent(reranked: list[tuple[RankedQuery, object]], truth: list[dict], setting: str) -> float:
    positive = {"easy": ("easy",), "medium": ("easy", "hard"), "hard": ("hard",)}[setting]
    ignored = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy")}[setting]
    aps = []
    for (query, new), grades in zip(reranked, truth, strict=True):
        of = dict(zip((query.image_row[i] for i in new.order), new.rank, strict=True))
        hits = [of[row] for grade in positive for row in grades[grade]]
        junk = np.array([of[row] for grade in ignored for row in grades[grade]])
        aps.append(trapezoid_ap(np.array([h - (junk < h).sum() for h in hits]), len(hits)))
    return 100 * float(np.mean(aps))


def grades_of(truth: dict) -> dict[str, str]:
    return {f"i{row}": grade for grade in ("easy", "hard", "junk") for row in truth[grade]}


@pytest.mark.parametrize("cut", [False, True])
def test_golden_two_stage(shared: Path, cut: bool):
    case = json.loads((shared / "golden" / "two_stage.json").read_text())
    arrays = np.load(shared / "golden" / "two_stage.npz")
    similarity, logits = arrays["global_sims"], arrays["ames_logits"]
    cell = Cell("ames", case["shortlist"], case["lamb"], case["temp"])
    assert cell.slug == "ames-k100-l0.55-t0.3"
    for setting, name in (("medium", "M"), ("hard", "H")):
        reranked = []
        for scores, row, truth in zip(similarity, logits, case["gnd"], strict=True):
            judged = np.concatenate([truth["easy"], truth["hard"], truth["junk"]])
            top = np.argsort(-scores)[:160]
            # A ranking file holds the top rows and all judged images: the same numbers must follow from it.
            query = ranking(scores, np.union1d(top, judged).astype(int) if cut else None)
            relevance = grades_of(truth)
            positions = united_shortlist(
                query, relevance, ("easy", "medium", "hard", "unaware"), cell.shortlist
            )
            values = row[query.image_row[positions]]
            new = rerank_query(query, query.ignored(relevance, setting), (positions, values), cell)
            reranked.append((query, new))
        expected = case["expected"][name]["map_percent"]
        assert map_percent(reranked, case["gnd"], setting) == pytest.approx(expected, abs=1e-3)


@given(
    st.integers(0, 9999),
    st.integers(1, 30),
    st.integers(1, 30),
    st.sampled_from(["easy", "medium", "hard", "all"]),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_rule_in_plain_words(seed: int, n: int, k: int, setting: str):
    generator = np.random.default_rng(seed)
    scores, logit = generator.normal(size=n), generator.normal(size=n).astype(np.float32)
    grades = generator.choice(["", "easy", "hard", "junk"], n)
    relevance = {f"i{row}": str(grade) for row, grade in enumerate(grades) if grade}
    query, cell = ranking(scores), Cell("ames", k, 0.4, 1.5)
    ignored = query.ignored(relevance, setting)
    moved = {"easy": ("junk", "hard"), "medium": ("junk",), "hard": ("junk", "easy"), "all": ("junk",)}[
        setting
    ]
    positions = shortlist(query, ignored, k)
    new = rerank_query(query, ignored, (positions, logit[query.image_row[positions]]), cell)

    order = sorted(range(n), key=lambda row: -scores[row])
    listed = [row for row in order if grades[row] not in moved]
    behind = [row for row in order if grades[row] in moved]
    score = {row: 0.4 * scores[row] + 0.6 / (1 + np.exp(-1.5 * logit[row])) for row in listed}
    expected = sorted(listed[:k], key=lambda row: -score[row]) + listed[k:] + behind
    assert [int(query.image_row[i]) for i in new.order] == expected
    np.testing.assert_array_equal(new.rank, np.arange(n))


def test_first_score_alone_changes_nothing_and_logits_alone_decide():
    scores = np.linspace(1, 0, 10)
    logits = np.arange(10, dtype=np.float32)
    query, none = ranking(scores), np.zeros(10, bool)
    same = rerank_query(query, none, (np.arange(5), logits[:5]), Cell("ames", 5, 1.0, 0.3))
    np.testing.assert_array_equal(same.order, np.arange(10))
    turned = rerank_query(query, none, (np.arange(5), logits[:5]), Cell("ames", 5, 0.0, 0.3))
    np.testing.assert_array_equal(turned.order, [4, 3, 2, 1, 0, 5, 6, 7, 8, 9])
    # Equal scores are ordered by manifest row; extreme logits saturate without warnings.
    tied = rerank_query(query, none, (np.arange(5), np.zeros(5, np.float32)), Cell("ames", 5, 0.0, 0.3))
    np.testing.assert_array_equal(tied.order, np.arange(10))
    extreme = np.array([-1e30, 1e30], np.float32)
    np.testing.assert_array_equal(mixed_score(np.zeros(2, np.float32), extreme, 0.0, 1.0), [0, 1])


def test_scores_descend_along_the_unaware_list():
    generator = np.random.default_rng(4)
    query = ranking(generator.normal(size=40))
    logits = generator.normal(size=15).astype(np.float32)
    new = rerank_query(query, np.zeros(40, bool), (np.arange(15), logits), Cell("ames", 15))
    assert np.all(np.diff(new.score) <= 0)


def test_each_pair_is_listed_once_for_all_settings():
    query = ranking(np.linspace(1, 0, 12))
    relevance = {"i0": "junk", "i1": "easy", "i2": "hard", "i5": "easy"}
    parts = {s: set(shortlist(query, query.ignored(relevance, s), 4)) for s in ("easy", "medium", "hard")}
    assert parts["medium"] == {1, 2, 3, 4} and parts["hard"] == {2, 3, 4, 6} and parts["easy"] == {1, 3, 4, 5}
    united = united_shortlist(query, relevance, ("easy", "medium", "hard"), 4)
    np.testing.assert_array_equal(united, [1, 2, 3, 4, 5, 6])
    assert 0 in united_shortlist(query, relevance, ("unaware",), 4)


def test_a_ranking_cut_too_short_is_named():
    query = ranking(np.linspace(1, 0, 30), keep=np.array([0, 1, 2, 3, 4, 20]))
    with pytest.raises(ArtifactError, match=r"query q: .*search.top to at least 6"):
        shortlist(query, np.zeros(6, bool), 6)
    ignored = np.array([True, False, False, False, False, False])
    np.testing.assert_array_equal(shortlist(query, ignored, 4), [1, 2, 3, 4])
    with pytest.raises(ArtifactError, match="at least 6"):
        shortlist(query, ignored, 5)


def test_a_missing_logit_is_named():
    query = ranking(np.linspace(1, 0, 5))
    with pytest.raises(ArtifactError, match="query q: no logit for i2"):
        rerank_query(query, np.zeros(5, bool), {0: 1.0, 1: 1.0, 3: 1.0}, Cell("ames", 4))


def test_slugs():
    cell = Cell()
    assert cell.slug == "ames-k1600-l0.55-t0.3"
    assert Cell(junk_aware=False).slug == "ames-k1600-l0.55-t0.3-unaware"
    for slug in (cell.slug, Cell("ames-bin", 100, 0.0, 1.0).slug, Cell(junk_aware=False).slug):
        assert Cell.parse(slug).slug == slug
    assert chained("sg-m1600", cell.slug) == "sg-m1600~ames-k1600-l0.55-t0.3"
    assert Cell.parse("sg-m1600~ames-k1600-l0.55-t0.3") == cell
    assert Cell.parse(f"{cell.slug}-on-dba-n10-alphaqe-n10-a3") == cell
    others = cell.diagnostics((0.55, 0.3), (0.3, 1.0))
    assert [other.slug for other in others] == [
        "ames-k1600-l0.55-t1",
        "ames-k1600-l0.3-t0.3",
        "ames-k1600-l0.3-t1",
    ]
    for slug in ("geometry-k100", "ames-k0-l0.5-t1", "ames-k10-l1.5-t1", "ames-k10-l0.5-t0"):
        with pytest.raises(ParameterError):
            Cell.parse(slug)


def test_settings_follow_the_grades():
    assert settings_of({"q": {"a": "easy", "b": "junk"}}) == ("easy", "medium", "hard")
    assert settings_of({"q": {"a": "positive", "b": "junk"}}) == ("all",)
