"""Code as an artifact: the digest of a step's import closure, over syntax trees without comments or docstrings."""

import ast
import contextlib
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cairn.cache import Cache, entry_key
from cairn.errors import ArtifactError, CairnError
from cairn.files import file_digest, stamp

PACKAGES = ("assets", "cairn")
REGISTRY = "registry.yaml"
# Packages that show, read settings or move files: another version of them leaves every value as it is, so they
# are not recorded with an artifact.
NOT_COMPUTING = {
    "PyYAML",
    "filelock",
    "huggingface_hub",
    "huggingface-hub",
    "pydantic",
    "requests",
    "ray",
    "rich",
    "threadpoolctl",
    "typer",
    "urllib3",
}


class CodeGraph:
    """Who imports whom under `root`, read once; imports inside functions count, names looked up at run time do not.

    The import graph is grimp's; what a registry picks by name is passed in by the caller, so that a new entry
    leaves everything that does not use it alone.
    """

    def __init__(self, root: Path) -> None:
        import grimp

        self.root, self._cache = root, Cache.of(root)
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        try:
            self._graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
        except SyntaxError as error:
            raise ArtifactError(
                f"{error.filename} line {error.lineno}: not valid Python: {error.msg}"
            ) from None
        except grimp.exceptions.SourceSyntaxError as error:
            raise ArtifactError(f"{error}: not valid Python; mend it and run again") from None
        self._internal = {name for name in self._graph.modules if name.split(".")[0] in PACKAGES}

    @functools.cached_property
    def distributions(self) -> Mapping[str, list[str]]:
        """Top-level import name → distributions that provide it."""
        from importlib.metadata import packages_distributions

        return packages_distributions()

    def closure(self, roots: Iterable[str]) -> tuple[set[str], set[str]]:
        """Modules of the project reached from `roots` by imports, and the outside packages they import."""
        reached: set[str] = set()
        outside: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            if name not in self._internal:
                outside.add(name.split(".")[0])
                continue
            reached.add(name)
            waiting.extend(self._graph.find_modules_directly_imported_by(name))
            if "." in name:  # importing a module runs the packages around it
                waiting.append(name.rsplit(".", 1)[0])
        return reached, {name for name in outside if name not in sys.stdlib_module_names}

    def path(self, module: str) -> Path:
        """The file of a module of the project."""
        base = self.root.joinpath(*module.split("."))
        package = base / "__init__.py"
        return package if package.is_file() else base.with_suffix(".py")

    def describe(
        self, roots: Iterable[str], picked: Mapping[str, Any], files: Iterable[str] = ()
    ) -> dict[str, Any]:
        """`digest`, `modules`, `data` and `packages` of the code reached from `roots`.

        `picked` are registry entries that belong to this code; `files` are the user's own files, relative to
        the project (Python by syntax tree, others by content).
        """
        reached, outside = self.closure(roots)
        modules = {self.path(name).relative_to(self.root).as_posix(): "" for name in reached}
        data: dict[str, str] = {}
        for relative in sorted(modules):
            digest, named = module_digest(self.root / relative, self._cache)
            modules[relative] = digest
            for file in named:
                data[file.relative_to(self.root).as_posix()] = _content(file)
        for relative in files:
            modules[relative] = user_file_digest(self.root / relative)
        text = json.dumps([sorted(modules.items()), sorted(data.items()), picked], sort_keys=True)
        return {
            "digest": hashlib.sha256(text.encode()).hexdigest(),
            "modules": dict(sorted(modules.items())),
            "data": dict(sorted(data.items())),
            "picked": dict(picked),
            "packages": self.versions(outside),
        }

    def versions(self, outside: Iterable[str]) -> dict[str, str]:
        """Installed version of each outside package that is imported (absent ones are left out)."""
        from importlib.metadata import version

        names = {distribution for package in outside for distribution in self.distributions.get(package, [])}
        names -= NOT_COMPUTING
        return {name: version(name) for name in sorted(names)}


def module_digest(path: Path, cache: Cache | None = None) -> tuple[str, list[Path]]:
    """SHA-256 of a module's syntax tree, and the data files beside it that it names.

    Comments, docstrings and formatting do not count. A string constant that is the name of a file next to the
    module counts as reading that file; registries do not, since only the entry that is picked matters. With a `cache`
    the tree of content that was seen before is not walked again, which is most of what the code stage does.
    """
    path = Path(path)
    digest, names = _module_digest(path, stamp(path), cache)
    return digest, [path.parent / name for name in names if (path.parent / name).is_file()]


@functools.lru_cache(maxsize=4096)
def _module_digest(path: Path, _stamp: tuple[int, ...], cache: Cache | None) -> tuple[str, list[str]]:
    """The digest, and the names of files that the module may read: whether they are there is no part of it."""
    content, key = path.read_bytes(), ""
    if cache is not None:
        key = entry_key(tree=hashlib.sha256(content).hexdigest(), method=METHOD)
        if (kept := cache.get(key)) is not None:
            with contextlib.suppress(ValueError, TypeError):
                digest, names = json.loads(kept)
                if re.fullmatch("[0-9a-f]{64}", digest) and all(map(_plain_name, names)):
                    return digest, names
    digest, strings = _tree_digest(content, str(path))
    names = [name for name in sorted(strings) if name != REGISTRY and _plain_name(name)]
    if cache is not None:
        cache.put(key, json.dumps([digest, names]).encode())
    return digest, names


METHOD = [hashlib.sha256(Path(__file__).read_bytes()).hexdigest(), sys.version_info[:2]]
"""What else decides a digest: this module, read when it is imported, and the parser."""


def digest_of(path: str, content: bytes) -> str:
    """The digest of a file's content, as digest files list it: Python by its syntax tree, anything else by its bytes.

    For content that lies in git rather than on the disk. Raises ArtifactError for what is no Python.
    """
    return _tree_digest(content, path)[0] if path.endswith(".py") else hashlib.sha256(content).hexdigest()


def _tree_digest(content: bytes, name: str) -> tuple[str, set[str]]:
    """SHA-256 of a syntax tree, and the string constants in it."""
    try:
        tree = ast.parse(content, filename=name)
    except SyntaxError as error:
        raise ArtifactError(f"{name} line {error.lineno}: not valid Python: {error.msg}") from None
    strings: set[str] = set()
    text = json.dumps(_canonical(tree, strings), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest(), strings


def _plain_name(name: str) -> bool:
    return bool(re.fullmatch(r"[\w.-]+\.\w+", name)) and not name.endswith(".py")


def _canonical(node: Any, strings: set[str]) -> Any:
    """The tree as nested lists, the same for every Python from 3.11 on: empty fields are left out."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name in ("type_comment", "kind") or value is None or value == []:
                continue
            if name == "body" and isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ):
                value = _without_docstring(value)
            fields.append([name, _canonical(value, strings)])
        return [type(node).__name__, fields]
    if isinstance(node, list):
        return [_canonical(item, strings) for item in node]
    if isinstance(node, str):
        strings.add(node)
    return [type(node).__name__, repr(node)]


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return body[1:]
    return body


def _content(path: Path) -> str:
    return _content_of(path, stamp(path))


@functools.lru_cache(maxsize=4096)
def _content_of(path: Path, _stamp: tuple[int, ...]) -> str:
    """Read block by block, and once for all systems: borrowed local descriptors are larger than the memory."""
    return file_digest(path)


def user_file_digest(path: Path) -> str:
    """A user's own file: Python by its syntax tree, anything else by its bytes."""
    if not path.is_file():
        raise CairnError(f"{path} does not exist, but a system in params.yaml names it")
    return module_digest(path)[0] if path.suffix == ".py" else _content(path)


def unchanged(root: Path, recorded: Mapping[str, Any]) -> list[str]:
    """Files whose code or data is no longer what `recorded` (a digest file) lists."""
    changed = []
    for relative, digest in recorded["modules"].items():
        path = root / relative
        if not path.is_file() or user_file_digest(path) != digest:
            changed.append(relative)
    for relative, digest in recorded["data"].items():
        path = root / relative
        if not path.is_file() or _content(path) != digest:
            changed.append(relative)
    return changed
