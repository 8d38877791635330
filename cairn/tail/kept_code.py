"""Machine code kept between processes, under what it was made from.

numba keeps it under the path of the function's source file and trusts it while that file alone is unchanged. A copy of
the package would then compile everything again, and a function whose helper in another module has changed would go
on running the old helper: the recorded code of a number would not be the code that computed it. Two processes that
compile for different types at the same time could also give both the same file, and a damaged file would be run.
Whatever is wrong with what is kept, the function is compiled anew.
"""

import ast
import contextlib
import hashlib
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numba
from filelock import FileLock
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

SHA256_BYTES = 32
_PLACES = ("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES", "NUMBA_DEBUG_CACHE", "NUMBA_NUM_THREADS")
"""Settings of numba's that leave its code as it is."""


def keep(function: Any, folder: Path) -> None:
    """Keep the machine code of `function`, made by `numba.njit`, in a folder of its own under `folder`.

    Code that is there is used again where numba and its settings, the Python and the processor are the same, and
    every module that the function's module imports from its own package, at any depth. Nothing is kept where one of
    those files cannot be read, or has changed since this process started: it may have been imported before.
    """
    file = Path(function.py_func.__code__.co_filename)
    with contextlib.suppress(OSError):
        digest, changed = _sources(file)
        if changed < _started():
            # What `enable_caching` of numba's dispatcher does, with another place.
            function._cache = _cache_in(folder, digest)(function.py_func)


def _cache_in(folder: Path, digest: str) -> Callable[[Any], FunctionCache]:
    class Place(_Place):
        base, stamp = folder, digest

    class Saved(CompileResultCacheImpl):
        _locator_classes: ClassVar = [Place]

    class Cache(FunctionCache):
        _impl_class = Saved

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self._cache_file = _Checked(self.cache_path, self._impl.filename_base, digest)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            with contextlib.suppress(OSError):
                return super().load_overload(sig, target_context)

        def save_overload(self, sig: Any, data: Any) -> None:
            # The number of the next file is read off an index that both processes rewrite: one at a time. What cannot
            # be kept (a full disk, another user's folder, no locks) is compiled again by the next process.
            with contextlib.suppress(OSError), FileLock(Path(self.cache_path) / "writing.lock"):
                super().save_overload(sig, data)

    return Cache


class _Place:
    """What numba calls a cache locator."""

    base: Path
    stamp: str

    def __init__(self, function: Any, file: str) -> None:
        self._line = function.__code__.co_firstlineno
        settings = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("NUMBA_")}
        other = json.dumps(
            [numba.__version__, sys.flags.optimize, {k: v for k, v in settings.items() if k not in _PLACES}]
        )
        name = hashlib.sha256(f"{self.stamp} {other}".encode()).hexdigest()[:16]
        self._folder = self.base / f"{Path(file).stem}-{name}"

    @classmethod
    def from_function(cls, function: Any, file: str) -> "_Place":
        place = cls(function, file)
        place.ensure_cache_path()
        return place

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return os.fspath(self._folder)

    def get_source_stamp(self) -> str:
        return self.stamp

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Checked(IndexDataCacheFile):
    """numba's files, each behind its SHA-256: one that is damaged is none."""

    def _load_index(self) -> Any:
        try:
            version, stamp, overloads = pickle.loads(_read_checked(self._index_path))  # noqa: S301
        except OSError:
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, self._dump((self._version, self._source_stamp, overloads)))

    def _load_data(self, name: str) -> Any:
        # Written by this user's processes, into this user's folder; numba keeps all its code so.
        return pickle.loads(_read_checked(self._data_path(name)))  # noqa: S301

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _write(self, path: str, payload: bytes) -> None:
        with self._open_for_write(path) as stream:
            stream.write(hashlib.sha256(payload).digest() + payload)


def _read_checked(path: str) -> bytes:
    """What `_Checked` wrote. OSError, which numba takes for a file that is gone, where it is not what was written."""
    content = Path(path).read_bytes()
    if hashlib.sha256(content[SHA256_BYTES:]).digest() != content[:SHA256_BYTES]:
        raise OSError(f"{path}: damaged")
    return content[SHA256_BYTES:]


@lru_cache
def _started() -> float:
    """When this process started, in seconds since 1970: exact to a hundredth on Linux, to a second elsewhere."""
    try:
        ticks = int(Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, IndexError, ValueError):
        import psutil

        return psutil.Process().create_time()


def source_digest(file: Path) -> str:
    """SHA-256 (hexadecimal) over a module and all that it imports from its own package, at any depth."""
    return _sources(file)[0]


def _sources(file: Path) -> tuple[str, float]:
    """`source_digest`, and when the last of the files was changed. OSError where one cannot be read."""
    file = file.resolve()
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found: dict[str, str] = {}
    waiting, changed = [file], 0.0
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name not in found:
            status = path.stat()
            changed = max(changed, status.st_mtime)
            found[name], below = _read(path, root, status.st_mtime_ns, status.st_size)
            waiting += below
    text = "\n".join(f"{name} {found[name]}" for name in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest(), changed


@cache
def _read(path: Path, root: Path, changed: int, size: int) -> tuple[str, tuple[Path, ...]]:
    """SHA-256 of one file and the files of its package that it imports; `changed` and `size` tell versions apart."""
    text = path.read_bytes()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # it is imported where it is not run, or this process would not be here
        tree = ast.Module([], [])
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = path.relative_to(root).with_suffix("").parts[: -node.level] if node.level else ()
            module = ".".join([*here, *([node.module] if node.module else [])])
            names += [module, *(f"{module}.{one.name}" for one in node.names)]
    package = path.relative_to(root).parts[0]
    below = []
    for name in names:
        if name.split(".")[0] == package:
            place = root.joinpath(*name.split("."))
            below += [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
    return hashlib.sha256(text).hexdigest(), tuple(below)
