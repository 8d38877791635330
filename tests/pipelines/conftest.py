"""A small project: the repository's code with a tiny town, made once and copied for each test that changes it."""

from pathlib import Path

import pytest

from tests.pipelines.project import TINY, Project, new_project


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A tiny project whose graph has run once. Do not change it: copy it (`project`)."""
    project = new_project(tmp_path_factory.mktemp("made") / "project", TINY)
    project.dvc("repro")
    return project


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """A copy of the made project that a test may change."""
    return made.copy(tmp_path / "project")
