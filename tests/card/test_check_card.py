"""The audit of the published example, of copies with one number changed, and of files of other shapes."""

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cairn.card import Finding, check_card
from tests.card import documents

# Numbers of the example that no sentence, total or second table in it rests on: changing one changes nothing.
FREE_NUMBERS = {
    "$.semantic_search_embedding_comparison.read_out_variants.weakest_cropped_configuration.roxford5k_M",
    "$.semantic_search_embedding_comparison.read_out_variants.weakest_cropped_configuration.rparis6k_M",
    "$.semantic_search_embedding_comparison.read_out_variants.uncropped_query_control_best_cell.roxford5k_H",
    "$.ours.plus_1m.global_only.standard.rparis6k.H",
}


@pytest.fixture(scope="module")
def example(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "published_results.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def findings(example: dict[str, Any], shared: Path) -> list[Finding]:
    return check_card(example, shared)


def of(findings: list[Finding], rule: str, severity: str | None = None) -> list[Finding]:
    return [f for f in findings if f.rule == rule and severity in (None, f.severity)]


def test_the_example_states_20_differences_and_all_are_right(findings: list[Finding]) -> None:
    stated = of(findings, "difference")
    assert [finding.severity for finding in stated] == ["right"] * 20
    assert Counter(finding.path.rsplit(".", 1)[-1] for finding in stated) == {
        "reading": 8,
        "rparis_plus_1m": 4,
        "roxford_plus_1m": 6,
        "reranking_contribution": 2,
    }
    assert not of(findings, "unresolved")


def test_the_example_excludes_other_counts_than_it_says_and_two_image_classes_explain_it(
    findings: list[Finding],
) -> None:
    (finding,) = of(findings, "exclusion")
    assert finding.severity == "warning"
    assert finding.path == "$.training_protocols.decon.description"
    for part in (
        "87 classes with 2,529 images",
        "differ by 85 and 2,525",
        "classes of two images",
        "1,580,470 → 1,570,970 images over 81,313 → 76,563 classes (4,750 classes with 9,500 images)",
    ):
        assert part in finding.message


def test_the_example_has_more_true_matches_than_there_are(findings: list[Finding]) -> None:
    (finding,) = of(findings, "denominator")
    assert finding.severity == "error"
    for part in ("0.43 × 2,529", "1,087", "995", "757", "denominator"):
        assert part in finding.message


def test_the_example_s_bound_holds_for_seed_means_only(findings: list[Finding]) -> None:
    broken = of(findings, "bound", "warning")
    assert any("roxford hard 3.88" in f.message and "plus_1m.global_only" in f.message for f in broken)
    assert any("roxford hard 1.41" in f.message and "plus_1m.with_ames" in f.message for f in broken)
    assert any("roxford hard 1.91" in f.message and "no_distractors.global_only" in f.message for f in broken)
    held = of(findings, "bound", "right")
    assert any("seed_spread.no_distractor_global_only_mean_sd" in finding.message for finding in held)


def test_the_example_compares_unlike_shortlists(findings: list[Finding]) -> None:
    unlike = {finding.path: finding.message for finding in of(findings, "shortlist", "warning")}
    rows = "$.published_comparison_plus_1m_top1600.rows"
    assert "does not rerank" in unlike[f"{rows}[0]"]
    assert "does not give its shortlist size" in unlike[f"{rows}[5]"]
    assert "L2G" in unlike["$.claims.rparis_plus_1m"]


def test_what_cannot_be_traced_in_the_example_is_listed(findings: list[Finding]) -> None:
    private = of(findings, "private-source", "note")
    assert len(private) >= 10
    assert all("only its owner" in finding.message for finding in private)
    untraceable = {finding.path for finding in of(findings, "untraceable", "note")}
    assert "$.protocol_notes.gallery_plus_1m" in untraceable
    assert "$.provenance.code_verification" in untraceable
    cited = " ".join(finding.message for finding in of(findings, "absent"))
    assert "rerank.py" in cited and "REPRODUCE.md" in cited and "leak_class_ids.json" in cited
    assert of(findings, "unpinned")


def test_other_statements_of_the_example_are_recomputed(findings: list[Finding]) -> None:
    right = Counter(finding.rule for finding in findings if finding.severity == "right")
    assert right["best"] == 8  # both protocols over L2G, M and H; L2G called best on four cells
    assert right["quote"] == 6
    assert right["repeated-row"] == 3
    assert right["published"] == 6
    assert right["level"] == 2
    assert right["spread"] == right["sum"] == right["share"] == 1
    assert [finding.rule for finding in findings if finding.severity == "error"] == ["denominator"]


def test_every_stated_difference_that_is_changed_is_an_error(
    example: dict[str, Any], findings: list[Finding]
) -> None:
    for finding in of(findings, "difference"):
        written = finding.message.split(" ")[0].rstrip(":")
        path = steps(finding.path)
        text = at(example, path)
        assert text.count(written) == 1, (written, text)
        wrong = written[:-1] + str((int(written[-1]) + 3) % 10)
        mutant = replaced(example, path, text.replace(written, wrong))
        errors = [f for f in check_card(mutant) if f.severity == "error" and f.path == finding.path]
        assert any(wrong in error.message for error in errors), (finding.message, wrong)


def test_every_cell_under_a_stated_difference_that_is_changed_is_an_error(
    example: dict[str, Any], findings: list[Finding]
) -> None:
    cells = {path for finding in of(findings, "difference") for path in finding.related}
    assert len(cells) >= 20
    for path in sorted(cells):
        mutant = replaced(example, steps(path), round(at(example, steps(path)) + 0.37, 2))
        errors = [f for f in check_card(mutant) if f.severity == "error" and f.rule != "denominator"]
        assert errors, path


@pytest.mark.slow
def test_every_number_that_is_changed_changes_the_findings(
    example: dict[str, Any], findings: list[Finding]
) -> None:
    before = set(check_card(example))
    unmoved = set()
    for path in number_paths(example):
        value = at(example, path)
        changed = value + 13 if isinstance(value, int) else round(value + 1.37, 2)
        if set(check_card(replaced(example, path, changed))) == before:
            unmoved.add("$" + "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path))
    assert unmoved <= FREE_NUMBERS


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("92.1 / 83.4", "92.1 / 83.5", "quote"),
        ("91.00 / 80.49", "91.00 / 80.48", "quote"),
        ("87.21 and 87.11 against 87.1)", "87.21 and 87.12 against 87.1)", "quote"),
        ("galleries of 4993 and 6322", "galleries of 4993 and 6323", "agreement"),
        ("Oxford base (4993 images)", "Oxford base (4992 images)", "agreement"),
        ("minus the 87 classes", "minus the 88 classes", "agreement"),
        ("757 of 995 contaminated", "757 of 985 contaminated", "share"),
        ("and the fourth is 1.1 pooled", "and the fourth is 1.4 pooled", "spread"),
        ("3 of 4 standard", "4 of 4 standard", "spread"),
        ("0.43 +/- 0.08", "0.63 +/- 0.08", "agreement"),
        ("1,216 of its 1,565", "1,216 of its 1,564", "agreement"),
        ("no cell moves more than ~1 mAP", "no cell moves more than ~0.5 mAP", "bound"),
    ],
)
def test_a_changed_sentence_is_an_error(example: dict[str, Any], old: str, new: str, rule: str) -> None:
    text = json.dumps(example)
    assert text.count(old) == 1
    assert of(check_card(json.loads(text.replace(old, new))), rule, "error")


@pytest.mark.parametrize(
    ("path", "value", "rule", "severity"),
    [
        ("ours.plus_1m.with_ames_top1600.standard.roxford5k.M", 187.21, "range", "error"),
        ("ours.plus_1m.with_ames_top1600.standard.roxford5k.M", 0.8721, "range", "warning"),
        ("ours.plus_1m.with_ames_top1600.standard.roxford5k.M", 87.31, "repeated-row", "error"),
        ("ours.plus_1m.global_only.decon.rparis6k.H", 95.0, "distractors", "error"),
        ("ours.plus_1m.global_only.decon.rparis6k.H", 95.0, "order", "warning"),
        ("protocol_notes.gallery_plus_1m.rparis6k", 1007333, "sum", "error"),
        ("training_protocols.decon.train_images", 1568446, "exclusion", "error"),
        ("training_protocols.standard.train_classes", 76564, "exclusion", "error"),
        (
            "contamination.gldv2_train_test_overlap.image_level_verification.image_precision_ci95",
            [0.44, 0.46],
            "interval",
            "error",
        ),
        (
            "contamination.gldv2_train_test_overlap.image_level_verification.image_precision",
            1.4,
            "interval",
            "error",
        ),
    ],
)
def test_a_changed_value_is_found(
    example: dict[str, Any], path: str, value: Any, rule: str, severity: str
) -> None:
    assert of(check_card(replaced(example, tuple(path.split(".")), value)), rule, severity)


@pytest.mark.parametrize(("sentence", "severities"), documents.PLACES_SENTENCES.items())
def test_sentences_of_another_file(sentence: str, severities: list[str]) -> None:
    found = check_card({**documents.PLACES, "text": sentence})
    stated = [finding for finding in found if finding.rule in ("difference", "unresolved")]
    assert Counter(finding.severity for finding in stated) == Counter(severities)


def test_rows_by_key_and_a_benchmark_named_once() -> None:
    found = check_card(documents.SHOP)
    assert [f.severity for f in of(found, "difference")] == ["right"] * 3
    found = check_card({**documents.SHOP, "summary": documents.SHOP["summary"].replace("1.9", "1.6")})
    assert [f.severity for f in of(found, "difference")].count("error") == 1


def test_a_comparison_of_unlike_shortlists_in_another_file() -> None:
    found = check_card(documents.COMPARISON)
    assert [f.severity for f in of(found, "best")] == ["right"]
    assert [f.path for f in of(found, "shortlist", "error")] == ["$.rows[1]"]
    assert "top-100 and top-400" in next(f for f in of(found, "shortlist") if f.path == "$.claims[1]").message
    beaten = copy.deepcopy(documents.COMPARISON)
    beaten["rows"][2]["ILIAS"]["mAP@1000"] = 23.0
    assert [f.severity for f in of(check_card(beaten), "best")] == ["error"]


def test_a_superlative_that_names_no_benchmark_may_mean_the_one_on_which_it_holds() -> None:
    rows = [
        {"system": "foo", "source": "this release", "ILIAS": {"mAP": 22.9}, "INSTRE": {"mAP": 50.0}},
        {
            "system": "bar",
            "source": "arXiv 2502.00001, Table 3",
            "ILIAS": {"mAP": 19.6},
            "INSTRE": {"mAP": 60.0},
        },
    ]
    said = "foo exceeds the best published mAP."
    assert Counter(f.severity for f in of(check_card({"rows": rows, "a": said}), "best")) == {
        "right": 1,
        "warning": 1,
    }
    said = "foo exceeds the best published mAP on INSTRE."
    assert [f.severity for f in of(check_card({"rows": rows, "a": said}), "best")] == ["error"]


def test_harder_slices_are_lower_in_average_precision_alone() -> None:
    row = {"medium": {"value": 40.0}, "easy": {"value": 30.0}}
    assert of(check_card({"results": {"map": row}}), "order", "warning")
    assert not of(check_card({"results": {"mp@1": row}}), "order")


def test_counts_of_another_file() -> None:
    found = check_card(documents.AUDIT)
    assert not [finding for finding in found if finding.severity in ("error", "warning")]
    assert [f.severity for f in of(found, "exclusion")] == ["right"]
    assert [f.severity for f in of(found, "denominator")] == ["right"]
    text = json.dumps(documents.AUDIT)
    for old, new, rule in [
        ("9550", "9540", "exclusion"),
        ("containing 450", "containing 451", "exclusion"),
        ("220 of 400", "190 of 200", "denominator"),
        ("55%", "54%", "share"),
        ("220 of 400", "420 of 400", "share"),
    ]:
        assert of(check_card(json.loads(text.replace(old, new))), rule, "error"), (old, new)


def test_the_order_is_by_severity(findings: list[Finding]) -> None:
    order = ["error", "warning", "note", "right"]
    ranks = [order.index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert all(finding.path.startswith("$") for finding in findings)


def number_paths(value: Any, path: tuple = ()) -> list[tuple]:
    if isinstance(value, dict):
        return [p for key, item in value.items() for p in number_paths(item, path + (key,))]
    if isinstance(value, list):
        return [p for index, item in enumerate(value) for p in number_paths(item, path + (index,))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


def steps(path: str) -> tuple:
    made = []
    for quoted, index, key in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|\.(\w+)', path):
        made.append(quoted or (int(index) if index else key))
    return tuple(made)


def at(document: Any, path: tuple) -> Any:
    for step in path:
        document = document[step]
    return document


def replaced(document: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    at(changed, path[:-1])[path[-1]] = value
    return changed
