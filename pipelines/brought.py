"""The user's own files that `params.yaml` names: the one form of their paths, and which are missing."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import ParameterError
from cairn.validation import shown
from pipelines.project import PARAMETERS

if TYPE_CHECKING:
    from cairn.parameters import Parameters
    from pipelines.graph import Node


def plain_path(path: str, key: str) -> str:
    """`path` as DVC and `dvc.lock` write it: `./models//mine.ts` is `models/mine.ts`, `photos/` is `photos`.

    It is relative to the project and may start above it (`../shared/photos`), or absolute. ParameterError, naming
    `key`, for a path that goes up again behind a folder's name (through a link, that is another place for DVC than
    for what reads the file), and for the project itself or a folder around it, whose content every run changes.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    absolute = path.startswith("/")
    climbed = 0
    while not absolute and climbed < len(parts) and parts[climbed] == "..":
        climbed += 1
    where = f"{PARAMETERS}: {key} = {shown(path)}"
    if ".." in parts[climbed:]:
        raise ParameterError(
            f"{where}: `..` may stand at the beginning of a relative path only; write it without"
        )
    if len(parts) == climbed:
        raise ParameterError(f"{where}: a file, or a folder that does not hold the project, is expected")
    return "/" * absolute + "/".join(parts)


def reranker_files(parameters: "Parameters") -> dict[str, str]:
    """Weights and descriptors that second stages read: path → the key below which it is named.

    They count as code: the `code` stage depends on them all.
    """
    from cairn.rerank import local_files, reranker_code

    found: dict[str, str] = {}
    for name, system in parameters.systems.items():
        key = f"systems.{name}.rerank.{system['rerank']['method']}"
        for path in (*local_files(system["local"]), *reranker_code(system["rerank"]).files):
            found.setdefault(plain_path(path, key), key)
    return found


def missing(root: Path, node: "Node") -> list[str]:
    """One line for each of the user's own paths of `node` at which there is nothing."""
    return [
        _missing(f"{'systems' if node.system else 'benchmarks'}.{node.system or node.benchmark}.{name}", path)
        for name, path in node.externals.items()
        if not (root / path).exists()
    ]


def check_brought(root: Path, parameters: "Parameters", nodes: Iterable["Node"]) -> None:
    """ParameterError where a file is missing that a second stage, or one of `nodes`, would read."""
    for path, key in reranker_files(parameters).items():
        if not (root / path).is_file():
            raise ParameterError(_missing(key, path))
    for node in nodes:
        for line in missing(root, node):
            raise ParameterError(line)


def with_upstream(nodes: Mapping[str, "Node"], stages: Iterable[str]) -> list["Node"]:
    """The nodes of `stages` and all that they are made from, upstream first."""
    reached = set(stages)
    for stage, node in reversed(list(nodes.items())):  # downstream first, so one pass reaches everything
        if stage in reached:
            reached.update(up for ups in node.upstream.values() for up in ups)
    return [node for stage, node in nodes.items() if stage in reached]


def _missing(key: str, path: str) -> str:
    return f"{PARAMETERS}: {key} = {shown(path)}: no such file or folder"
