"""Reads `dvc.lock`: what every stage consumed and made, as DVC recorded it, without importing DVC."""

import functools
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cairn.errors import LineageError
from cairn.results.names import printable

LOCK = "dvc.lock"
LARGEST_LOCK = 256 << 20
LARGEST_VALUES = 5_000_000
SCHEMA = "2.0"
STAGE_KEYS = ("cmd", "deps", "params", "outs")
"""What DVC writes of a stage; it refuses any other key."""

_HASH = re.compile(r"[0-9a-f]{32}(\.dir)?")


@dataclass(frozen=True)
class Recorded:
    """A path with what DVC recorded for it: md5 (a directory's ends in `.dir`), bytes, number of files.

    `md5` is None where DVC recorded none, or another kind of hash (a URL's ETag). `hash` is the kind that DVC
    names: `md5`; without it DVC takes the md5 for one over text with other line ends. `size` and `files` are None
    where they are absent or no whole numbers.
    """

    path: str
    md5: str | None
    size: int | None = None
    files: int | None = None
    hash: str | None = None

    @property
    def is_directory(self) -> bool:
        return self.md5 is not None and self.md5.endswith(".dir")


@dataclass(frozen=True)
class Stage:
    """One entry of `dvc.lock`. `parameters`: file → the values that DVC recorded from it."""

    name: str
    command: str
    inputs: tuple[Recorded, ...]
    outputs: tuple[Recorded, ...]
    parameters: Mapping[str, Mapping[str, Any]]


def read_lock(root: Path) -> dict[str, Stage]:
    """The stages of `root/dvc.lock` by name, in the file's order.

    Raises LineageError, one line that names the entry, where the file is missing, is no YAML, has another
    schema or structure, or names an output outside the project: it is read as a file from outside.
    """
    path = Path(root) / LOCK
    if not path.is_file():
        raise LineageError(f"{path} does not exist: nothing was run here yet (`cairn run`)")
    if path.stat().st_size > LARGEST_LOCK:
        raise LineageError(f"{path} is larger than {LARGEST_LOCK >> 20} MiB: not a lock file of DVC")
    return parse_lock(path.read_bytes(), path)


def parse_lock(content: bytes, path: Path) -> dict[str, Stage]:
    """The stages in the bytes of a lock file; `path` is what errors call it. Errors as `read_lock`."""
    document = parse_yaml(content, path)
    stages = document.get("stages") if isinstance(document, dict) else None
    if not isinstance(stages, dict):
        raise LineageError(
            f"{path}: no mapping `stages`; a lock file of DVC 3 has schema '{SCHEMA}' and stages"
        )
    if document.get("schema") != SCHEMA:
        said = printable(repr(document.get("schema")), 40)
        raise LineageError(f"{path}: schema is {said}, expected '{SCHEMA}'; `git checkout {LOCK}`")
    return {str(name): _stage(path, str(name), entry) for name, entry in stages.items()}


def parse_yaml(content: bytes, path: Path) -> Any:
    """The values in a YAML file as DVC reads them (YAML 1.2); LineageError, one line, where it is none."""
    import yaml

    try:
        document = yaml.load(content, Loader=_loader())  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise LineageError(f"{path}{where}: not valid YAML ({problem}); `git checkout {LOCK}`") from None
    except RecursionError:
        raise LineageError(f"{path}: nested too deeply to be a lock file of DVC") from None
    if _values(document, {}, 0) > LARGEST_VALUES:
        raise LineageError(f"{path}: its aliases unfold to more than {LARGEST_VALUES:,} values")
    return document


@functools.cache
def _loader() -> Any:
    """PyYAML's safe loader with the scalars of YAML 1.2, which DVC writes.

    In YAML 1.1 `1e-05` would be a text, `off` a truth value and `1:30` the number 90: the recorded parameters
    would not be those that ran. A key that stands twice is refused, as DVC refuses it.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def construct_mapping(self: Any, node: Any, deep: bool = False) -> Any:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(written)) < len(written):
            twice = next(key for key in written if written.count(key) > 1)
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {printable(twice, 40)} stands twice", node.start_mark
            )
        return base.construct_mapping(self, node, deep)

    loader = type("Loader", (base,), {"yaml_implicit_resolvers": {}, "construct_mapping": construct_mapping})
    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
        ("merge", r"<<", "<"),
    ):
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), list(first))
    return loader


def _values(node: Any, known: dict[int, int], depth: int) -> int:
    """How many values `node` has with its aliases unfolded; more than allowed where it contains itself."""
    if not isinstance(node, dict | list):
        return 1
    if depth > 200:
        return LARGEST_VALUES + 1
    if id(node) not in known:
        known[id(node)] = LARGEST_VALUES + 1  # what a node that contains itself would see
        items = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_values(item, known, depth + 1) for item in items)
    return known[id(node)]


def _stage(path: Path, name: str, entry: Any) -> Stage:
    where = f"{path}, stage {printable(name)}"
    if not isinstance(entry, dict):
        raise LineageError(f"{where}: expected a mapping with cmd, deps, params and outs")
    unknown = next((str(key) for key in entry if key not in STAGE_KEYS), None)
    if unknown is not None:
        # Taken for nothing, a damaged `deps` would cut what the stage was made from out of the lineage.
        raise LineageError(f"{where}: {printable(unknown)} is none of {', '.join(STAGE_KEYS)}")
    command = entry.get("cmd", "")
    parameters = entry.get("params")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise LineageError(f"{where}: params is not a mapping of files to values")
    return Stage(
        name=name,
        command=" && ".join(map(str, command)) if isinstance(command, list) else str(command),
        inputs=tuple(_recorded(where, "deps", item) for item in _listed(where, "deps", entry)),
        outputs=tuple(_output(where, item) for item in _listed(where, "outs", entry)),
        parameters={
            _inside(where, "params", str(file)): dict(values) if isinstance(values, dict) else {}
            for file, values in parameters.items()
        },
    )


def _listed(where: str, key: str, entry: Mapping[str, Any]) -> list[Any]:
    items = entry.get(key)
    items = [] if items is None else items
    if not isinstance(items, list):
        raise LineageError(f"{where}: {key} is not a list")
    return items


def _recorded(where: str, key: str, item: Any) -> Recorded:
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        raise LineageError(f"{where}: an entry of {key} has no path")
    path = _normal(where, key, item["path"])
    md5 = item.get("md5")
    if md5 is not None and (not isinstance(md5, str) or not _HASH.fullmatch(md5)):
        raise LineageError(
            f"{where}: md5 {printable(str(md5), 50)} of {printable(path)} is not a hash of DVC"
        )
    kind = item.get("hash")
    return Recorded(
        path, md5, _whole(item.get("size")), _whole(item.get("nfiles")), None if kind is None else str(kind)
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _output(where: str, item: Any) -> Recorded:
    recorded = _recorded(where, "outs", item)
    _inside(where, "outs", recorded.path)
    return recorded


def _inside(where: str, key: str, path: str) -> str:
    if posixpath.isabs(path) or ".." in PurePosixPath(path).parts:
        raise LineageError(f"{where}: {key} names {printable(path)}, which lies outside the project")
    return path


def _normal(where: str, key: str, path: str) -> str:
    # The user's own files may lie above the project (`../shared/images`), but DVC writes paths in normal
    # form: anything else would let one file go by two names.
    plain = path.rstrip("/")
    if not plain or "\0" in plain or posixpath.normpath(plain) != plain or plain == ".":
        raise LineageError(f"{where}: {key} names {printable(path)}, which is not a path as DVC writes it")
    return plain
