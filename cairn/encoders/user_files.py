"""Which files of a user's project a module of theirs consists of, found by reading its imports.

Imports anywhere in a file count; modules whose names are put together at run time are not found.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OURS = ("cairn", "assets", "pipelines")
"""Packages of the project that are not the user's own."""

_CAIRN = Path(__file__).parents[1]


@dataclass(frozen=True)
class UserCode:
    """`files` relative to the root, sorted; `imports`: modules of `cairn` that they import, dotted and sorted."""

    files: tuple[str, ...]
    imports: tuple[str, ...]


def user_code(module: str, root: Path) -> UserCode:
    """The files below `root` of `module` and, recursively, of what it imports from there.

    A module inside a package stands for all modules of its outermost package. Nothing where `module` lies
    elsewhere (an installed package). A file that is not valid Python counts, without imports.
    """
    root = Path(root)
    files: set[str] = set()
    imports: set[str] = set()
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        dotted = waiting.pop()
        top = dotted.partition(".")[0]
        if top == "cairn":
            imports.update(_cairn_module(dotted))
        if top in seen or top in OURS:
            continue
        seen.add(top)
        for path in _files_of(top, root):
            files.add(path.relative_to(root).as_posix())
            waiting.extend(_imported(path))
    return UserCode(tuple(sorted(files)), tuple(sorted(imports)))


def _files_of(top: str, root: Path) -> list[Path]:
    """A package comes before a module, and both before a folder without `__init__.py`, as when importing."""
    package, single = root / top, root / f"{top}.py"
    if not (package / "__init__.py").is_file():
        if single.is_file():
            return [single]
        if not package.is_dir():
            return []
    found = sorted(package.rglob("*.py"))
    return [path for path in found if path.is_file() and not _installed(path.relative_to(root))]


def _installed(path: Path) -> bool:
    return any(part == "site-packages" or part.startswith(".") for part in path.parts)


def _imported(path: Path) -> Iterator[str]:
    """Dotted names a file imports; relative imports stay inside its package, which is there as a whole."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _cairn_module(dotted: str) -> list[str]:
    """`dotted` where it names a module and not something inside one."""
    base = _CAIRN.parent.joinpath(*dotted.split("."))
    return [dotted] if base.with_suffix(".py").is_file() or (base / "__init__.py").is_file() else []
