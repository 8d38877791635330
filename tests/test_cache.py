"""The scratch cache: what it returns is what was put, or nothing."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.cache import Cache, entry_key
from cairn.errors import ParameterError

KEY = entry_key(image="a")


def entry(cache: Cache, key: str = KEY) -> Path:
    return cache.folder / key[:2] / key


@given(data=st.binary(max_size=4096))
def test_returns_what_was_put(tmp_path_factory, data: bytes):
    cache = Cache(tmp_path_factory.mktemp("cache"))
    assert cache.get(KEY) is None and not cache.has(KEY)
    cache.put(KEY, data)
    assert cache.get(KEY) == data and cache.has(KEY)
    assert pickle.loads(pickle.dumps(cache)).get(KEY) == data


def test_every_part_of_a_key_counts_and_their_order_does_not():
    parts = {"image": "a", "box": [1.0, 2.0, 3.0, 4.0], "code": "c", "versions": {"cv2": "5"}}
    assert entry_key(**parts) == entry_key(**dict(reversed(parts.items())))
    changed = [parts | {"image": "b"}, parts | {"box": None}, parts | {"code": "d"}, parts | {"versions": {}}]
    assert len({entry_key(**each) for each in [parts, *changed]}) == 5


def test_any_damaged_byte_makes_an_entry_absent_and_a_new_one_replaces_it(tmp_path: Path):
    cache = Cache(tmp_path)
    cache.put(KEY, b"payload")
    sound = entry(cache).read_bytes()
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1
        entry(cache).write_bytes(damaged)
        assert cache.get(KEY) is None, position
        assert not entry(cache).exists()
    for length in range(len(sound)):
        entry(cache).write_bytes(sound[:length])
        assert cache.get(KEY) is None, length
    cache.put(KEY, b"payload")
    assert cache.get(KEY) == b"payload"


def test_prune_removes_what_was_used_longest_ago(tmp_path: Path):
    keys = [entry_key(number=number) for number in range(4)]
    cache = Cache(tmp_path, limit=2500)
    for number, key in enumerate(keys):
        cache.put(key, b"x" * 1000)
        os.utime(entry(cache, key), (number, number))
    assert cache.get(keys[0]) is not None  # used just now
    assert cache.prune() > 1900
    assert [cache.has(key) for key in keys] == [True, False, False, True]
    assert cache.prune() == 0


def test_prune_removes_what_killed_writers_left_but_not_what_is_being_written(tmp_path: Path):
    cache = Cache(tmp_path)
    cache.put(KEY, b"x")
    old, new = entry(cache).parent / ".tmp-old", entry(cache).parent / ".tmp-new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.prune()
    assert not old.exists() and new.exists() and cache.get(KEY) == b"x"


def test_a_place_that_cannot_be_written_costs_the_entry_only(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    cache.put(KEY, b"x")
    assert cache.get(KEY) is None and cache.prune() == 0


def test_the_environment_chooses_place_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CAIRN_CACHE", raising=False)
    assert Cache.of(tmp_path) == Cache(tmp_path / ".cairn" / "cache")
    monkeypatch.setenv("CAIRN_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CAIRN_CACHE_GIB", "0.5")
    assert Cache.of(tmp_path) == Cache(tmp_path / "elsewhere", 2**29)
    monkeypatch.setenv("CAIRN_CACHE", "off")
    assert Cache.of(tmp_path) is None
    monkeypatch.delenv("CAIRN_CACHE")
    for wrong in ("many", "-1", "nan", "inf"):
        monkeypatch.setenv("CAIRN_CACHE_GIB", wrong)
        with pytest.raises(ParameterError, match=f"CAIRN_CACHE_GIB = '{wrong}'"):
            Cache.of(tmp_path)


WRITER = """
import sys, pathlib
from cairn.cache import Cache, entry_key
cache = Cache(pathlib.Path(sys.argv[1]))
print("on", flush=True)
while True:
    for number in range(20):
        cache.put(entry_key(number=number), bytes([number]) * 200_000)
"""


def test_killed_and_concurrent_writers_leave_whole_entries_only(tmp_path: Path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == b"on\n"
    cache, seen = Cache(tmp_path), 0
    deadline = time.monotonic() + 0.7
    while time.monotonic() < deadline:
        for number in range(20):
            data = cache.get(entry_key(number=number))
            assert data in (None, bytes([number]) * 200_000)
            seen += data is not None
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()  # type: ignore[union-attr]
    assert seen > 0
    kept = [cache.get(entry_key(number=number)) for number in range(20)]
    assert all(data in (None, bytes([number]) * 200_000) for number, data in enumerate(kept))
