"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A machine that is busy with other things is slow now and then: that is no fault of what is tested.
settings.register_profile("cairn", deadline=None)
settings.load_profile("cairn")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference cases and small image sets that may lie beside the checkout."""
    path = Path(os.environ.get("CAIRN_SHARED", REPOSITORY.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"reference data is not beside this checkout ({path} does not exist; set CAIRN_SHARED)")
    return path


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named after their argument: the id of a test must be the same in every worker, which the header
    of an archive made at collection (it holds the time) is not."""
    return argname if isinstance(val, bytes | bytearray) else None
