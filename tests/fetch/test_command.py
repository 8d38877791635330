"""`cairn fetch`: by known name or by the entry in params.yaml; JSON for programs, one line for mistakes."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cairn.errors import ParameterError, UsageError
from pipelines.commands.fetch import fetch
from tests.benchmarks import publications as published

RUNNER = CliRunner()


@pytest.fixture
def project(tmp_path: Path, server, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "params.yaml").write_text(
        "benchmarks:\n"
        "  paris: {adapter: revisitop, dataset: rparis6k, training: paris}\n"
        "  own: {adapter: toytown, training: own}\n"
    )
    for address, data in (published.roxford() | published.rparis()).items():
        server.put(address, data)
    monkeypatch.setenv("CAIRN_MIRROR", server.url)
    monkeypatch.setenv("CAIRN_ROOT", str(tmp_path))
    return tmp_path


def call(*arguments: str):
    app = typer.Typer()
    app.command()(fetch)
    return RUNNER.invoke(app, list(arguments), catch_exceptions=True)


def test_a_known_name_needs_no_entry(project):
    result = call("roxford5k", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["folder"] == ".cairn/downloads/revisitop"
    assert [file["path"] for file in answer["files"]] == [
        ".cairn/downloads/revisitop/gnd_roxford5k.pkl",
        ".cairn/downloads/revisitop/oxbuild_images-v1.tgz",
    ]
    assert (project / ".cairn/downloads/revisitop/oxbuild_images-v1.tgz.gzidx").is_file()


def test_an_entry_of_params_yaml_and_only_its_truth(project):
    result = call("paris", "--only", "truth")
    assert result.exit_code == 0
    assert "gnd_rparis6k.pkl" in result.stdout
    assert "unverified (first fetch)" in result.stdout
    assert "1 file in .cairn/downloads/revisitop, 1 without a published checksum" in result.stdout
    assert not list(project.rglob("*.tgz"))


def test_mistakes_are_one_line(project):
    wrong = call("roxfrod5k")
    assert isinstance(wrong.exception, UsageError)
    assert "did you mean 'roxford5k'?" in str(wrong.exception)
    own = call("own")
    assert isinstance(own.exception, UsageError)
    assert "own has nothing to download" in str(own.exception)
    assert call("roxford5k", "--only", "both").exit_code == 2
    (project / "params.yaml").write_text(
        "benchmarks:\n  x: {adapter: revisitop, dataset: other, training: x}\n"
    )
    assert isinstance(call("x").exception, ParameterError)
