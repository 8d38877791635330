"""The README tells the truth about commands, targets, files and keys."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cairn.errors import CairnError
from cairn.parameters import load_parameters

REPOSITORY = Path(__file__).resolve().parents[1]
README = (REPOSITORY / "README.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"(?:^|`|· `?)cairn\s+([a-z][a-z-]+)", README, re.M)))


def commands() -> dict[str, bool]:
    """Names of all commands, and whether they are hidden."""
    from typer.main import get_command

    from pipelines.cli import app

    return {name: command.hidden for name, command in get_command(app).commands.items()}  # type: ignore[attr-defined]


def test_the_readme_and_the_command_line_name_the_same_commands():
    known = commands()
    assert set(NAMED) <= set(known), set(NAMED) - set(known)
    assert {name for name, hidden in known.items() if not hidden} <= set(NAMED)


@pytest.mark.parametrize("command", NAMED)
def test_every_command_has_help_with_an_example(command: str):
    result = subprocess.run(
        [sys.executable, "-m", "pipelines", command, "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert result.returncode == 0
    assert "xample" in result.stdout or "Commands" in result.stdout


def test_every_make_target_in_the_readme_exists():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"`make ([a-z-]+)", README)) <= targets


def test_every_linked_file_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in link:
            assert (REPOSITORY / link).exists(), link


def test_every_page_is_linked_from_the_readme():
    pages = {f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", README))


def test_the_yaml_in_the_readme_is_what_params_yaml_has_or_may_have(tmp_path):
    parameters = yaml.safe_load((REPOSITORY / "params.yaml").read_text("utf-8"))
    blocks = re.findall(r"```yaml\n(.*?)```", README, re.S)
    added = []
    for block in blocks:
        for section, entries in yaml.safe_load(block).items():
            for name, entry in entries.items():
                if name in parameters[section]:
                    assert parameters[section][name] == entry
                else:
                    added.append(name)
                    parameters[section][name] = entry
    assert blocks and added
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(parameters), "utf-8")
    checked = load_parameters(path)
    assert set(added) <= set(checked.systems)
    # What the checks of that are worth: a key that does not exist is refused.
    parameters["systems"][added[0]]["resize"] = 224
    path.write_text(yaml.safe_dump(parameters), "utf-8")
    with pytest.raises(CairnError, match=f"{added[0]}.*resize"):
        load_parameters(path)
