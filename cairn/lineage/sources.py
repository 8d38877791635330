"""The leaves of every tree: what was downloaded, drawn or brought by the user, each with its checksum."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn.lineage.graph import ARTIFACTS, Graph
from cairn.lineage.lock import Recorded, Stage

SOURCES_FILE = "sources.json"
# What `cairn fetch` remembers in the download folder: a file's date there is when it was retrieved.
FETCHED_FILE = "fetched.json"
UNPINNED, UNVERIFIED, VERIFIED = "unpinned", "unverified", "pinned"

_DIGEST = {"sha256": re.compile(r"[0-9a-f]{64}"), "md5": re.compile(r"[0-9a-f]{32}(\.dir)?")}


@dataclass(frozen=True)
class Source:
    """One thing that no step of the graph made.

    `location` is a URL, or a path as it was given; `path` is where a file with a URL was put. `checksums`:
    algorithm → hexadecimal digest (a folder's md5 ends in `.dir`). `recorded_in` names the file that vouches for
    it: `dvc.lock`, or a `sources.json`. `retrieved`: the day, where it is known on this machine.
    `problem` says why nobody's checksum vouches for it; None where one does. `status`: `pinned`, `unverified` (a
    checksum that was only remembered when it was first fetched) or `unpinned` (none at all).
    """

    name: str
    location: str
    checksums: Mapping[str, str]
    recorded_in: str
    size: int | None = None
    files: int | None = None
    licence: str | None = None
    retrieved: str | None = None
    synthetic: bool = False
    note: str | None = None
    problem: str | None = None
    path: str | None = None
    checked_by: str | None = None
    status: str = VERIFIED


def sources_of(graph: Graph, stage: Stage, artifact: str) -> tuple[Source, ...]:
    """The sources that `stage` read to make `artifact`, in order of their names.

    They are its recorded inputs that no stage makes (the user's files) and what the artifact's `sources.json`
    lists; a path in both is one source with both checksums. A stage that reads nothing and lists nothing gets
    one entry that says so: a tree must not end silently.
    """
    found: dict[str, Source] = {}
    edges = graph.edges(stage)
    for edge in edges:
        if not edge.made_by:
            found[edge.input.path] = _external(edge.input)
    file = f"{artifact}/{SOURCES_FILE}"
    listed = graph.json_file(graph.root / file)
    for number, entry in enumerate(_entries(listed)):
        source = _declared(entry, file, number)
        place = _plain(source.location)
        before = found.get(place)
        found[place] = source if before is None else _joined(before, source)
    if not found and not any(edge.made_by for edge in edges):
        missing = not (graph.root / artifact).exists()
        found[""] = Source(
            name=artifact,
            location=artifact,
            checksums={},
            recorded_in="dvc.lock",
            problem="its files are not here, so its sources cannot be read (`dvc pull`)"
            if missing
            else f"nothing says what it was made from: no input in dvc.lock and no {SOURCES_FILE}",
            status=UNPINNED,
        )
    dated = [_dated(graph, source) for source in found.values()]
    return tuple(sorted(dated, key=lambda source: (source.name, source.location)))


def local_file(root: Path, artifact: str, source: Source) -> Path | None:
    """The file in which a source lies on this machine: as its path says, or by its name in the artifact."""
    places = [] if source.path is None else [source.path]
    places += [source.name, source.location.rsplit("/", 1)[-1]] if "://" in source.location else []
    if "://" not in source.location:
        places += [source.location, source.name]
    # The copy inside the artifact is what the graph used; a relative path may also start at the project.
    choices = [base / place for place in places for base in (root / artifact, root)]
    return next((choice for choice in choices if choice.is_file()), None)


def _plain(location: str) -> str:
    """A path in the form of `dvc.lock`: what a user wrote as `./photos/` is recorded there as `photos`."""
    return location if "://" in location else posixpath.normpath(location)


def _external(recorded: Recorded) -> Source:
    problem = None if recorded.md5 else "dvc.lock records no checksum for it"
    if recorded.path.startswith(ARTIFACTS):
        problem = "dvc.lock records no stage that made it"
    return Source(
        name=recorded.path.rsplit("/", 1)[-1],
        location=recorded.path,
        checksums={"md5": recorded.md5} if recorded.md5 else {},
        recorded_in="dvc.lock",
        size=recorded.size,
        files=recorded.files,
        problem=problem,
        status=UNPINNED if problem else VERIFIED,
    )


def _dated(graph: Graph, source: Source) -> Source:
    """`source` with the day it was retrieved, from what `cairn fetch` remembers; a tracked file holds no clock."""
    if source.retrieved or source.path is None or "://" not in source.location:
        return source
    folder = (graph.root / source.path).parent
    while folder != graph.root and folder != folder.parent:
        record = graph.json_file(folder / FETCHED_FILE)
        for entry in (record or {}).values():
            if (
                isinstance(entry, dict)
                and entry.get("url") == source.location
                and entry.get("sha256") == source.checksums.get("sha256")
                and isinstance(entry.get("mtime_ns"), int)
            ):
                try:
                    day = datetime.fromtimestamp(entry["mtime_ns"] / 1e9, UTC).date().isoformat()
                except (ValueError, OverflowError, OSError):
                    return source
                return replace(source, retrieved=day)
        folder = folder.parent
    return source


def _entries(listed: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    entries = (listed or {}).get("sources")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _declared(entry: Mapping[str, Any], file: str, number: int) -> Source:
    location = _text(entry, "url") or _text(entry, "path") or _text(entry, "name") or f"source {number}"
    checksums = {name: str(entry[name]) for name in _DIGEST if entry.get(name)}
    wrong = [name for name, value in checksums.items() if not _DIGEST[name].fullmatch(value)]
    problem = None
    if wrong:
        problem = f"{checksums[wrong[0]][:40]!r} is not a {wrong[0]} digest"
    elif not checksums:
        problem = f"{file} gives no checksum for it"
    status = UNPINNED if problem else VERIFIED
    checked_by = _text(entry, "checked_by")
    if problem is None and entry.get("verified") is False:
        status = UNVERIFIED
        problem = f"no checksum of its authors was compared (checked by: {checked_by or 'nobody'})"
    size, files = entry.get("size"), entry.get("files")
    return Source(
        name=_text(entry, "name") or location.rstrip("/").rsplit("/", 1)[-1],
        location=location,
        checksums={name: value for name, value in checksums.items() if name not in wrong},
        recorded_in=file,
        size=size if isinstance(size, int) else None,
        files=files if isinstance(files, int) else None,
        licence=_text(entry, "licence"),
        retrieved=_text(entry, "retrieved"),
        synthetic=entry.get("synthetic") is True,
        note=_text(entry, "note"),
        problem=problem,
        path=_text(entry, "path"),
        checked_by=checked_by,
        status=status,
    )


def _joined(recorded: Source, declared: Source) -> Source:
    """One source that `dvc.lock` hashed and `sources.json` describes."""
    checksums = {**declared.checksums, **recorded.checksums}
    return Source(
        name=declared.name,
        location=recorded.location,
        checksums=checksums,
        recorded_in=f"{recorded.recorded_in}, {declared.recorded_in}",
        size=recorded.size if recorded.size is not None else declared.size,
        files=recorded.files if recorded.files is not None else declared.files,
        licence=declared.licence,
        retrieved=declared.retrieved,
        synthetic=declared.synthetic,
        note=declared.note,
        problem=None if checksums else declared.problem,
        path=declared.path,
        checked_by=declared.checked_by,
        status=VERIFIED if checksums else declared.status,
    )


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return str(value) if value not in (None, "") else None
