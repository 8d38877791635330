"""What one verification covers: the chosen numbers, the outputs under them, and their content on disk."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cairn.errors import LineageError
from cairn.lineage.graph import CODE_FOLDER, CODE_STAGE, Code, Edge, Graph
from cairn.lineage.hashing import Content, recorded_files
from cairn.lineage.lock import Stage
from cairn.results.table import RESULTS_PATH, Result


@dataclass(frozen=True)
class Group:
    """Numbers of one artifact that were computed from the same of its inputs: one way back for all of them.

    `under`: every output they rest on, their own artifact included; `edges`: those inputs of it that count.
    """

    artifact: str
    rows: tuple[Result, ...]
    under: frozenset[str]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Finding:
    """One thing that is not what it was.

    `kind`: `changed`, `missing`, `unexpected` (a file that was not there), `unreadable`, `outdated` (a stage
    consumed another version of its input than is recorded now), `unrecorded` (no stage in `dvc.lock` makes
    it), `command` and `parameters` (what `dvc.lock` records is not what the stage runs), `entry` (a size, a number
    of files, a kind of hash in `dvc.lock` that is not the artifact's), `image`, `source`, `row` (the results table
    says something else than the scores), `score` (the stored rankings give something else).
    `artifact`: the output or source; `file`: the exact file in it, None where it cannot be told.
    `expected`, `found`: what is recorded and what there is (mostly digests). `numbers`: the names of exactly the
    numbers downstream of it.
    """

    kind: str
    artifact: str
    file: str | None
    expected: str | None
    found: str | None
    message: str
    numbers: tuple[str, ...]


class Scope:
    """The graph, all numbers, the outputs under the chosen ones (`outputs`), and their `content` now."""

    def __init__(self, graph: Graph, numbers: Sequence[Result], chosen: Sequence[Result]) -> None:
        self.graph = graph
        self.root = graph.root
        self.numbers = numbers
        self.chosen = chosen
        self.content: Mapping[str, Content] = {}
        self.unrecorded: list[Finding] = []
        self.benchmarks: dict[str, list[str]] = {}
        self.home: dict[str, list[Result]] = {}
        selected = {result.name for result in chosen}
        alike: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
        for result in numbers:
            try:
                artifact = graph.artifact_of(result)
            except LineageError as error:
                if result.name in selected:
                    source = result.source_artifact
                    self.unrecorded.append(
                        Finding("unrecorded", source, None, None, None, str(error), (str(result.name),))
                    )
                continue
            self.home.setdefault(artifact, []).append(result)
            alike.setdefault((artifact, result.computed_from), []).append(result)
            if result.name in selected:
                self.benchmarks.setdefault(result.name.benchmark, []).append(str(result.name))
        self.table = tuple(graph.made_by(RESULTS_PATH))
        # The table is made from every run's scores, but the other runs are not under these numbers.
        self.groups = [
            Group(artifact, tuple(rows), frozenset(graph.way_back(rows[0])), graph.edges_of(rows[0]))
            for (artifact, _), rows in alike.items()
        ]
        mine = [group for group in self.groups if any(row.name in selected for row in group.rows)]
        needed = {output for group in mine for output in group.under}
        self.outputs = [*(path for path in graph.order(needed) if path in needed), *self.table]
        self._edges = {
            group.artifact: {
                edge.input.path for other in mine if other.artifact == group.artifact for edge in other.edges
            }
            for group in mine
        }

    @property
    def complete(self) -> bool:
        """Whether all numbers were chosen."""
        return len(self.chosen) == len(self.numbers)

    @functools.cached_property
    def others(self) -> Sequence[str]:
        """Where all numbers were chosen: the recorded outputs, code apart, that none of them rests on."""
        if not self.complete:
            return []
        code = CODE_FOLDER.rstrip("/")
        return sorted(set(self.graph.outputs) - set(self.outputs) - {code})

    @functools.cached_property
    def readers(self) -> Mapping[str, Sequence[str]]:
        """The users' own paths that stages in this scope read → the outputs made from them."""
        found: dict[str, list[str]] = {}
        for output in self.outputs:
            for edge in self.edges(output):
                if not edge.made_by:
                    found.setdefault(edge.input.path, []).append(output)
        return dict(sorted(found.items()))

    def edges(self, output: str) -> tuple[Edge, ...]:
        """The recorded inputs of `output` that the chosen numbers rest on."""
        edges = self.graph.edges(self.graph.producer[output])
        counted = self._edges.get(output)
        return edges if counted is None else tuple(edge for edge in edges if edge.input.path in counted)

    @functools.cached_property
    def stages(self) -> Sequence[Stage]:
        """The stages that made the outputs in this scope, each once."""
        return list(
            {stage.name: stage for stage in map(self.graph.producer.get, self.outputs) if stage}.values()
        )

    @functools.cached_property
    def other_stages(self) -> Sequence[Stage]:
        """The stages that made `others`, each once."""
        return list(
            {stage.name: stage for stage in map(self.graph.producer.get, self.others) if stage}.values()
        )

    @property
    def every_stage(self) -> Sequence[Stage]:
        """The stages in this scope, those of `others`, and the one that recorded their code."""
        return [*self.stages, *self.other_stages, *([self.code_stage] if self.code_stage else [])]

    @functools.cached_property
    def code_stage(self) -> Stage | None:
        """The stage that recorded the code of what is in this scope."""
        return self.graph.stages.get(CODE_STAGE) if self.codes else None

    @functools.cached_property
    def folders(self) -> Sequence[str]:
        """The folders that the table and the code were made from: they hold outputs, or the code itself."""
        stages = [self.graph.producer[path] for path in self.table] if self.complete else []
        stages += [self.code_stage] if self.code_stage else []
        return sorted({item.path for stage in stages for item in stage.inputs} - set(self.outputs))

    @functools.cached_property
    def users_of_code(self) -> Sequence[str]:
        """Every output in this scope that has a code file."""
        return [output for output, codes in self._codes_of.items() if codes]

    @functools.cached_property
    def codes(self) -> Mapping[str, Code]:
        """Every code file in this scope, by path."""
        return {code.path: code for codes in self._codes_of.values() for code in codes}

    @functools.cached_property
    def code_of_others(self) -> set[str]:
        """The code files of stages outside this scope."""
        named = {code.path for stage in self.graph.stages.values() for code in self.graph.code(stage)}
        return named - set(self.codes)

    @functools.cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """Code file → the outputs in this scope made by its code."""
        found: dict[str, list[str]] = {}
        for output, codes in self._codes_of.items():
            for code in codes:
                found.setdefault(code.path, []).append(output)
        return found

    @functools.cached_property
    def _codes_of(self) -> Mapping[str, Sequence[Code]]:
        return {output: self.graph.code(self.graph.producer[output]) for output in self.outputs}

    def tainted(self, outputs: Iterable[str]) -> tuple[str, ...]:
        """The numbers downstream of these outputs; all of them where the table itself is among them."""
        chosen = set(outputs)
        if chosen & set(self.table):
            return tuple(str(result.name) for result in self.numbers)
        return _names(group for group in self.groups if group.under & chosen)

    def tainted_through(self, output: str, path: str) -> tuple[str, ...]:
        """The numbers that rest on `output` and, where it is their own artifact, on its input `path`."""
        if output in self.table:
            return self.tainted([output])
        own = [group for group in self.groups if group.artifact == output]
        others = [group for group in self.groups if group.artifact != output and output in group.under]
        return _names(
            [*others, *(group for group in own if path in {edge.input.path for edge in group.edges})]
        )

    def intact(self, output: str) -> bool:
        """Whether an output is what `dvc.lock` recorded."""
        content = self.content.get(output)
        recorded = self.graph.outputs[output].md5
        return (
            content is not None
            and recorded is not None
            and content.md5 == recorded
            and not content.unreadable
        )

    def listing(self, output: str) -> Mapping[str, str] | None:
        """The files an output had when it was made: from DVC's cache, or from the disk where it is intact."""
        listed = recorded_files(self.root, self.graph.outputs[output].md5)
        return self.content[output].files if listed is None and self.intact(output) else listed


def _names(groups: Iterable[Group]) -> tuple[str, ...]:
    return tuple(sorted({str(row.name) for group in groups for row in group.rows}))
