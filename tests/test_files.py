"""Nothing is ever half-written, and what a killed process left is told from work that goes on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.files import atomic, atomic_directory, remove_leftovers, write_json


def test_a_failure_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "a.json"
    write_json(path, {"b": 1, "a": 2})
    before = path.read_bytes()
    with pytest.raises(RuntimeError), atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_failure_leaves_the_old_directory(tmp_path: Path):
    path = tmp_path / "out"
    with atomic_directory(path) as temporary:
        (temporary / "x").write_text("1")
    with pytest.raises(RuntimeError), atomic_directory(path) as temporary:
        (temporary / "y").write_text("2")
        raise RuntimeError
    assert [p.name for p in path.iterdir()] == ["x"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_directory_is_never_half_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, seen = tmp_path / "out", []
    with atomic_directory(path) as temporary:
        for name in "abc":
            (temporary / name).write_text("1")
    remove = shutil.rmtree

    def look(folder: Path, **options):
        seen.append(sorted(p.name for p in path.iterdir()))
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", look)
    with atomic_directory(path) as temporary:
        (temporary / "d").write_text("2")
    assert seen and all(names == ["d"] for names in seen)  # what was there goes once the new one has its name
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_only_the_leftovers_of_dead_processes_are_removed(tmp_path: Path):
    code = (
        "import os, pathlib, sys; from cairn.files import atomic_directory; "
        "held = atomic_directory(pathlib.Path(sys.argv[1])); held.__enter__(); os._exit(9)"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], check=False, cwd=Path(__file__).parents[1]
    )
    [left] = tmp_path.iterdir()
    live = tmp_path / f".out.{os.getpid()}.abcdefgh"
    live.mkdir()
    other = tmp_path / ".git.ignored.thing"
    other.mkdir()
    assert remove_leftovers(tmp_path) == [left]
    assert {p.name for p in tmp_path.iterdir()} == {live.name, other.name}
