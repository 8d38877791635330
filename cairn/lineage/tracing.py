"""One number's way back: every artifact, hash, parameter, code file and source it rests on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cairn.lineage.blessings import blessing_notes
from cairn.lineage.graph import Code, Graph, load_graph, load_numbers
from cairn.lineage.lock import Recorded
from cairn.lineage.revision import Revision, read_revision
from cairn.lineage.sources import Source, sources_of
from cairn.results.names import left_open, plain, resolve
from cairn.results.table import RESULTS_PATH, Result, benchmark_facts, read_json_object


@dataclass(frozen=True)
class Input:
    """One recorded input of an artifact: the path consumed, its hash then, the artifacts it is part of."""

    path: str
    md5: str | None
    artifacts: tuple[str, ...]


@dataclass(frozen=True)
class Artifact:
    """One output on the way back: what DVC recorded, what made it, from what."""

    path: str
    md5: str | None
    size: int | None
    files: int | None
    stage: str
    command: str
    code: tuple[Code, ...]
    inputs: tuple[Input, ...]
    sources: tuple[Source, ...]
    notes: tuple[str, ...]

    @property
    def step(self) -> str:
        """The step's name without the run it was for."""
        return self.stage.split("@")[0]


@dataclass(frozen=True)
class Trace:
    """The way back of one number. `artifacts` by path, from the number's own (`root`) down to the sources."""

    result: Result
    root: str
    table: Recorded | None
    artifacts: Mapping[str, Artifact]
    revision: Revision
    synthetic: bool
    notes: tuple[str, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every leaf, each once."""
        found = {(s.location, s.name): s for artifact in self.artifacts.values() for s in artifact.sources}
        return tuple(found[key] for key in sorted(found))

    @property
    def unverified(self) -> tuple[Source, ...]:
        """Leaves that nothing pins: a source without a checksum, or an artifact nothing is known about."""
        return tuple(source for source in self.sources if source.problem)

    def children(self, path: str) -> tuple[str, ...]:
        """The artifacts that `path` was made from, the one with the longest way back first."""
        return tuple(sorted(self._origins(path), key=lambda item: (-self._depths[item], item)))

    def walk(self) -> Iterator[tuple[int, str, bool]]:
        """Depth, path and whether it is the first time, in the order in which a tree is read."""
        seen: set[str] = set()
        stack = [(0, self.root)]
        while stack:
            depth, path = stack.pop()
            first = path not in seen
            seen.add(path)
            yield depth, path, first
            if first:
                stack.extend((depth + 1, child) for child in reversed(self.children(path)))

    @property
    def _depths(self) -> Mapping[str, int]:
        depths: dict[str, int] = {}
        # `artifacts` goes from the root down, so that its reverse meets every input before its consumer.
        for path in reversed(list(self.artifacts)):
            depths[path] = 1 + max((depths[origin] for origin in self._origins(path)), default=0)
        return depths

    def _origins(self, path: str) -> set[str]:
        return {origin for item in self.artifacts[path].inputs for origin in item.artifacts}

    def as_dict(self) -> dict[str, Any]:
        """Everything, for `--json`: lists and dictionaries; artifacts once each, referred to by path."""
        return {
            "number": str(self.result.name),
            "value": self.result.value,
            "unit": self.result.unit,
            "interval": [self.result.low, self.result.high],
            "n_queries": self.result.n_queries,
            "gallery_size": self.result.gallery_size,
            "synthetic": self.synthetic,
            "table": None if self.table is None else {"path": RESULTS_PATH, "md5": self.table.md5},
            "source_artifact": self.result.source_artifact,
            "source_md5": self.result.source_md5,
            "computed_from": list(self.result.computed_from),
            "commit": self.revision.commit,
            "root": self.root,
            "artifacts": {path: _artifact_dict(artifact) for path, artifact in self.artifacts.items()},
            "sources": [_plain(asdict(source)) for source in self.sources],
            "unverified_sources": [source.location for source in self.unverified],
            "notes": list(self.notes),
        }


def trace(root: Path, name: str) -> Trace:
    """Follow the number called `name` (fields may be left out, see `cairn.results.resolve`) to its sources.

    Reads `dvc.lock`, the results table, and small JSON files; neither DVC nor Dagster, and no big file.
    Raises LineageError where the number is unknown or ambiguous, or `dvc.lock` is missing or damaged.
    """
    graph = load_graph(root)
    numbers = load_numbers(root)
    result, notes = choose(name, numbers)
    found = trace_result(graph, result, read_revision(graph.root))
    return replace(found, notes=(*notes, *found.notes))


def choose(name: str, numbers: Sequence[Result]) -> tuple[Result, tuple[str, ...]]:
    """The number that `name` singles out, and a note where it left the stage open and the first one was taken.

    Errors as `resolve`.
    """
    known = [result.name for result in numbers]
    wanted = resolve(name, known)
    result = next(result for result in numbers if result.name == wanted)
    others = [other.stage for other in left_open(name, wanted, known)]
    if not others:
        return result, ()
    return result, (
        f"{plain(name)} names no stage: this is the first one ({wanted.stage}); there is also {', '.join(others)}",
    )


def trace_result(graph: Graph, result: Result, revision: Revision) -> Trace:
    """The trace of one row of the results table."""
    start = graph.artifact_of(result)
    artifacts = {path: _artifact(graph, path) for path in reversed(graph.way_back(result))}
    used = {edge.input.path for edge in graph.edges_of(result)}
    own = artifacts[start]
    artifacts[start] = replace(own, inputs=tuple(item for item in own.inputs if item.path in used))
    facts = benchmark_facts(graph.root, result.name.benchmark)
    table = graph.made_by(RESULTS_PATH)
    notes = [*revision.notes, *_strings(facts.get("notes"))]
    if revision.shallow:
        notes.append(
            "the git clone is shallow: an older commit than the one named may hold this dvc.lock "
            "(`git fetch --unshallow`)"
        )
    recorded = graph.outputs[start].md5
    if result.source_artifact == start and recorded != result.source_md5:
        notes.append(
            f"the results table was made from another version of {start} "
            f"({result.source_md5[:12]}, dvc.lock has {(recorded or 'none')[:12]}): `cairn run`"
        )
    for artifact in artifacts.values():
        notes.extend(_stale_code_notes(artifact))
    return Trace(
        result=result,
        root=start,
        table=graph.outputs[table[0]] if table else None,
        artifacts=artifacts,
        revision=revision,
        synthetic=facts.get("synthetic") is True,
        notes=tuple(dict.fromkeys(notes)),
    )


def _artifact(graph: Graph, path: str) -> Artifact:
    stage, recorded = graph.producer[path], graph.outputs[path]
    inputs = [
        Input(edge.input.path, edge.input.md5, edge.made_by) for edge in graph.edges(stage) if edge.made_by
    ]
    return Artifact(
        path=path,
        md5=recorded.md5,
        size=recorded.size,
        files=recorded.files,
        stage=stage.name,
        command=stage.command,
        code=graph.code(stage),
        inputs=tuple(inputs),
        sources=sources_of(graph, stage, path),
        notes=(*_own_notes(graph.root, path), *blessing_notes(graph.root, stage.name, recorded.md5)),
    )


def _own_notes(root: Path, path: str) -> tuple[str, ...]:
    """What an artifact says about itself: `note` or `notes` in the JSON file that bears its name."""
    record = read_json_object(root / path / f"{path.rsplit('/', 1)[-1]}.json", limit=1 << 20) or {}
    return (*_strings(record.get("note")), *_strings(record.get("notes")))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _stale_code_notes(artifact: Artifact) -> Sequence[str]:
    notes = []
    for code in artifact.code:
        if not code.present:
            notes.append(f"{code.path} is not here: the modules behind {artifact.path} cannot be listed")
        elif not code.current:
            notes.append(f"the code of {artifact.step} changed since {artifact.path} was made: `cairn run`")
    return notes


def _artifact_dict(artifact: Artifact) -> dict[str, Any]:
    record = _plain(asdict(artifact))
    record["step"] = artifact.step
    del record["path"]
    return record


def _plain(value: Any) -> Any:
    """Tuples as lists and mappings as dictionaries, so that what is returned equals what JSON gives back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
