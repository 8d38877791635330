"""The card: every number with its artifact and hash, sentences computed, nothing invented, its own audit passed."""

import copy
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.card import check_card
from cairn.card.building import build_card, write_card
from cairn.card.published import published_rows
from cairn.card.schema import card_schema, validate
from cairn.card.standing import percent
from cairn.contamination.proportions import Share
from cairn.errors import ArtifactError, LineageError, ParameterError
from cairn.results import read_results, write_results
from cairn.results.table import RESULTS_PATH
from tests.card.project import add_published_run


def numbers_in(value) -> list[dict]:
    if isinstance(value, dict):
        own = [value] if "number" in value else []
        return own + [found for item in value.values() for found in numbers_in(item)]
    return [found for item in value for found in numbers_in(item)] if isinstance(value, list) else []


def sentences(card: dict, name: str) -> list[str]:
    return [s["sentence"] for claim in card["claims"] if claim["name"] == name for s in claim["statements"]]


def test_every_number_stands_once_with_artifact_and_hash(project: Path) -> None:
    card = build_card(project)
    rows = {str(row.name): row for row in read_results(project / RESULTS_PATH)}
    found = {number["number"]: number for number in numbers_in(card["ours"])}
    assert found.keys() == rows.keys()
    for name, number in found.items():
        row = rows[name]
        assert number["exact"] == row.value
        assert number["value"] == float(percent(row.value))
        assert number["low"] <= number["value"] <= number["high"]
        assert number["artifact"] == row.source_artifact and number["md5"] == row.source_md5
        assert number["artifact"] in card["provenance"]["artifacts"]
        assert card["provenance"]["artifacts"][number["artifact"]]["md5"] == number["md5"]


def test_sections_without_data_say_so(project: Path) -> None:
    card = build_card(project)
    for section in ("published_comparison", "contamination", "seed_spread"):
        assert card[section]["status"] == "no data"
        assert card[section]["reason"]
    assert card["protocol_notes"]["benchmarks"]["toytown"]["synthetic"] is True
    assert card["protocol_notes"]["runs"]["toytown"]["rootsift-vlad"]["parameters"]["reranking"] == {"k": 100}


def test_each_run_says_how_it_searched_and_reordered(project: Path) -> None:
    base = project / "artifacts/toytown/rootsift-vlad"
    (base / "descriptors/descriptors.json").write_text('{"dim": 16, "dtype": "float16", "images": 6}')
    (base / "ranking/ranking.json").write_text('{"top": 1000, "index": {"kind": "flat"}}')
    (base / "reranking/reranking.json").write_text('{"stage": "geometry-k100", "method": "geometry"}')
    notes = build_card(project)["protocol_notes"]
    run = notes["runs"]["toytown"]["rootsift-vlad"]
    assert run["second_stages"] == {"geometry-k100": {"shortlist": 100, "cell": {"method": "geometry"}}}
    assert run["descriptors"] == {"dim": 16, "dtype": "float16"}
    assert run["search"] == {"top": 1000, "index": {"kind": "flat"}}
    assert notes["runs"]["toytown"]["tiny-histogram"]["second_stages"] == {}
    harness = notes["benchmarks"]["toytown"]["harness"]
    assert len(harness["code_digest"]) == 64 and "numpy" in harness["packages"]


def test_audits_and_heads_among_the_artifacts_stand_in_the_card(project: Path) -> None:
    """In the form in which the steps contamination, verification and heads write them."""
    import yaml

    from cairn.files import dvc_digest

    flagged = {"inclusive": {"classes": 3, "images": 18}}
    share = Share(2, 3, "flagged images that were checked").as_json()
    audit = {
        "audited": True,
        "stance": "inclusive",
        "flagged": flagged,
        "sets": {"standard": {"classes": 8, "images": 24}},
    }
    files = {
        "contamination@toytown": ("artifacts/toytown/contamination", "contamination.json", audit),
        "verification@toytown-rootsift-vlad": (
            "artifacts/toytown/rootsift-vlad/verification",
            "image_audit.json",
            {
                "audited": True,
                "stance": "inclusive",
                "threshold_inliers": 17,
                "precision": [
                    {"rule": "all", "image_precision": share, "class_precision": share},
                    {"rule": "ctx:*", "image_precision": None, "class_precision": None},
                ],
                "recall": None,
            },
        ),
        "heads@toytown-rootsift-vlad-decon": (
            "artifacts/toytown/rootsift-vlad/heads/decon",
            "heads.json",
            {"protocol": "decon", "classes": 5, "images": 6, "seeds": {"0": {}, "1": {}}},
        ),
    }
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for stage, (folder, name, facts) in files.items():
        (project / folder).mkdir(parents=True)
        (project / folder / name).write_text(json.dumps(facts))
        made = {"path": folder, "hash": "md5", "md5": dvc_digest(project / folder)}
        lock["stages"][stage] = {"cmd": "x", "deps": [], "outs": [made]}
        if stage.startswith("heads"):
            scores = lock["stages"]["scores@toytown-rootsift-vlad"]
            scores["deps"].append({key: made[key] for key in ("path", "hash", "md5")})
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    rows = read_results(project / RESULTS_PATH)
    rows += [
        replace(r, name=replace(r.name, head="decon", seed="0"))
        for r in rows
        if r.name.system == "rootsift-vlad"
    ]
    write_results(project / RESULTS_PATH, rows)
    card = build_card(project)
    found = card["contamination"]["toytown"]
    assert found["classes"]["found"] == {"stance": "inclusive", "flagged": flagged["inclusive"]}
    assert found["classes"]["artifact"] == "artifacts/toytown/contamination"
    assert found["images"]["rootsift-vlad"]["md5"].endswith(".dir")
    assert found["images"]["rootsift-vlad"]["found"] == {
        "stance": "inclusive",
        "confirmed_images": {"count": 2, "checked": 3},
        "confirmed_classes": {"count": 2, "checked": 3},
    }
    (head,) = card["training_protocols"]["heads"]["decon"]["artifacts"].values()
    assert (head["train_classes"], head["train_images"], head["seeds"]) == (5, 6, ["0", "1"])
    # An audit that found nothing to look at is no data, and its reason is given.
    (project / "artifacts/toytown/rootsift-vlad/verification/image_audit.json").unlink()
    (project / "artifacts/toytown/contamination/contamination.json").write_text(
        '{"audited": false, "note": "no landmark list"}'
    )
    assert "no landmark list" in build_card(project)["contamination"]["reason"]


def test_an_unpinned_source_shows_on_each_number_that_rests_on_it(project: Path) -> None:
    listed = project / "artifacts/places/sources/sources.json"
    entries = json.loads(listed.read_text())
    entries["sources"].append({"name": "hearsay", "url": "https://example.org/hearsay"})
    listed.write_text(json.dumps(entries))
    card = build_card(project)
    for number in numbers_in(card["ours"]):
        on_it = number["number"].startswith("places/")
        assert ("https://example.org/hearsay" in number.get("unpinned_sources", [])) == on_it


def test_the_card_is_deterministic_and_passes_its_schema_and_audit(compared: Path, tmp_path: Path) -> None:
    write_card(compared, tmp_path / "one.json")
    write_card(compared, tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    card = json.loads((tmp_path / "one.json").read_text())
    validate(card)
    findings = check_card(card)
    assert not [finding for finding in findings if finding.severity == "error"]
    assert not [finding for finding in findings if finding.rule == "unresolved"]
    assert [f for f in findings if f.rule == "difference" and f.severity == "right"]
    assert [f for f in findings if f.rule == "repeated-row" and f.severity == "right"]


AMES = "ames-k1600-l0.55-t0.3"
L2G = "L2G CANN-FIRE + MDS rerank, the highest of the published rows here"


def test_claims_are_computed_with_sign_and_rounding(compared: Path) -> None:
    card = build_card(compared)
    assert sentences(card, "second-stage") == [
        "On places (mAP), rootsift-vlad re-ranked with geometry-k100 (50.01 [46.01, 54.01]) is 2.78 points above "
        "rootsift-vlad without re-ranking (47.23 [43.23, 51.23]).",
        f"On roxford5k-1m Hard (mAP), dinov2-l/decon re-ranked with {AMES} (75.14 [73.14, 77.14]) is 16.76 points "
        "above dinov2-l/decon without re-ranking (58.38 [56.38, 60.38]).",
        f"On rparis6k-1m Hard (mAP), dinov2-l/decon re-ranked with {AMES} (86.03 [84.03, 88.03]) is 17.00 points "
        "above dinov2-l/decon without re-ranking (69.03 [67.03, 71.03]).",
        "On toytown Hard (mAP), rootsift-vlad re-ranked with geometry-k100 (40.71 [36.71, 44.71]) is 2.32 points above "
        "rootsift-vlad without re-ranking (38.39 [34.39, 42.39]).",
    ]
    assert sentences(card, "best-system") == [
        "On toytown Hard (mAP), rootsift-vlad re-ranked with geometry-k100 is the better of 2 systems, 5.25 points "
        "above tiny-histogram without re-ranking, which lies outside the 95% interval of the best."
    ]
    assert sentences(card, "against-published") == [
        f"On roxford5k-1m Hard (mAP), dinov2-l/decon re-ranked with {AMES} is 4.66 points below {L2G}; "
        "this is rank 4 of 7.",
        f"On roxford5k-1m Medium (mAP), dinov2-l/decon re-ranked with {AMES} is 3.29 points below {L2G}; "
        "this is rank 3 of 7.",
        f"On rparis6k-1m Hard (mAP), dinov2-l/decon re-ranked with {AMES} is 2.63 points above {L2G}; "
        "this is rank 1 of 7.",
    ]
    # 92.615 % is printed 92.62; L2G's 92.1 lies in its interval of ± 2.
    assert sentences(card, "level-with-published") == [
        f"On rparis6k-1m Medium (mAP), dinov2-l/decon re-ranked with {AMES} is level with L2G CANN-FIRE + MDS rerank "
        "(92.62 [90.62, 94.62] against 92.10, inside its 95% interval); this is rank 1 of 7."
    ]


def test_a_narrow_interval_is_no_longer_level(project: Path) -> None:
    add_published_run(project, width=0.001)
    card = build_card(project)
    assert not sentences(card, "level-with-published")
    assert (
        f"On rparis6k-1m Medium (mAP), dinov2-l/decon re-ranked with {AMES} is 0.52 points above {L2G}; "
        "this is rank 1 of 7." in sentences(card, "against-published")
    )


def edited(project: Path, stage: str, system: str = "rootsift-vlad", **changes) -> list[str]:
    """Every sentence about toytown after one number was changed: that of `stage`, on its hardest slice."""
    rows = read_results(project / RESULTS_PATH)
    place = ("toytown", system, stage, "hard")
    write_results(
        project / RESULTS_PATH,
        [
            replace(row, **changes)
            if (row.name.benchmark, row.name.system, row.name.stage, row.name.slice) == place
            else row
            for row in rows
        ],
    )
    card = build_card(project)
    return [
        s for claim in card["claims"] for s in sentences(card, claim["name"]) if s.startswith("On toytown")
    ]


BETTER = "On toytown Hard (mAP), rootsift-vlad {} is the better of 2 systems, {} tiny-histogram without re-ranking, {}."


def test_a_lost_gain_and_none_at_all_are_said_as_they_are(project: Path) -> None:
    geometry = "On toytown Hard (mAP), rootsift-vlad re-ranked with geometry-k100"
    assert edited(project, "geometry-k100", value=0.3719, low=0.35, high=0.4) == [
        f"{geometry} (37.19 [35.00, 40.00]) is 1.20 points below rootsift-vlad without re-ranking "
        "(38.39 [34.39, 42.39]).",
        BETTER.format(
            "without re-ranking", "2.93 points above", "which lies inside the 95% interval of the best"
        ),
    ]
    same = next(
        row for row in read_results(project / RESULTS_PATH) if str(row.name).endswith("global/hard/map")
    )
    assert edited(project, "geometry-k100", value=same.value) == [
        f"{geometry} (38.39 [35.00, 40.00]) is 0.00 points away from rootsift-vlad without re-ranking "
        "(38.39 [34.39, 42.39]).",
        BETTER.format(
            "re-ranked with geometry-k100",
            "2.93 points above",
            "which lies inside the 95% interval of the best",
        ),
    ]


def test_a_best_without_an_interval_and_a_tie_are_said_as_they_are(project: Path) -> None:
    better = edited(project, "geometry-k100", low=None, high=None)[-1]
    assert better == BETTER.format(
        "re-ranked with geometry-k100", "5.25 points above", "with no 95% interval to tell them apart"
    )
    top = next(row for row in read_results(project / RESULTS_PATH) if str(row.name).endswith("k100/hard/map"))
    tied = edited(project, "global", "tiny-histogram", value=top.value, low=0.0, high=1.0)[-1]
    assert tied == BETTER.format(
        "re-ranked with geometry-k100", "0.00 points away from", "with no 95% interval to tell them apart"
    )


def test_options_around_the_search_and_other_metrics_are_named(project: Path) -> None:
    rows = []
    for row in read_results(project / RESULTS_PATH):
        if (row.name.benchmark, row.name.slice) == ("toytown", "hard"):
            first = row.name.stage == "global"
            stage = "global-aqe-n10" if first else "geometry-k100-on-aqe-n10"
            row = replace(row, name=replace(row.name, stage=stage, slice="all", metric="micro-ap"))
            rows.append(row)
    write_results(project / RESULTS_PATH, rows)
    card = build_card(project)
    assert sentences(card, "second-stage") == [
        "On toytown (µAP), rootsift-vlad re-ranked with geometry-k100-on-aqe-n10 (40.71 [36.71, 44.71]) is 2.32 points "
        "above rootsift-vlad with aqe-n10 and without re-ranking (38.39 [34.39, 42.39])."
    ]
    assert sentences(card, "best-system") == [
        "On toytown (µAP), rootsift-vlad re-ranked with geometry-k100-on-aqe-n10 is the better of 2 systems, "
        "5.25 points above tiny-histogram with aqe-n10 and without re-ranking, which lies outside the 95% interval of "
        "the best."
    ]


def test_sentences_are_tied_to_the_right_measure(project: Path) -> None:
    rows = read_results(project / RESULTS_PATH)
    rows += [replace(row, name=replace(row.name, metric="mp@1"), value=row.value + 0.03) for row in rows]
    write_results(project / RESULTS_PATH, rows)
    stated = [f for f in check_card(build_card(project)) if f.rule == "difference"]
    assert stated and {f.severity for f in stated} == {"right"}
    assert all("/map)" in f.message and "mp@1" not in f.message for f in stated)


def test_the_comparison_ships_the_published_rows_and_ours(compared: Path) -> None:
    comparison = build_card(compared)["published_comparison"]
    others = [row for row in comparison["rows"] if row["source"] != "this release"]
    assert [row["system"] for row in others] == [row.system for row in published_rows()]
    ours = {row["system"]: row for row in comparison["rows"] if row["source"] == "this release"}
    assert ours["dinov2-l/decon with ames-k1600-l0.55-t0.3"]["shortlist"] == 1600
    assert ours["dinov2-l/decon with global"]["shortlist"] is None


def test_published_rows_are_those_of_the_example(shared: Path) -> None:
    example = json.loads((shared / "published_results.json").read_text())
    rows = example["published_comparison_plus_1m_top1600"]["rows"]
    theirs = [row for row in rows if row["source"] != "this release"]
    assert len(theirs) == len(published_rows())
    for row, known in zip(theirs, published_rows(), strict=True):
        assert (row["system"], row["stage"], row["source"]) == (known.system, known.stage, known.source)
        assert row["uses_dinov2"] is known.uses_dinov2
        for name, benchmark in (("roxford5k", "roxford5k-1m"), ("rparis6k", "rparis6k-1m")):
            assert Decimal(str(row[name]["M"])) == known.values[benchmark]["medium"]
            assert Decimal(str(row[name]["H"])) == known.values[benchmark]["hard"]


def test_seeds_give_mean_and_deviation(project: Path) -> None:
    add_published_run(project, seeds=("0", "1", "2"))
    spread = build_card(project)["seed_spread"]["global"]["dinov2-l/decon"]["roxford5k-1m"]["map"]["hard"]
    # 0.5838 + {0, 0.003, 0.006}
    assert (spread["mean"], spread["sd"], spread["seeds"]) == (58.68, 0.3, 3)
    assert len(spread["numbers"]) == 3


CLAIM = """
claims:
  - name: beats-l2g
    query: >-
      SELECT label, slice, percent - best_percent AS difference, percent > best_percent AS holds
      FROM standing
      WHERE benchmark = '{benchmark}' AND slice = 'hard' AND stage <> 'global'
    sentence: >-
      {{label}} exceeds the best published {{slice}} number on {benchmark} by {{difference:size}}
      ({{difference:signed}})
"""


def test_a_project_s_own_claim_is_computed(compared: Path) -> None:
    (compared / "claims.yaml").write_text(CLAIM.format(benchmark="rparis6k-1m"))
    assert sentences(build_card(compared), "beats-l2g") == [
        "dinov2-l/decon exceeds the best published hard number on rparis6k-1m by 2.63 (+2.63)"
    ]


def test_the_claim_in_the_documentation_works(compared: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/results-card.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (compared / "claims.yaml").write_text(block)
    assert sentences(build_card(compared), "beats-the-best-published") == [
        f"On rparis6k-1m Hard, dinov2-l/decon re-ranked with {AMES} is 2.63 points above L2G CANN-FIRE + MDS rerank."
    ]


def test_a_claim_that_is_no_longer_true_fails_the_build(compared: Path, tmp_path: Path) -> None:
    (compared / "claims.yaml").write_text(CLAIM.format(benchmark="roxford5k-1m"))
    with pytest.raises(
        LineageError, match=r"claims\.yaml: claim 'beats-l2g' is no longer true: .*\(-4\.66\)"
    ):
        write_card(compared, tmp_path / "card.json")
    assert not (tmp_path / "card.json").exists()


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (CLAIM.format(benchmark="nowhere"), LineageError, "has no answer"),
        ("claims: [{name: a, query: 'SELECT 1 AS x', sentence: '{y}'}]", ParameterError, "asks for {y}"),
        ("claims: [{name: a, query: 'SELECT 1 AS x', sentence: '{x:loud}'}]", ParameterError, "signed, size"),
        (
            "claims: [{name: a, query: 'SELECT 1 AS x', sentence: '{x:stage}'}]",
            ParameterError,
            "a text is expected",
        ),
        (
            "claims: [{name: a, query: 'SELECT 1 AS x', sentence: '{x.real}'}]",
            ParameterError,
            "asks for {x.real}",
        ),
        ("claims: [{name: a, query: 'SELECT 1 AS x', sentence: '{x!r}'}]", ParameterError, "asks for"),
        ("claims: [{name: a, query: 'SELECT 1 AS x', sentence: '{'}]", ParameterError, "in its sentence"),
        ("claims: [{name: a, query: 'SELECT NULL AS x', sentence: '{x}'}]", LineageError, "cannot state"),
        ("claims: [{name: a, query: 'SELEC', sentence: 'b'}]", LineageError, "claim 'a': SQL"),
        ("claims: [{name: a, query: 'DROP TABLE cells', sentence: 'b'}]", LineageError, "refused"),
        (
            "claims: [{name: second-stage, query: 'SELECT 1', sentence: 'b'}]",
            ParameterError,
            "stands already",
        ),
        ("claims: [{name: a, query: 'SELECT 1'}]", ParameterError, "has no sentence"),
        (
            "claims: [{name: a, query: 'SELECT 1', sentence: b, size: 3}]",
            ParameterError,
            "unknown key 'size'",
        ),
        ("claims: 3", ParameterError, "a list"),
        ("claims: [", ParameterError, "YAML"),
        (
            'claims: [{name: a, query: "SELECT 1.00 AS difference, number AS of, number AS minus FROM cells LIMIT 1", '
            "sentence: '{difference}'}]",
            LineageError,
            "take differences of `percent`",
        ),
    ],
)
def test_a_wrong_claim_is_named(project: Path, text: str, error: type[Exception], says: str) -> None:
    (project / "claims.yaml").write_text(text)
    with pytest.raises(error) as caught:
        build_card(project)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_the_schema_refuses_a_number_without_artifact_or_hash(compared: Path) -> None:
    card = build_card(compared)
    for key in ("artifact", "md5", "number", "n_queries"):
        broken = copy.deepcopy(card)
        del numbers_in(broken["ours"])[0][key]
        with pytest.raises(ArtifactError, match=key):
            validate(broken)
    broken = copy.deepcopy(card)
    numbers_in(broken["ours"])[0]["value"] = 101.0
    with pytest.raises(ArtifactError):
        validate(broken)
    broken = {**card, "extra": 1}
    with pytest.raises(ArtifactError, match="extra"):
        validate(broken)


def test_the_schema_is_one() -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(card_schema())


def test_changing_any_computed_difference_of_our_card_is_an_error(compared: Path) -> None:
    card = build_card(compared)
    for number, claim in enumerate(card["claims"]):
        for place, statement in enumerate(claim["statements"]):
            if "minus" in statement:
                changed = copy.deepcopy(card)
                changed["claims"][number]["statements"][place]["difference"] += 0.01
                errors = [f for f in check_card(changed) if f.severity == "error"]
                assert {f.rule for f in errors} >= {"structured"}, statement


def test_a_project_without_numbers_has_no_card(project: Path) -> None:
    write_results(project / RESULTS_PATH, [])
    with pytest.raises(ArtifactError, match="cairn run"):
        build_card(project)


@given(st.floats(0, 1))
def test_percent_is_the_nearest_with_two_decimals(fraction: float) -> None:
    shown = percent(fraction)
    exact = Decimal(repr(fraction)) * 100
    assert abs(shown - exact) <= Decimal("0.005")
    assert shown == shown.quantize(Decimal("0.01"))
    assert 0 <= shown <= 100


def test_a_half_goes_to_the_even_digit() -> None:
    assert [percent(value) for value in (0.00125, 0.00135, 0.92615)] == [
        Decimal("0.12"),
        Decimal("0.14"),
        Decimal("92.62"),
    ]
