"""The way back of every number as one small document: each artifact, code file and source stands in it once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cairn.lineage.graph import Code, load_graph
from cairn.lineage.revision import Revision
from cairn.lineage.sources import Source
from cairn.lineage.tracing import Artifact, Trace, trace_result
from cairn.results.show import format_interval, format_value
from cairn.results.table import Result

# A page says what `dvc.lock` says, wherever it is made: in a clone, or beside uncommitted work.
ANYWHERE = Revision(None, ())


class Index:
    """Values, each once, by the place at which it was first seen."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, key: Any, value: Any) -> int:
        """The place of `value`, which `key` tells from all others."""
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.values)
            self.values.append(value)
        return found


Way = tuple[str, tuple[str, ...]]
"""What numbers with one way back share: their scores artifact, and those of its inputs that they rest on."""


def way_of(result: Result) -> Way:
    """Which of the ways of `follow_all` is that of `result`."""
    return result.source_artifact, result.computed_from


def follow_all(root: Path, numbers: Iterable[Result]) -> dict[Way, Trace]:
    """The way back of every number, once for all that share it.

    Raises LineageError where a number cannot be followed: a page shows no number without its way back.
    """
    graph = load_graph(root)
    made: dict[Way, Trace] = {}
    for result in numbers:
        if way_of(result) not in made:
            made[way_of(result)] = trace_result(graph, result, ANYWHERE)
    return made


def lineage_document(traces: Mapping[Way, Trace]) -> dict[str, Any]:
    """All ways back for the page's script, as lists that refer to one another by place.

    `artifacts`: path, md5, size, files, stage, command, `code`, `inputs` (path, md5, places of artifacts),
    `sources`, notes, all sorted by path. `code`: path, digest, parameters, `modules` and `data` (places of
    files), packages, whether it is the code of now. `files`: path and SHA-256. `sources`: what a source says of
    itself. `ways`, in the order of `traces`: the place of the number's own artifact, the paths of those of its
    inputs that the number rests on, and the notes on its way.
    """
    artifacts: dict[str, Artifact] = {}
    for trace in traces.values():
        for path, artifact in trace.artifacts.items():
            known = artifacts.get(path, artifact)
            # A number's own artifact comes with the inputs of that number alone.
            inputs = {item.path: item for item in (*known.inputs, *artifact.inputs)}
            artifacts[path] = replace(artifact, inputs=tuple(inputs[path] for path in sorted(inputs)))
    order = {path: place for place, path in enumerate(sorted(artifacts))}
    codes, files, sources = Index(), Index(), Index()
    listed = [_artifact(artifacts[path], order, codes, files, sources) for path in order]
    return {
        "artifacts": listed,
        "code": codes.values,
        "files": files.values,
        "sources": sources.values,
        "ways": [
            {
                "artifact": order[trace.root],
                "inputs": [item.path for item in trace.artifacts[trace.root].inputs],
                "notes": list(trace.notes),
            }
            for trace in traces.values()
        ],
    }


def _artifact(
    artifact: Artifact, order: Mapping[str, int], codes: Index, files: Index, sources: Index
) -> dict[str, Any]:
    return {
        "path": artifact.path,
        "md5": artifact.md5,
        "size": artifact.size,
        "files": artifact.files,
        "stage": artifact.stage,
        "command": artifact.command,
        "code": [codes.place(code.path, _code(code, files)) for code in artifact.code],
        "inputs": [
            [item.path, item.md5, sorted(order[path] for path in item.artifacts)] for item in artifact.inputs
        ],
        "sources": [_source(source, sources) for source in artifact.sources],
        "notes": list(artifact.notes),
    }


def _code(code: Code, files: Index) -> dict[str, Any]:
    return {
        "path": code.path,
        "digest": code.digest,
        "parameters": code.parameters,
        "modules": _files(code.modules, files),
        "data": _files(code.data, files),
        "packages": dict(code.packages),
        "current": code.current,
    }


def _files(recorded: Mapping[str, str], files: Index) -> list[int]:
    return [files.place((path, sha), [path, sha]) for path, sha in sorted(recorded.items())]


def _source(source: Source, sources: Index) -> int:
    facts = {key: value for key, value in asdict(source).items() if value not in (None, "", False)}
    facts["checksums"] = dict(source.checksums)
    return sources.place((source.location, source.name, source.recorded_in), facts)


def number_rows(numbers: Sequence[Result], traces: Mapping[Way, Trace]) -> list[list[Any]]:
    """Every number for the page's script, in order of its names.

    The seven fields, value, unit, low, high, queries, gallery, artifact, md5, value and interval as they are
    shown (rounded here, since JavaScript rounds halves another way), and the place of its way in the lineage.
    """
    ways = {way: place for place, way in enumerate(traces)}
    return [
        [
            *row.name.fields,
            row.value,
            row.unit,
            row.low,
            row.high,
            row.n_queries,
            row.gallery_size,
            row.source_artifact,
            row.source_md5,
            format_value(row),
            format_interval(row),
            ways[way_of(row)],
        ]
        for row in numbers
    ]
