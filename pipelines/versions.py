"""The versions that DVC recorded, in the form Dagster compares: data versions and those of the inputs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.files import dvc_digest, dvc_directory_digest, stamp
from pipelines.bridge import locked_hashes
from pipelines.code_stage import code_version
from pipelines.generate import recorded_parameters
from pipelines.graph import Node

UNKNOWN = "unknown"


def data_version(node: Node, entry: Mapping[str, Any]) -> str:
    """The hash of the node's output in its `dvc.lock` entry."""
    return locked_hashes(entry, "outs").get(node.output, UNKNOWN)


def locked_code_version(entry: Mapping[str, Any]) -> str:
    """The code version (digest and parameters) under which the output was made."""
    return code_version(recorded_parameters(entry))


def input_versions(
    root: Path, node: Node, nodes: Mapping[str, Node], entry: Mapping[str, Any]
) -> dict[str, str]:
    """Upstream stage → hash of its output at the time this stage ran, as `dvc.lock` recorded it."""
    recorded = locked_hashes(entry, "deps")
    versions: dict[str, str] = {}
    for name, stages in node.upstream.items():
        path = node.inputs[name]
        if name == node.step.fan_in:
            parts = _parts(root, path, recorded.get(path, ""))
            for stage in stages:
                relative = nodes[stage].output.removeprefix(f"{path}/")
                versions[stage] = parts.get(relative, UNKNOWN)
        else:
            versions[stages[0]] = recorded.get(path, UNKNOWN)
    return versions


def external_versions(node: Node, entry: Mapping[str, Any]) -> dict[str, str]:
    """The user's own paths → hash that `dvc.lock` recorded."""
    recorded = locked_hashes(entry, "deps")
    return {path: recorded.get(path, UNKNOWN) for path in node.externals.values()}


def fingerprint(entry: Mapping[str, Any]) -> str:
    """Identifies a `dvc.lock` entry: outputs, inputs, parameters and code."""
    text = json.dumps([entry.get("deps"), entry.get("outs"), entry.get("params")], sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _parts(root: Path, path: str, recorded: str) -> dict[str, str]:
    """Second-level folders (`benchmark/system`) of a directory that had the hash `recorded` → their own hash.

    The list of files comes from DVC's cache; where it is not there, from the folder itself if it still has
    that hash.
    """
    listing = root / ".dvc" / "cache" / "files" / "md5" / recorded[:2] / recorded[2:]
    if recorded.endswith(".dir") and listing.is_file():
        files = json.loads(listing.read_text("utf-8"))
        groups: dict[str, list[dict[str, str]]] = {}
        for file in files:
            group, rest = _split(file["relpath"])
            groups.setdefault(group, []).append({"md5": file["md5"], "relpath": rest})
        return {group: dvc_directory_digest(entries) for group, entries in groups.items()}
    folder = root / path
    if recorded and folder.is_dir() and dvc_digest(folder) == recorded:
        pairs = [p for p in folder.glob("*/*") if p.is_dir()]
        return {p.relative_to(folder).as_posix(): dvc_digest(p) for p in pairs}
    return {}


def _split(relative: str) -> tuple[str, str]:
    parts = relative.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


class Externals:
    """Hashes of the user's own paths, computed again only where the stamp of a file changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[str, str]] = {}

    def version(self, path: Path) -> str:
        """DVC's hash of a file or folder; `missing` where it is not there."""
        if not path.exists():
            return "missing"
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        stats = [(str(p), stamp(p)) for p in files]
        signature = hashlib.md5(repr(stats).encode(), usedforsecurity=False).hexdigest()
        known = self._known.get(path)
        if known is None or known[0] != signature:
            known = (signature, dvc_digest(path))
            self._known[path] = known
        return known[1]
