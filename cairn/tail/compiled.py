"""The one decorator for compiled functions: numba, cached in the user's cache folder and nowhere else."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """numba's `njit` whose machine code is kept in `<user cache>/cairn/numba`, under the digest of its sources.

    numba would write beside the source file, which may be a checkout under version control or a read-only
    installation. NUMBA_CACHE_DIR, where set, wins; a folder that cannot be written means no cache.

    Without `fastmath`: where sums may be reordered, LLVM orders a function's by what it is inlined into, and code
    compiled just now gave other last digits than the same code kept from an earlier process.
    """
    import numba

    from cairn.tail.kept_code import keep

    def decorate(function: Callable[..., Any]) -> Any:
        made = numba.njit(**options)(function)
        folder = Path(numba.config.CACHE_DIR or user_cache())  # type: ignore[attr-defined]
        if made is not function and _writable(folder):  # NUMBA_DISABLE_JIT leaves it as it is
            keep(made, folder)
        return made

    return decorate


def tell_compiling(function: Any, name: str, what: str) -> None:
    """Say on standard error that `what` is about to be compiled, where nothing of it is kept yet.

    `function` is a compiled one of it, `name` its module's last name and its own.
    """
    from cairn.progress import say

    folder = getattr(getattr(function, "stats", None), "cache_path", None)
    if folder is None or not any(Path(folder).glob(f"{name}-*.nbi")):
        kept = "kept for later" if folder else f"at every start, since {user_cache()} cannot be written"
        say(f"compiling {what} for this machine, some 20 seconds; {kept}")


def user_cache() -> Path:
    """Folder for compiled code: `$XDG_CACHE_HOME/cairn/numba`, by default under `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cairn" / "numba"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
