"""The small project of the lineage's tests."""

from tests.lineage.conftest import built, project

__all__ = ["built", "project"]
