"""The graph as tables for SQL: artifacts, edges, code, packages, params, sources, and what each number rests on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import LineageError
from cairn.lineage.graph import Graph, load_graph, load_numbers
from cairn.lineage.lock import LOCK, Stage
from cairn.lineage.sources import sources_of
from cairn.results.table import RESULTS_PATH, Result


@dataclass(frozen=True)
class LineageTable:
    """A table's name, its columns as SQL declares them, and its rows."""

    name: str
    columns: str
    rows: Sequence[tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.split(" ", 1)[0] for column in self.columns.split(", ")]


# An artifact is what one stage wrote. `made_by` of an edge is NULL where no stage made the input: a source.
COLUMNS: Mapping[str, str] = {
    "artifacts": "artifact VARCHAR, md5 VARCHAR, size BIGINT, files BIGINT, stage VARCHAR, step VARCHAR, "
    "benchmark VARCHAR, system VARCHAR, command VARCHAR, code_digest VARCHAR, code_current BOOLEAN",
    "edges": "artifact VARCHAR, input VARCHAR, md5 VARCHAR, made_by VARCHAR, current BOOLEAN",
    "code": "artifact VARCHAR, file VARCHAR, kind VARCHAR, sha256 VARCHAR, current BOOLEAN",
    "packages": "artifact VARCHAR, package VARCHAR, version VARCHAR, current BOOLEAN",
    "params": "artifact VARCHAR, name VARCHAR, value VARCHAR",
    "sources": "artifact VARCHAR, name VARCHAR, location VARCHAR, path VARCHAR, sha256 VARCHAR, md5 VARCHAR, "
    "size BIGINT, files BIGINT, licence VARCHAR, retrieved VARCHAR, synthetic BOOLEAN, status VARCHAR, "
    "problem VARCHAR, recorded_in VARCHAR",
    "lineage": "number VARCHAR, artifact VARCHAR",
}


def lineage_tables(root: Path) -> list[LineageTable]:
    """All tables of the project at `root`, from `dvc.lock`, the code files, `sources.json` and the results table.

    Empty before anything was run. A number whose artifact `dvc.lock` does not know has no rows in `lineage`
    (`cairn verify` names it). Raises LineageError where `dvc.lock` is damaged, ArtifactError where the results are.
    """
    if not (Path(root) / LOCK).is_file():
        return [LineageTable(name, columns, []) for name, columns in COLUMNS.items()]
    graph = load_graph(root)
    numbers = load_numbers(root) if (Path(root) / RESULTS_PATH).is_file() else []
    rows = {
        "artifacts": list(_artifacts(graph)),
        "edges": list(_edges(graph)),
        "code": list(_code(graph)),
        "packages": list(_packages(graph)),
        "params": list(_params(graph)),
        "sources": list(_sources(graph)),
        "lineage": list(_lineage(graph, numbers)),
    }
    return [LineageTable(name, columns, rows[name]) for name, columns in COLUMNS.items()]


def flattened(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name → value of nested parameters; an empty mapping is itself a value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flattened(item, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, value


def run_of(path: str) -> tuple[str | None, str | None]:
    """Benchmark and system of `artifacts/BENCHMARK/SYSTEM/…` or `artifacts/scores/BENCHMARK/SYSTEM`."""
    parts = path.split("/")[1:]
    if parts[:1] == ["scores"] and len(parts) == 3:
        return parts[1], parts[2].partition(".")[0]  # `SYSTEM.HEAD` holds the numbers of a system's heads
    if len(parts) >= 3:
        return parts[0], parts[1]
    return (parts[0], None) if len(parts) == 2 else (None, None)


def step_of(stage: Stage) -> str:
    """`sources-toytown@mine` is the step `sources`."""
    return stage.name.split("@")[0].split("-")[0]


def _artifacts(graph: Graph) -> Iterator[tuple[Any, ...]]:
    for path, recorded in sorted(graph.outputs.items()):
        stage = graph.producer[path]
        codes = graph.code(stage)
        benchmark, system = run_of(path)
        yield (
            path,
            recorded.md5,
            recorded.size,
            recorded.files,
            stage.name,
            step_of(stage),
            benchmark,
            system,
            stage.command,
            codes[0].digest if codes else None,
            all(code.current for code in codes),
        )


def _edges(graph: Graph) -> Iterator[tuple[Any, ...]]:
    for path in sorted(graph.outputs):
        for edge in graph.edges(graph.producer[path]):
            for origin in edge.made_by or (None,):
                made = None if origin != edge.input.path else graph.outputs[edge.input.path].md5
                current = None if made is None else made == edge.input.md5
                yield path, edge.input.path, edge.input.md5, origin, current


def _code(graph: Graph) -> Iterator[tuple[Any, ...]]:
    for path in sorted(graph.outputs):
        for code in graph.code(graph.producer[path]):
            for kind, files in (("module", code.modules), ("data", code.data)):
                for file, digest in files.items():
                    yield path, file, kind, digest, code.current


def _packages(graph: Graph) -> Iterator[tuple[Any, ...]]:
    for path in sorted(graph.outputs):
        for code in graph.code(graph.producer[path]):
            for package, version in code.packages.items():
                yield path, package, version, code.current


def _params(graph: Graph) -> Iterator[tuple[Any, ...]]:
    for path in sorted(graph.outputs):
        for code in graph.code(graph.producer[path]):
            for name, value in sorted(flattened(code.parameters)):
                text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
                yield path, name, text


def _sources(graph: Graph) -> Iterator[tuple[Any, ...]]:
    code = {
        output.path for stage in graph.stages.values() if stage.name == "code" for output in stage.outputs
    }
    for path in sorted(set(graph.outputs) - code):
        for source in sources_of(graph, graph.producer[path], path):
            yield (
                path,
                source.name,
                source.location,
                source.path,
                source.checksums.get("sha256"),
                source.checksums.get("md5"),
                source.size,
                source.files,
                source.licence,
                source.retrieved,
                source.synthetic,
                source.status,
                source.problem,
                source.recorded_in,
            )


def _lineage(graph: Graph, numbers: Sequence[Result]) -> Iterator[tuple[str, str]]:
    known: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for result in numbers:
        key = (result.source_artifact, result.computed_from)
        if key not in known:
            try:
                known[key] = graph.way_back(result)
            except LineageError:
                known[key] = []
        for path in known[key]:
            yield str(result.name), path
