"""What docs/readouts.md shows is accepted as it stands."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cairn.encoders.feature_files import READERS
from cairn.parameters import load_parameters

TEXT = (Path(__file__).parents[2] / "docs" / "readouts.md").read_text("utf-8")
SYSTEMS = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
COMMANDS = [
    command.replace("\\\n", " ")
    for block in re.findall(r"```\n(cairn .*?)```", TEXT, re.S)
    for command in re.findall(r"^cairn (?:.*\\\n)*.*$", block, re.M)
]


@pytest.mark.parametrize("text", SYSTEMS)
def test_every_system_is_one_that_params_yaml_takes(text: str, tmp_path: Path):
    (tmp_path / "params.yaml").write_text(text, "utf-8")
    assert load_parameters(tmp_path / "params.yaml").systems.keys() == yaml.safe_load(text)["systems"].keys()


def test_every_kind_of_file_is_listed():
    kinds = re.findall(r"`\.(\w+)`", TEXT)
    assert set(READERS) - {"pickle"} <= set(kinds)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_options_that_exist(command: str):
    from pipelines.cli import app

    words = shlex.split(command)
    helped = CliRunner().invoke(app, [words[1], "--help"], env={"COLUMNS": "200"}).output
    options = [word for word in words if word.startswith("--")]
    assert options
    for option in options:
        assert option in helped
