"""`cairn card` and `cairn check-card` as they are typed."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cairn.errors import InputError, UsageError
from pipelines.commands.card import card
from pipelines.commands.check_card import check_card
from tests.card import documents


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    app = typer.Typer()
    app.command("card")(card)
    app.command("check-card")(check_card)

    def runner(*arguments: str, root: Path | None = None):
        if root is not None:
            monkeypatch.setenv("CAIRN_ROOT", str(root))
        return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})

    return runner


def test_the_exit_code_follows_the_findings(run, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(documents.SHOP))
    assert run("check-card", str(file)).exit_code == 0
    file.write_text(json.dumps(documents.SHOP).replace("3.7", "3.8"))
    assert run("check-card", str(file)).exit_code == 1
    # A warning alone fails only with --strict.
    file.write_text(json.dumps({"results": {"a": {"M": 50.0, "H": 60.0}}}))
    assert run("check-card", str(file)).exit_code == 0
    assert run("check-card", str(file), "--strict").exit_code == 1


def test_findings_are_printed_by_severity_with_their_paths(run, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(documents.SHOP).replace("3.7", "3.8"))
    text = run("check-card", str(file)).stdout
    assert text.index("Errors (1)") < text.index("$.summary") < text.index("Right (2)")
    assert "3.8: 44.9" not in text and "3.8 is wrong" in text
    assert "1 error, 0 warnings" in text
    assert "1.8: 43.0" in run("check-card", str(file), "--all").stdout


def test_json_holds_every_finding_and_nothing_else(run, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(documents.COMPARISON))
    done = run("check-card", str(file), "--json")
    record = json.loads(done.stdout)
    assert done.exit_code == 1 and record["passed"] is False
    assert sum(record["counts"].values()) == len(record["findings"])
    assert {"severity", "rule", "path", "message", "related"} == record["findings"][0].keys()


def test_a_file_that_is_none_is_one_line(run, tmp_path: Path) -> None:
    done = run("check-card", str(tmp_path / "missing.json"))
    assert isinstance(done.exception, InputError)


def test_the_card_is_written_and_passes_its_audit(run, compared: Path, tmp_path: Path) -> None:
    done = run("card", "--output", str(tmp_path / "card.json"), root=compared)
    assert done.exit_code == 0, done.output
    assert "computed sentences" in done.stdout
    assert run("check-card", str(tmp_path / "card.json")).exit_code == 0
    printed = json.loads(run("card", "--json", root=compared).stdout)
    assert printed == json.loads((tmp_path / "card.json").read_text())
    refused = run("card", "--json", "--output", "x.json", root=compared)
    assert isinstance(refused.exception, UsageError)
