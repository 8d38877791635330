"""A project with believable numbers, copied for every test that changes it."""

import shutil
from pathlib import Path

import pytest

from tests.card.project import add_published_run, believable
from tests.lineage.project import build_project


@pytest.fixture(scope="session")
def plain_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a project (`cairn/`): never change it."""
    folder = tmp_path_factory.mktemp("card")
    believable(build_project(folder))
    return folder


@pytest.fixture
def project(plain_home: Path, tmp_path: Path) -> Path:
    """The root of a project of the test's own: toytown and a folder benchmark."""
    shutil.copytree(plain_home, tmp_path / "home")
    return tmp_path / "home/cairn"


@pytest.fixture
def compared(project: Path) -> Path:
    """The same with a run on benchmarks that have published rows."""
    add_published_run(project)
    return project
