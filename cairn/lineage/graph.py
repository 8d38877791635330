"""The graph of hashes: which artifact was made from which, by what code, with which parameters."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import LineageError
from cairn.lineage.lock import Recorded, Stage, read_lock
from cairn.results.names import printable
from cairn.results.table import RESULTS_PATH, Result, read_json_object, read_results

ARTIFACTS = "artifacts/"
CODE_FOLDER = "artifacts/code/"
CODE_STAGE = "code"
SCORES_FILE = "scores.parquet"


@dataclass(frozen=True)
class Code:
    """The code and the effective parameters of one stage.

    `digest` and `parameters` are what `dvc.lock` recorded when the artifact was made. `modules` and `data`
    (path → SHA-256), `packages` (name → version) and `picked` come from the code file on disk; `current` says
    whether that file still has the recorded digest, so that they are those that made the artifact.
    """

    path: str
    digest: str | None
    parameters: Mapping[str, Any]
    modules: Mapping[str, str]
    data: Mapping[str, str]
    packages: Mapping[str, str]
    current: bool
    present: bool


@dataclass(frozen=True)
class Edge:
    """One recorded input of a stage: `made_by` lists the outputs it is, is part of, or contains.

    Empty `made_by`: no stage makes it, so it is a source.
    """

    input: Recorded
    made_by: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """Everything `dvc.lock` records under `root`, by stage and by output path."""

    root: Path
    stages: Mapping[str, Stage]

    @functools.cached_property
    def producer(self) -> Mapping[str, Stage]:
        """Output path → the stage that makes it."""
        made: dict[str, Stage] = {}
        for stage in self.stages.values():
            for output in stage.outputs:
                if output.path in made:
                    first = made[output.path].name
                    raise LineageError(
                        f"{self.root / 'dvc.lock'}: stages {printable(first)} and {printable(stage.name)} "
                        f"both make {printable(output.path)}"
                    )
                made[output.path] = stage
        return made

    @functools.cached_property
    def outputs(self) -> Mapping[str, Recorded]:
        """Output path → what DVC recorded for it."""
        return {output.path: output for stage in self.stages.values() for output in stage.outputs}

    @functools.cached_property
    def _below(self) -> Mapping[str, tuple[str, ...]]:
        # Folder → the outputs inside it, however deep.
        inside: dict[str, list[str]] = {}
        for path in self.outputs:
            for folder in _parents(path):
                inside.setdefault(folder, []).append(path)
        return {folder: tuple(sorted(paths)) for folder, paths in inside.items()}

    def made_by(self, path: str) -> tuple[str, ...]:
        """The outputs that `path` is, lies in, or contains (edges of DVC go by containment)."""
        above = [folder for folder in (path, *_parents(path)) if folder in self.outputs]
        return tuple(above) if above else self._below.get(path, ())

    def edges(self, stage: Stage) -> tuple[Edge, ...]:
        """The recorded inputs of `stage` that are data: its code files are `code(stage)`, not edges."""
        return tuple(
            Edge(item, self.made_by(item.path))
            for item in stage.inputs
            if not item.path.startswith(CODE_FOLDER)
        )

    def unrecorded(self, stage: Stage) -> tuple[str, ...]:
        """What `stage` used from `artifacts/` that no recorded stage makes: its entry is gone from the lock."""
        used = [*(item.path for item in stage.inputs), *stage.parameters]
        return tuple(path for path in used if path.startswith(ARTIFACTS) and not self.made_by(path))

    def code(self, stage: Stage) -> tuple[Code, ...]:
        """The code files that `stage` depends on, through its parameters or its inputs."""
        recorded = {file: values for file, values in stage.parameters.items() if file.startswith(CODE_FOLDER)}
        for item in stage.inputs:
            if item.path.startswith(CODE_FOLDER):
                recorded.setdefault(item.path, {})
        return tuple(self._code(file, values) for file, values in sorted(recorded.items()))

    def _code(self, file: str, recorded: Mapping[str, Any]) -> Code:
        now = self.code_file(file)
        digest = recorded.get("digest") or (now or {}).get("digest")
        parameters = recorded.get("parameters")
        return Code(
            path=file,
            digest=str(digest) if digest is not None else None,
            parameters=dict(parameters) if isinstance(parameters, dict) else {},
            modules=_texts(now, "modules"),
            data=_texts(now, "data"),
            packages=_texts(now, "packages"),
            current=now is not None and now.get("digest") == digest,
            present=now is not None,
        )

    @functools.cached_property
    def _json_files(self) -> dict[Path, dict[str, Any] | None]:
        return {}

    def code_file(self, file: str) -> dict[str, Any] | None:
        """The code file `file` as it is on disk; None where it is missing or no JSON object."""
        return self.json_file(self.root / file)

    def json_file(self, path: Path) -> dict[str, Any] | None:
        """A JSON object under the project, read once; None where it is missing or no JSON object."""
        if path not in self._json_files:
            self._json_files[path] = read_json_object(path)
        return self._json_files[path]

    def upstream(self, paths: Iterable[str]) -> set[str]:
        """`paths` (outputs) and every output they were made from. Raises LineageError for a circle."""
        return set(self.order(paths))

    def order(self, paths: Iterable[str]) -> list[str]:
        """`paths` and every output upstream of them, each after all it was made from."""
        finished: dict[str, None] = {}
        for start in sorted(set(paths)):
            # Depth first with a stack of our own: a hand-made lock can be deeper than Python's.
            stack: list[tuple[str, Iterator[str]]] = [(start, iter(self._sources_of(start)))]
            active = {start}
            while stack:
                path, waiting = stack[-1]
                following = next((item for item in waiting if item not in finished), None)
                if following is None:
                    stack.pop()
                    active.discard(path)
                    finished[path] = None
                elif following in active:
                    raise LineageError(
                        f"{self.root / 'dvc.lock'}: {printable(following)} is made from itself; "
                        f"`git checkout dvc.lock`"
                    )
                else:
                    active.add(following)
                    stack.append((following, iter(self._sources_of(following))))
        return list(finished)

    @functools.cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """Output path → the outputs of the stages that consumed it."""
        used: dict[str, set[str]] = {path: set() for path in self.outputs}
        for stage in self.stages.values():
            for edge in self.edges(stage):
                for path in edge.made_by:
                    used[path].update(output.path for output in stage.outputs)
        return {path: tuple(sorted(outputs)) for path, outputs in used.items()}

    def downstream(self, paths: Iterable[str]) -> set[str]:
        """`paths` (outputs) and every output that was made from one of them."""
        reached: set[str] = set()
        waiting = [path for path in paths if path in self.outputs]
        while waiting:
            path = waiting.pop()
            if path not in reached:
                reached.add(path)
                waiting.extend(self.consumers[path])
        return reached

    def artifact_of(self, result: Result) -> str:
        """The output a number was read from. Raises LineageError where `dvc.lock` knows none."""
        found = [path for path in self.made_by(result.source_artifact) if path in self.outputs]
        if not found or not result.source_artifact:
            raise LineageError(
                f"{result.name} was read from {printable(result.source_artifact)}, "
                "but dvc.lock records no stage that made it"
            )
        return found[0]

    def edges_of(self, result: Result) -> tuple[Edge, ...]:
        """The inputs of a number's own artifact that this number was computed from.

        All of them where the number does not say, or names one that `dvc.lock` does not record.
        """
        edges = self.edges(self.producer[self.artifact_of(result)])
        named = set(result.computed_from)
        return tuple(edge for edge in edges if edge.input.path in named) if self._says(result) else edges

    def way_back(self, result: Result) -> list[str]:
        """The outputs under a number, its own artifact last, each after all it was made from."""
        own = self.artifact_of(result)
        start = {origin for edge in self.edges_of(result) for origin in edge.made_by}
        return [*self.order(start), own]

    def _says(self, result: Result) -> bool:
        used = {edge.input.path for edge in self.edges(self.producer[self.artifact_of(result)])}
        return bool(result.computed_from) and used.issuperset(result.computed_from)

    def _sources_of(self, path: str) -> tuple[str, ...]:
        return tuple(origin for edge in self.edges(self.producer[path]) for origin in edge.made_by)


def load_graph(root: Path) -> Graph:
    """The graph of the project at `root`, from `dvc.lock` and the code files. Errors as `lock.read_lock`."""
    root = Path(root)
    graph = Graph(root, read_lock(root))
    _ = graph.producer  # two stages with one output are refused at once
    return graph


def load_numbers(root: Path) -> list[Result]:
    """Every number of the project. Raises ArtifactError where the table is missing or damaged."""
    return read_results(Path(root) / RESULTS_PATH)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def _texts(record: Mapping[str, Any] | None, key: str) -> dict[str, str]:
    value = (record or {}).get(key)
    return {str(k): str(v) for k, v in sorted(value.items())} if isinstance(value, dict) else {}
