"""`cairn audit` on files at hand: tables, JSON alone on standard output, exit codes, one line for mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cairn.contamination.sampling import Sample, SampleItem, write_sample
from cairn.errors import InputError, UsageError
from pipelines.commands.audit import app

RUNNER = CliRunner()
CATEGORIES = """landmark_id,category
7,http://commons.wikimedia.org/wiki/Category:Louvre
3,http://commons.wikimedia.org/wiki/Category:Louvre-Lens
9,"http://commons.wikimedia.org/wiki/Category:[red]Christ_Church[/red],_Oxford"
4,http://commons.wikimedia.org/wiki/Category:Interior_of_Keble_College
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "categories.csv").write_text(CATEGORIES, "utf-8")
    (tmp_path / "clean.csv").write_text("landmark_id,images\n7,a b c\n3,d\n9,e f\n4,g\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str):
    return RUNNER.invoke(app, list(arguments))


LISTS = ("--landmarks", "roxford5k", "--landmarks", "rparis6k")
FILES = ("--categories", "categories.csv", "--images", "clean.csv", *LISTS)


def test_classes_prints_a_table_and_writes_the_file(folder: Path) -> None:
    result = call("classes", *FILES, "--output", "leak.json", "--rejected")
    assert result.exit_code == 0, result.output
    for text in (
        "unique:louvre",
        "ctx:christ-church",
        "[red]Christ Church[/red], Oxford",
        "a branch in Lens",
    ):
        assert text in result.stdout
    assert "inclusive: 3 classes with 6 images of 4 classes with 7 images" in result.stdout
    assert "strict: 2 classes with 5 images" in result.stdout
    assert [one["id"] for one in json.loads((folder / "leak.json").read_text("utf-8"))["classes"]] == [
        4,
        7,
        9,
    ]


def test_json_is_alone_on_standard_output(folder: Path) -> None:
    result = call("classes", *FILES, "--json", "--output", "leak.json")
    assert json.loads(result.stdout) == json.loads((folder / "leak.json").read_text("utf-8"))


def test_strict_table_leaves_doubtful_classes_out(folder: Path) -> None:
    result = call("classes", *FILES, "--stance", "strict")
    assert "Keble" not in result.stdout and "Louvre" in result.stdout


def test_compare(folder: Path) -> None:
    call("classes", *FILES, "--output", "leak.json")
    (folder / "other.txt").write_text("7\n3\n1000\n", "utf-8")
    result = call("compare", "leak.json", "other.txt", "--images", "clean.csv", "--json")
    answer = json.loads(result.stdout)
    assert answer["relation"] == "neither contains the other"
    assert answer["of_a_also_in_b"]["images"] == {"part": 3, "whole": 6, "ratio": 0.5}
    assert "1 classes that have no images, such as 1000" in result.stderr
    shown = call("compare", "leak.json", "other.txt", "--images", "clean.csv").stdout
    assert "3 / 6 = 50.0%" in shown and "1 / 3 = 33.3%" in shown


def test_sets_close_and_are_written(folder: Path) -> None:
    (folder / "ids.txt").write_text("7\n4\n", "utf-8")
    arguments = ("sets", "--images", "clean.csv", "--exclude", "ids.txt", "--minimum", "2")
    answer = json.loads(call(*arguments, "--json", "--output", "sets").stdout)
    assert answer["closes"] and answer["standard"]["class_ids"] == [7, 9]
    assert json.loads((folder / "sets/decon.json").read_text("utf-8"))["class_ids"] == [9]
    shown = call(*arguments).stdout
    assert (
        "2 classes with 4 images are flagged = 1 with 1 that have too few images anyway + 1 with 3" in shown
    )
    (folder / "ids.txt").write_text("7\n5\n", "utf-8")
    assert "1 excluded classes are not in it, such as 5" in str(call(*arguments).exception)


def test_judgements_are_read_back(folder: Path) -> None:
    items = tuple(
        SampleItem(f"{k:04d}", f"i{k}", "q", 7, "unique:a", "unique, confirmed", k < 3) for k in range(1, 5)
    )
    drawn = Sample(items, {"unique, confirmed": 8}, 0)
    write_sample(folder / "sample.json", drawn)
    for judge, verdicts in (("ann", [1, 1, 2, 2]), ("bob", [1, 2, 2, 3])):
        named = {one.item_id: verdict for one, verdict in zip(items, verdicts, strict=True)}
        value = {"sample": drawn.digest, "judge": judge, "verdicts": named}
        (folder / f"{judge}.json").write_text(json.dumps(value), "utf-8")
    shown = call("judgements", "sample.json", "ann.json", "bob.json")
    assert (
        "2 / 4 = 50.0%" in shown.stdout and "ann / detector" in shown.stdout and "ann / bob" in shown.stdout
    )
    answer = json.loads(call("judgements", "sample.json", "ann.json", "bob.json", "--json").stdout)
    assert answer["judges"][0]["kappa_with_detector"]["kappa"] == 1
    twice = call("judgements", "sample.json", "ann.json", "ann.json")
    assert "two files of judgements are by 'ann'" in str(twice.exception)


def test_seeds(folder: Path) -> None:
    rows = ["protocol,seed,cell,value"]
    for protocol, values in (("standard", (76.0, 77.0, 75.5)), ("decon", (76.2, 76.4, 76.6))):
        for seed, value in enumerate(values):
            rows += [
                f"{protocol},{seed},roxford5k/medium,{value}",
                f"{protocol},{seed},rparis6k/medium,{170 - value}",
            ]
    (folder / "runs.csv").write_text("\n".join(rows) + "\n", "utf-8")
    shown = call("seeds", "runs.csv", "--selected-on", "roxford5k/medium")
    assert "76.2 ± 0.8 (n=3)" in shown.stdout and "No 95% interval excludes 0" in shown.stdout
    assert "r = -1.00" in shown.stdout
    assert json.loads(call("seeds", "runs.csv", "--json").stdout)["protocols"] == ["standard", "decon"]
    (folder / "runs.csv").write_text("\n".join([*rows, rows[1]]) + "\n", "utf-8")
    assert "runs.csv:14: roxford5k/medium of standard, seed 0 is given twice" in str(
        call("seeds", "runs.csv").exception
    )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("classes", *FILES, "--stance", "x"), UsageError, "--stance x"),
        (("classes", *FILES[:4], "--landmarks", "nowhere"), InputError, "nowhere: no such landmark list"),
        (("classes", "--categories", "none.csv", "--landmarks", "roxford5k"), InputError, "no such file"),
        (("compare", "categories.csv", "none.txt"), InputError, "none.txt: no such file"),
    ],
)
def test_mistakes_are_one_line(folder: Path, arguments, error, message) -> None:
    result = call(*arguments)
    assert isinstance(result.exception, error) and message in str(result.exception)


def test_help_names_an_example_and_imports_little() -> None:
    for command in ("classes", "compare", "sets", "judgements", "seeds"):
        assert "Example" in call(command, "--help").stdout
    code = (
        "import sys, pipelines.commands.audit; sys.exit('numpy' in sys.modules or 'pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
