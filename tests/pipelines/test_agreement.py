"""Dagster, `cairn status` and DVC name the same stale assets after every kind of change, and nothing else runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assets.step import steps
from tests.pipelines.project import Project

VERDICTS = Path(__file__).with_name("dagster_verdicts.py")


def dagster_stale(project: Project) -> set[str]:
    """Assets that Dagster calls stale or missing."""
    result = subprocess.run(
        [sys.executable, str(VERDICTS)],
        cwd=project.root,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    verdicts = json.loads(result.stdout.splitlines()[-1])["verdicts"]
    return {asset for asset, verdict in verdicts.items() if verdict != "FRESH"}


def cairn_stale(project: Project) -> set[str]:
    """Assets that `cairn status` calls stale; this brings the digests up to date first."""
    result = project.cairn("status", "--json", check=False)
    report = json.loads(result.stdout)
    assert result.returncode == (3 if report["stale"] else 0), result.stderr
    return set(report["stale"])


def dvc_stale(project: Project) -> set[str]:
    """Assets whose stage `dvc status` lists, after `dvc repro code`."""
    project.dvc("repro", "code")
    return {asset_of(stage, project) for stage in project.dvc_stale()}


def asset_of(stage: str, project: Project) -> str:
    name, _, key = stage.partition("@")
    if name.startswith("sources-"):
        name = "sources"
    runs = project.parameters()["runs"]
    if key in runs:
        return f"{runs[key]['benchmark']}/{runs[key]['system']}/{name}"
    return f"{key}/{name}" if key else name


def agreed(project: Project) -> set[str]:
    """The stale assets, once all three have said the same."""
    by_dvc, by_cairn, by_dagster = dvc_stale(project), cairn_stale(project), dagster_stale(project)
    assert by_dvc == by_cairn == by_dagster
    return by_dvc


def edit(project: Project, file: str, change: Callable[[str], str]) -> Callable[[], None]:
    """Change a file; calling the result puts the old content back."""
    path = project.root / file
    before = path.read_text("utf-8")
    after = change(before)
    assert after != before, f"{file}: the edit changed nothing"
    path.write_text(after, "utf-8")
    return lambda: path.write_text(before, "utf-8") and None


def test_all_is_fresh_after_a_run(project: Project):
    assert agreed(project) == set()
    assert project.repro() == []


@pytest.mark.parametrize("step", list(steps()))
def test_a_change_in_one_step_makes_that_step_stale_alone(project: Project, step: str):
    undo = edit(project, f"assets/{step}.py", lambda text: text + "\n_UNUSED = 1\n")
    stale = agreed(project)
    assert {asset.split("/")[-1] for asset in stale} == {step}
    undo()
    assert agreed(project) == set()


@pytest.mark.parametrize(
    ("section", "name", "key", "value", "step"),
    [
        ("systems", "rootsift-vlad", ("rerank", "geometry", "weight"), 0.5, "reranking"),
        ("systems", "rootsift-vlad", ("search", "top"), 7, "ranking"),
        ("systems", "rootsift-vlad", ("vocabulary", "words"), 8, "vocabulary"),
        ("benchmarks", "toytown", ("metric",), "map", "scores"),
    ],
)
def test_a_parameter_makes_its_steps_stale(project: Project, section, name, key, value, step):
    parameters = project.parameters()
    entry = parameters[section][name]
    for part in key[:-1]:
        entry = entry.setdefault(part, {})
    before = (project.root / "params.yaml").read_text("utf-8")
    entry[key[-1]] = value
    project.write_parameters(parameters)
    stale = agreed(project)
    assert any(asset.endswith(f"/{step}") for asset in stale)
    ran = project.repro()
    assert any(stage.startswith(f"{step}@") for stage in ran)
    assert agreed(project) == set()
    (project.root / "params.yaml").write_text(before, "utf-8")
    assert any(asset.endswith(f"/{step}") for asset in agreed(project))


def test_a_comment_reruns_the_digests_and_nothing_else(project: Project):
    undo = edit(project, "cairn/files.py", lambda text: text + "\n# a comment\n")
    assert project.repro() == ["code"]
    assert agreed(project) == set()
    undo()
    assert agreed(project) == set()


def test_a_docstring_is_not_behaviour(project: Project):
    edit(project, "cairn/files.py", lambda text: text.replace('"""Files that', '"""Some files that', 1))
    assert project.repro() == ["code"]


def test_a_shared_helper_makes_all_its_users_stale(project: Project):
    undo = edit(project, "cairn/metrics/evaluate.py", lambda text: text + "\n_UNUSED = 1\n")
    stale = agreed(project)
    assert {asset.split("/")[-1] for asset in stale} == {"scores"}
    undo()
    assert agreed(project) == set()


def test_an_encoder_nobody_uses_changes_nothing(project: Project):
    module = project.root / "cairn" / "encoders" / "unused.py"
    module.write_text('"""An encoder nobody uses."""\n\nLEARNING_KEYS = ()\n', "utf-8")
    undo = edit(
        project,
        "cairn/encoders/registry.yaml",
        lambda text: text + "unused: {module: cairn.encoders.unused}\n",
    )
    assert agreed(project) == set()
    assert project.repro() == []
    undo()
    module.unlink()
    assert agreed(project) == set()
