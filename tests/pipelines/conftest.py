"""A small project: the repository's code with a tiny town, made once and copied for each test that changes it."""

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from tests.pipelines.project import TINY, Project, new_project


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A tiny project whose graph has run once. Do not change it: copy it (`project`).

    The first of the processes that share a run of the tests makes it; each has a copy of its own.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    root, whole = folder / "made" / "project", folder / "made" / "whole"
    with FileLock(folder / "made.lock"):
        if not whole.exists():
            shutil.rmtree(root, ignore_errors=True)
            new_project(root, TINY).dvc("repro")
            whole.touch()
    return Project(root).copy(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy of the made project that a test may change."""
    return made.copy(tmp_path / "project")
