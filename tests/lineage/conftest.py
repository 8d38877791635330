"""One small project, built once, copied for every test that changes it."""

import shutil
from pathlib import Path

import pytest

from tests.lineage.project import build_project


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a project (`cairn/`) and the user's images (`brought/`): never change it."""
    folder = tmp_path_factory.mktemp("built")
    build_project(folder)
    return folder


@pytest.fixture
def project(built: Path, tmp_path: Path) -> Path:
    """The root of a project of the test's own."""
    shutil.copytree(built, tmp_path / "home")
    return tmp_path / "home/cairn"
