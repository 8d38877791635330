"""Hashes that a process remembers for hours are taken again when a file of the user's changes, however it changes."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cache import Cache, entry_key
from cairn.encoders.weights import file_weights
from cairn.files import dvc_digest, file_digest
from pipelines import digests
from pipelines.digests import module_digest, unchanged, user_file_digest
from pipelines.page import signature
from pipelines.versions import Externals


def written(path: Path, content: bytes) -> None:
    """As an editor or a trainer writes: in place, with the time of now."""
    path.write_bytes(content)


def copied_with_its_time(path: Path, content: bytes) -> None:
    """As `cp -p` or `rsync -t` writes another file of the same size and time over it."""
    times = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def moved_with_its_time(path: Path, content: bytes) -> None:
    """As `mv` puts another file of the same size and time in its place."""
    other = path.with_name("other")
    other.write_bytes(content)
    shutil.copystat(path, other)
    other.replace(path)


@pytest.mark.parametrize("change", [written, copied_with_its_time, moved_with_its_time])
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("weights.pt", b"weights one", b"weights two"), ("mine.py", b"FACTOR = 1\n", b"FACTOR = 2\n")],
)
def test_every_memory_notices(
    tmp_path: Path, change: Callable[[Path, bytes], None], name: str, old: bytes, new: bytes
):
    path, seen = tmp_path / name, Externals()
    path.write_bytes(old)
    (tmp_path / "folder").symlink_to(tmp_path)  # a folder that the user brings, with the file in it

    def answers() -> list[object]:
        return [
            user_file_digest(path),
            file_weights(str(path), tmp_path).files,
            seen.version(path),
            seen.version(tmp_path / "folder"),
        ]

    before = answers()
    assert before == answers()
    record = {"modules": {name: user_file_digest(path)}, "data": {}}
    assert unchanged(tmp_path, record) == []
    change(path, new)
    after = answers()
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert after[1:3] == [{name: file_digest(path)}, dvc_digest(path)]
    assert unchanged(tmp_path, record) == [name]


def test_what_is_kept_of_syntax_trees_is_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache, first, other = Cache(tmp_path / "cache"), tmp_path / "a.py", tmp_path / "b.py"
    first.write_text('WORDS = "words.txt"  # a comment\n')
    other.write_text('WORDS = "words.txt"  # a comment\n')
    (tmp_path / "words.txt").write_text("street\n")
    found = module_digest(first, cache)
    assert found == module_digest(first) and found[1] == [tmp_path / "words.txt"]
    monkeypatch.setattr("pipelines.digests._tree_digest", lambda *_: ("of another method", set()))
    assert module_digest(other, cache) == found, "the same content is not walked again"
    other.write_text('WORDS = "words.txt"  # another\n')
    assert module_digest(other, cache)[0] == "of another method"
    for entry in cache.folder.rglob("*"):  # a damaged entry is none
        if entry.is_file():
            entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    digests._module_digest.cache_clear()
    assert module_digest(first, cache)[0] == "of another method"
    for wrong in ([], 3, ["0000", []], ["f" * 64, ["/etc/hostname"]], {"a": 1, "b": 2}):
        cache.put(entry_key(tree=file_digest(other), method=digests.METHOD), json.dumps(wrong).encode())
        digests._module_digest.cache_clear()
        assert module_digest(other, cache)[0] == "of another method"
    monkeypatch.setattr("pipelines.digests.METHOD", ["another", [3, 99]])
    assert module_digest(other, cache)[0] == "of another method"


def test_a_data_file_that_comes_later_is_part_of_the_code(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text('WORDS = "words.txt"\n')
    assert module_digest(path)[1] == []
    (tmp_path / "words.txt").write_text("street\n")
    assert module_digest(path)[1] == [tmp_path / "words.txt"]


def test_the_page_loads_again_when_a_users_own_module_changes(tmp_path: Path):
    code = tmp_path / "artifacts" / "code"
    (tmp_path / "mine.py").write_text("FACTOR = 1\n")
    (tmp_path / "params.yaml").write_text("{}")
    before = signature(tmp_path)
    assert [Path(file).name for file, _ in before] == ["params.yaml"]
    (code / "descriptors").mkdir(parents=True)
    record = code / "descriptors" / "town-mine.json"
    record.write_text('{"modules": {"mine.py": "x", "cairn/files.py": "y"}, "data": {}}')
    before = signature(tmp_path)
    assert [Path(file).name for file, _ in before] == ["mine.py", "params.yaml"]
    (tmp_path / "mine.py").write_text("FACTOR = 2\n")
    assert signature(tmp_path) != before
