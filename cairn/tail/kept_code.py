"""Machine code kept between processes, under what it was made from.

numba keeps it under the path of the function's source file and trusts it while that file alone is unchanged. A copy of
the package would then compile everything again, and a function whose helper in another module has changed would go
on running the old helper: the recorded code of a number would not be the code that computed it. Two processes that
compile for different types at the same time could also give both the same file.
"""

import ast
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numba
from filelock import FileLock
from numba.core.caching import CompileResultCacheImpl, FunctionCache


def keep(function: Any, folder: Path) -> None:
    """Keep the machine code of `function`, made by `numba.njit`, in a folder of its own under `folder`.

    Code that is there is used again where numba, the Python and the processor are the same and every module is that
    the function's module imports from its own package, at any depth.
    """
    # What `enable_caching` of numba's dispatcher does, with another place.
    function._cache = _cache_in(folder)(function.py_func)


def _cache_in(folder: Path) -> Callable[[Any], FunctionCache]:
    class Place(_Place):
        base = folder

    class Saved(CompileResultCacheImpl):
        _locator_classes: ClassVar = [Place]

    class Cache(FunctionCache):
        _impl_class = Saved

        def save_overload(self, sig: Any, data: Any) -> None:
            # The number of the next file is read off an index that both processes rewrite: one at a time.
            with FileLock(Path(self.cache_path) / "writing.lock"):
                super().save_overload(sig, data)

    return Cache


class _Place:
    """What numba calls a cache locator."""

    base: Path

    def __init__(self, function: Any, file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._digest = source_digest(Path(file))
        self._folder = self.base / f"{Path(file).stem}-{self._digest[:16]}-numba-{numba.__version__}"

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
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


def source_digest(file: Path) -> str:
    """SHA-256 (hexadecimal) over a module and all that it imports from its own package, at any depth."""
    file = file.resolve()
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found: dict[str, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name not in found:
            status = path.stat()
            found[name], below = _read(path, root, status.st_mtime_ns, status.st_size)
            waiting += below
    return hashlib.sha256("\n".join(f"{name} {found[name]}" for name in sorted(found)).encode()).hexdigest()


@cache
def _read(path: Path, root: Path, changed: int, size: int) -> tuple[str, tuple[Path, ...]]:
    """SHA-256 of one file and the files of its package that it imports; `changed` and `size` tell versions apart."""
    text = path.read_bytes()
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
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
