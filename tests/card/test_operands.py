"""Our own sentences are audited by the operands they carry; another's that is not understood is not called wrong."""

import copy
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.card import check_card
from cairn.card.building import build_card
from cairn.results import NumberName, Result, read_results, write_results
from cairn.results.table import RESULTS_PATH
from tests.card.project import add_published_run

STAGES = ("global", "global-aqe-n10", "geometry-k100", "ames-k100-l0.55-t0.3")
BENCHMARKS = {"places": ("all",), "photos-2": ("all",), "rparis6k-1m": ("medium", "hard")}
# Names that begin one another, and names that are words of sentences.
NAMES = st.sampled_from(
    [
        "mine",
        "mine-python",
        "mine-python-2",
        "conv",
        "rgb",
        "rgb-mean",
        "mean",
        "global",
        "above",
        "map",
        "hard",
    ]
)
SYSTEMS = st.lists(
    NAMES | st.from_regex(r"[a-z]{1,3}(-[a-z0-9]{1,3}){0,2}", fullmatch=True),
    min_size=2,
    max_size=8,
    unique=True,
)


@pytest.fixture(scope="module")
def home(plain_home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Result]]:
    """A project whose results each example replaces, and the results that it had."""
    root = tmp_path_factory.mktemp("operands") / "cairn"
    shutil.copytree(plain_home / "cairn", root)
    return root, read_results(root / RESULTS_PATH)


@settings(max_examples=30, deadline=None)
@given(SYSTEMS, st.data())
def test_our_card_passes_its_audit_whatever_the_names_and_a_changed_number_is_found(
    home: tuple[Path, list[Result]], systems: list[str], data: st.DataObject
) -> None:
    root, rows = home
    numbers = []
    for system in systems:
        stages = data.draw(st.sets(st.sampled_from(STAGES[1:]), max_size=2)) | {"global"}
        for benchmark in data.draw(st.sets(st.sampled_from(sorted(BENCHMARKS)), min_size=1)):
            for stage in sorted(stages):
                for piece in BENCHMARKS[benchmark]:
                    value = data.draw(st.floats(0, 1))
                    name = NumberName(benchmark, system, "-", "-", stage, piece, "map")
                    ends = (
                        {} if data.draw(st.booleans()) else {"low": value * 0.9, "high": min(1, value + 0.1)}
                    )
                    home_of = {"source_artifact": rows[0].source_artifact, "source_md5": rows[0].source_md5}
                    numbers.append(Result(name, value, 16, 34, **ends, **home_of))
    write_results(root / RESULTS_PATH, numbers)
    card = build_card(root)  # an error of its own audit would be raised
    assert card["claims"] or len({number.name.benchmark for number in numbers}) == len(numbers)
    statements = [s for claim in card["claims"] for s in claim["statements"]]
    if not statements:
        return
    place = data.draw(st.integers(0, len(statements) - 1))
    number = data.draw(st.integers(0, len(statements[place]["stated"]) - 1))
    changed = copy.deepcopy(card)
    statement = [s for claim in changed["claims"] for s in claim["statements"]][place]
    statement["sentence"] = with_another(statement["sentence"], statement["stated"], number)
    errors = [finding for finding in check_card(changed) if finding.severity == "error"]
    assert any(finding.path.endswith(".sentence") for finding in errors), statement


def with_another(sentence: str, stated: list[str], place: int) -> str:
    """`sentence` with another last digit in the number at `place` of `stated`."""
    after = 0
    for number in stated[: place + 1]:
        match = re.compile(rf"(?<![\w.@/-]){re.escape(number)}(?![\w@/-]|\.\w)").search(sentence, after)
        assert match, (number, sentence)
        after = match.end()
    return sentence[: after - 1] + str((int(sentence[after - 1]) + 1) % 10) + sentence[after:]


def test_every_statement_of_a_card_with_published_rows_is_audited_by_operands(project: Path) -> None:
    add_published_run(project)
    card = build_card(project)
    statements = [s for claim in card["claims"] for s in claim["statements"]]
    assert sum("against" in s for s in statements) >= 2 and sum("minus" in s for s in statements) >= 2
    said = [f for f in check_card(card) if f.rule == "difference" and f.path.endswith(".sentence")]
    assert len(said) == len(statements) and {f.severity for f in said} == {"right"}


@pytest.mark.parametrize("name", ["second-stage", "against-published"])
def test_a_turned_direction_and_a_changed_operand_are_errors(project: Path, name: str) -> None:
    add_published_run(project)
    card = build_card(project)
    claim = next(claim for claim in card["claims"] if claim["name"] == name)
    statement = next(s for s in claim["statements"] if " points " in s["sentence"])
    turned = {"above": "below", "below": "above"}
    before = statement["sentence"]
    statement["sentence"] = re.sub(r"(points )(above|below)", lambda m: m[1] + turned[m[2]], before)
    assert any(f.severity == "error" and "wrong direction" in f.message for f in check_card(card))
    statement["sentence"] = before
    if "against" in statement:
        statement["against"] = "nobody"
        statement["sentence"] += " nobody"
    else:
        statement["minus"] = statement["of"]
    assert any(f.severity == "error" and f.rule == "structured" for f in check_card(card))


def test_a_sentence_whose_benchmark_is_not_understood_is_not_called_wrong() -> None:
    """ "places" is no known benchmark: the systems named have two cells each, and others one."""

    def cells(*values: float) -> dict:
        return {b: {"map": {"all": {"value": v}}} for b, v in zip(("photos", "places"), values, strict=False)}

    systems = {"rootsift-vlad": cells(69.0, 65.0), "colour-histogram": cells(49.28, 8.0)}
    systems |= {
        "mine": {"places": cells(1, 41.14)["places"]},
        "mine-python": {"places": cells(1, 33.03)["places"]},
    }
    sentence = "On photos, rootsift-vlad is 19.72 points above colour-histogram."
    document = {"ours": {"global": systems}, "texts": [sentence]}
    assert not [f for f in check_card(document) if f.severity == "error"]
