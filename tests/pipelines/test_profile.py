"""Profiles add what they list to `params.yaml`, keep its comments, and add nothing twice."""

import shutil
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.parameters import load_parameters
from pipelines.profile import apply_profile

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copy2(REPOSITORY / "params.yaml", tmp_path)
    shutil.copytree(REPOSITORY / "profiles", tmp_path / "profiles")
    return tmp_path


@pytest.mark.parametrize("profile", [path.stem for path in sorted((REPOSITORY / "profiles").glob("*.yaml"))])
def test_every_profile_gives_valid_parameters_and_is_there_once(root: Path, profile: str):
    before = load_parameters(root / "params.yaml")
    assert apply_profile(root, profile)
    after = load_parameters(root / "params.yaml")
    assert set(before.runs) < set(after.runs)
    text = (root / "params.yaml").read_text("utf-8")
    assert "# The floor" in text, "comments stay"
    assert apply_profile(root, profile) == []
    assert (root / "params.yaml").read_text("utf-8") == text


def test_a_profile_that_would_break_the_file_changes_nothing(root: Path):
    (root / "profiles" / "bad.yaml").write_text(
        "runs: {x: {benchmark: nowhere, system: rootsift-vlad}}\n", "utf-8"
    )
    before = (root / "params.yaml").read_bytes()
    with pytest.raises(Exception, match="nowhere"):
        apply_profile(root, "bad")
    assert (root / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("name", ["absent", "../params", "."])
def test_an_unknown_profile_lists_what_there_is(root: Path, name: str):
    with pytest.raises(UsageError, match="full"):
        apply_profile(root, name)
