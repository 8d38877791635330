"""Machine code is kept under what it was made from; run now or kept from before, it gives the same bytes."""

import os
import shutil
import subprocess
import sys
import time
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


def long_ago(path: Path, seconds: int = 60) -> None:
    """A process that starts now started after the file was changed."""
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A package with one compiled function, `small.kernel.kernel`, that adds 1 by a helper of another module."""
    package = tmp_path / "small"
    (package / "helpers").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernel.py").write_text(KERNEL)
    # As a package's own name: found by way of its `__init__.py`, which imports with a leading dot.
    (package / "helpers" / "__init__.py").write_text("from .deep import helper\n")
    (package / "helpers" / "deep.py").write_text(HELPER.format(added=1))
    for path in package.rglob("*.py"):
        long_ago(path, 100)
    return package


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
    long_ago(errors)
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


TEN = "from small.kernel import kernel; print(kernel(10))"


def test_a_changed_helper_of_another_module_is_the_one_that_runs(small: Path, tmp_path: Path):
    said = []
    for number, added in enumerate((1, 1, 2)):
        (small / "helpers" / "deep.py").write_text(HELPER.format(added=added))
        long_ago(small / "helpers" / "deep.py", 90 - 20 * number)
        said.append(run(TEN, tmp_path / "cache", REPOSITORY, tmp_path).strip())
    assert said == ["11", "11", "12"]


def test_a_file_that_changes_under_a_process_is_not_kept_as_what_it_is_now(small: Path, tmp_path: Path):
    """The helper is in memory when its file changes: what is compiled is the old one."""
    deep = small / "helpers" / "deep.py"
    new = HELPER.format(added=5)
    late = f"import small.helpers, pathlib; pathlib.Path({str(deep)!r}).write_text({new!r}); {TEN}"
    assert run(late, tmp_path / "cache", REPOSITORY, tmp_path).strip() == "11"
    assert run(TEN, tmp_path / "cache", REPOSITORY, tmp_path).strip() == "15"


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "bit"])
def test_what_is_damaged_is_compiled_anew(small: Path, tmp_path: Path, kind: str, damage: str):
    cache = tmp_path / "cache"
    assert run(TEN, cache, REPOSITORY, tmp_path).strip() == "11"
    files = sorted(cache.rglob(f"*.{kind}"))
    assert files
    before = {file: file.read_bytes() for file in files}
    for file, content in before.items():
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        file.write_bytes({"empty": b"", "cut": content[:-7], "bit": flipped}[damage])
    assert run(TEN, cache, REPOSITORY, tmp_path).strip() == "11"
    assert all(len(file.read_bytes()) > 32 for file in files), "and kept again"
    assert run(TEN, cache, REPOSITORY, tmp_path).strip() == "11"


@pytest.mark.parametrize(
    "change",
    [
        "import os; os.environ['NUMBA_DISABLE_JIT'] = '1'",
        "import cairn.tail.kept_code as k; k.FileLock = lambda *_: (_ for _ in ()).throw(OSError(37, 'no locks'))",
        "import numba.core.caching as c; c.IndexDataCacheFile._open_for_write = "
        "lambda *_: (_ for _ in ()).throw(OSError(28, 'No space left on device'))",
    ],
)
def test_what_cannot_be_kept_is_computed_all_the_same(small: Path, tmp_path: Path, change: str):
    assert run(f"{change}; {TEN}", tmp_path / "cache", REPOSITORY, tmp_path).strip() == "11"
    assert not kept(tmp_path / "cache")


def test_a_module_that_is_never_run_may_be_broken(small: Path, tmp_path: Path):
    (small / "broken.py").write_text("def (:\n")
    with (small / "kernel.py").open("a") as stream:
        stream.write("\n\ndef other():\n    from small import broken\n")
    for path in small.glob("*.py"):
        long_ago(path)
    assert run(TEN, tmp_path / "cache", REPOSITORY, tmp_path).strip() == "11"
    assert kept(tmp_path / "cache")


def test_other_settings_have_other_code(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(TEN, tmp_path / "cache", REPOSITORY, tmp_path)
    before = kept(tmp_path / "cache")
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    run(TEN, tmp_path / "cache", REPOSITORY, tmp_path)
    assert kept(tmp_path / "cache") > before


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
