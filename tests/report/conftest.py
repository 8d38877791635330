"""The report tests' project and its page, made once."""

from pathlib import Path

import pytest

from cairn.report.page import write_report
from tests.report.project import build


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a project with a run of each kind of protocol: never change it."""
    return build(tmp_path_factory.mktemp("reported"))


@pytest.fixture(scope="session")
def page(project: Path) -> Path:
    """The project's page."""
    write_report(project, project / "report.html")
    return project / "report.html"
