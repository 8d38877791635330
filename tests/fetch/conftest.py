"""The loopback file server for the tests of downloads."""

from collections.abc import Iterator

import pytest

from tests.fetch.server import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRN_MIRROR", raising=False)
