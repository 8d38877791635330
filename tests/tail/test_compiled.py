"""Machine code is kept under what it was made from; run now or kept from before, it gives the same bytes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

CHILD = """
import json
import numpy as np
from cairn.tail.estimate import estimate_arrays

chance = np.random.default_rng(3)
top = -np.sort(-chance.standard_normal((7, 120)), axis=1)
scores = chance.normal(2, 0.5, 21)
found = estimate_arrays(top, np.repeat(np.arange(7), 3), scores, 120, 100_000, 10)
print(json.dumps(found.record(), sort_keys=True))
"""


@pytest.mark.slow
def test_compiled_now_or_kept_from_before_it_gives_the_same_bytes(tmp_path: Path):
    repository = Path(__file__).resolve().parents[2]
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", CHILD]
    said = []
    for _ in range(2):
        result = subprocess.run(command, env=environment, capture_output=True, check=True)
        said.append(result.stdout)
        assert list(tmp_path.rglob("*.nbi")), "nothing is kept: the second process compiles as the first did"
    assert said[0] == said[1] and b"NaN" not in said[0]


REPOSITORY = Path(__file__).resolve().parents[2]
COUNT = """
import numpy as np
from cairn.tail.scores import count_ahead
assert count_ahead(np.array([[3.0, 2.0]]), np.array([0]), np.array([2.0]))[0] == 2
"""


def run(code: str, cache: Path, *paths: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment |= {"NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=paths[-1], env=environment, capture_output=True, check=True, text=True
    ).stdout


def kept(cache: Path) -> set[str]:
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*.nb?")}


def test_a_copy_of_the_package_compiles_nothing_again(tmp_path: Path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(REPOSITORY / "cairn", copy / "cairn", ignore=shutil.ignore_patterns("__pycache__"))
    run(COUNT, tmp_path / "cache", REPOSITORY)
    before = kept(tmp_path / "cache")
    assert before
    run(COUNT, tmp_path / "cache", copy)
    assert kept(tmp_path / "cache") == before
    errors = copy / "cairn" / "errors.py"  # the module imports it, it holds nothing compiled
    errors.write_text(errors.read_text() + "\n")
    run(COUNT, tmp_path / "cache", copy)
    assert kept(tmp_path / "cache") > before


KERNEL = """
from cairn.tail.compiled import compiled
from small.helpers import helper

@compiled()
def kernel(value):
    return helper(value)
"""
HELPER = """
from cairn.tail.compiled import compiled

@compiled()
def helper(value):
    return value + {added}
"""


def test_a_changed_helper_of_another_module_is_the_one_that_runs(tmp_path: Path):
    package = tmp_path / "small"
    (package / "helpers").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernel.py").write_text(KERNEL)
    said = []
    for added in (1, 1, 2):
        # As a package's own name: found by way of its `__init__.py`, which imports with a leading dot.
        (package / "helpers" / "__init__.py").write_text("from .deep import helper\n")
        (package / "helpers" / "deep.py").write_text(HELPER.format(added=added))
        code = "from small.kernel import kernel; print(kernel(10))"
        said.append(run(code, tmp_path / "cache", REPOSITORY, tmp_path).strip())
    assert said == ["11", "11", "12"]


def test_two_processes_do_not_write_at_once(tmp_path: Path):
    """Which file holds the code of which types is read off an index: a second writer would take the same number."""
    run(COUNT, tmp_path, REPOSITORY)
    folder = next(path.parent for path in tmp_path.rglob("*.nbi") if "count_ahead" in path.name)
    other = COUNT.replace("2.0]]", "2.0]], np.float32")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    environment.pop("NUMBA_CACHE_DIR", None)
    before = kept(tmp_path)
    with FileLock(folder / "writing.lock"):
        child = subprocess.Popen([sys.executable, "-c", other], env=environment)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(5)
        assert kept(tmp_path) == before
    assert child.wait(120) == 0 and kept(tmp_path) > before
