"""What separates two numbers, or two revisions: the smallest set of differences that the records know."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cairn.lineage.graph import Edge, Graph
from cairn.lineage.lock import Stage
from cairn.lineage.sources import Source, sources_of
from cairn.lineage.tables import flattened, run_of, step_of
from cairn.results.names import FIELDS
from cairn.results.table import Result

Kind = Literal["number", "step", "parameter", "code", "data", "package", "source", "unexplained"]
# These say what is measured, not how it came about: no artifact differs for them.
MEASURED = ("head", "seed", "slice", "metric")


@dataclass(frozen=True)
class Difference:
    """One difference: what is called `name` is `first` on one side and `second` on the other (None: absent).

    `kind`: `number` (a field of the name), `step` (one side has a step that the other lacks), `parameter`,
    `code` (a module; by its syntax tree), `data` (a file beside the code), `package`, `source`, `unexplained`
    (other bytes from what is recorded as the same: another machine, or a step that is not deterministic).
    `artifacts`: the outputs, as the first side calls them, that it reaches directly.
    """

    kind: Kind
    name: str
    first: str | None
    second: str | None
    artifacts: tuple[str, ...]


@dataclass
class Side:
    """A graph and the artifact from which its way back starts; `edges` are the inputs of it that count."""

    graph: Graph
    start: str
    edges: Sequence[Edge]

    @classmethod
    def of_number(cls, graph: Graph, result: Result) -> "Side":
        """The side of one number."""
        return cls(graph, graph.artifact_of(result), graph.edges_of(result))

    @classmethod
    def of_output(cls, graph: Graph, output: str) -> "Side":
        """The side of everything an output was made from."""
        return cls(graph, output, graph.edges(graph.producer[output]))

    def children(self, path: str) -> dict[tuple[str, bool], str]:
        """The outputs that `path` was made from, by step and whether they are of the same benchmark."""
        edges = self.edges if path == self.start else self.graph.edges(self.graph.producer[path])
        origins = [origin for edge in edges for origin in edge.made_by]
        return {(step_of(self.stage(origin)), _alike(origin, path)): origin for origin in origins}

    def everything(self) -> dict[str, str]:
        """Step → an output on the whole way back."""
        origins = [origin for edge in self.edges for origin in edge.made_by]
        return {step_of(self.stage(path)): path for path in self.graph.order(origins)}

    def stage(self, path: str) -> Stage:
        """The stage that makes `path`."""
        return self.graph.producer[path]


@dataclass
class Comparison:
    """`differences`: the smallest set; `follows`: what differs because of one of them, such as the keys and modules
    that only one of two encoders has. `alike`, `unlike`: pairs of artifacts with one hash, and with two."""

    differences: list[Difference] = field(default_factory=list)
    follows: list[Difference] = field(default_factory=list)
    alike: int = 0
    unlike: int = 0


def compare(first: Side, second: Side) -> Comparison:
    """Walk both ways back in step; where two artifacts have one hash, nothing below them can matter."""
    walk = _Walk(first, second)
    walk.run()
    return Comparison(_merged(walk.found), _merged(walk.follows), walk.alike, walk.unlike)


def compare_numbers(first: Graph, one: Result, second: Graph, other: Result) -> Comparison:
    """What separates two numbers. Raises LineageError where a graph does not know the number's artifact."""
    found = compare(Side.of_number(first, one), Side.of_number(second, other))
    if one.name.head != other.name.head:
        # What was made for a head is kept under its name: it is another stage, not one that gave other bytes.
        found.differences = [
            item
            for item in found.differences
            if item.kind != "unexplained" or item.name.rsplit("/", 1)[-1] != one.name.head
        ]
    for name in FIELDS:
        before, after = getattr(one.name, name), getattr(other.name, name)
        if before != after and (name in MEASURED or not found.differences):
            found.differences.insert(0, Difference("number", name, before, after, ()))
    return found


def compare_graphs(first: Graph, second: Graph, step: str = "scores") -> Comparison:
    """What separates two graphs, as far as the outputs of `step` show it."""
    ours, theirs = (
        {p for p in graph.outputs if step_of(graph.producer[p]) == step} for graph in (first, second)
    )
    whole = Comparison()
    found: list[Difference] = []
    follows: list[Difference] = []
    for path in sorted(ours & theirs):
        walk = _Walk(Side.of_output(first, path), Side.of_output(second, path))
        walk.run(prune=True)
        found += walk.found
        follows += walk.follows
        whole.alike += walk.alike
        whole.unlike += walk.unlike
    for path in sorted(ours ^ theirs):
        found.append(Difference("step", path, *((path, None) if path in ours else (None, path)), (path,)))
    whole.differences, whole.follows = _merged(found), _merged(follows)
    return whole


class _Walk:
    """One walk down two graphs, pair by pair."""

    def __init__(self, first: Side, second: Side) -> None:
        self.first, self.second = first, second
        self.found: list[Difference] = []
        self.follows: list[Difference] = []
        self.alike = self.unlike = 0

    def run(self, prune: bool = False) -> None:
        waiting = [(self.first.start, self.second.start)]
        seen: set[tuple[str, str]] = set()
        while waiting:
            one, other = waiting.pop()
            if (one, other) in seen:
                continue
            root = not seen and not prune
            seen.add((one, other))
            before, after = self.first.graph.outputs[one].md5, self.second.graph.outputs[other].md5
            if before is not None and before == after and not root:
                self.alike += 1
                continue
            self.unlike += before != after
            said = len(self.found)
            self._own(one, other)
            pairs = self._pairs(one, other)
            waiting += pairs
            alike = (
                before == after or not all(map(self._same, pairs)) or (root and self._elsewhere(one, other))
            )
            if not alike and len(self.found) == said:
                self.found.append(Difference("unexplained", one, before, after, (one,)))

    def _elsewhere(self, one: str, other: str) -> bool:
        """Whether inputs that do not count for these numbers changed the artifact that holds them."""
        before, after = (
            {(e.input.path, e.input.md5) for e in side.graph.edges(side.stage(path)) if e not in side.edges}
            for side, path in ((self.first, one), (self.second, other))
        )
        return before != after

    def _same(self, pair: tuple[str, str]) -> bool:
        before, after = self.first.graph.outputs[pair[0]].md5, self.second.graph.outputs[pair[1]].md5
        return before is not None and before == after

    def _pairs(self, one: str, other: str) -> list[tuple[str, str]]:
        """The inputs of both that play one part; a step that only one side has is a difference."""
        ours, theirs = self.first.children(one), self.second.children(other)
        pairs = []
        for key in sorted(ours.keys() | theirs.keys()):
            mine = _matching(ours, key)
            yours = _matching(theirs, key)
            if mine is None and yours is not None:
                # Perhaps the other side has it further down: what one number scores, another re-ranks first.
                mine = self.first.everything().get(key[0])
                if mine is None:
                    self._add("step", key[0], None, _described(self.second, yours), yours)
            elif yours is None and mine is not None:
                yours = self.second.everything().get(key[0])
                if yours is None:
                    self._add("step", key[0], _described(self.first, mine), None, mine)
            if mine is not None and yours is not None:
                pairs.append((mine, yours))
        return pairs

    def _own(self, one: str, other: str) -> None:
        """What differs in how `one` and `other` themselves were made."""
        mine, yours = _Made(self.first, one), _Made(self.second, other)
        # Another entry of a registry, or another step in the same place, brings its own modules and keys.
        picked = mine.picked != yours.picked or step_of(self.first.stage(one)) != step_of(
            self.second.stage(other)
        )
        self._mappings("parameter", mine.parameters, yours.parameters, one, follows=picked)
        if mine.digest != yours.digest:
            if mine.files is None or yours.files is None:
                name = f"the code of {step_of(self.first.stage(one))} (its modules are not known)"
                self._add("code", name, mine.digest, yours.digest, one)
            else:
                said = len(self.found)
                changed = any(mine.files[f] != yours.files[f] for f in mine.files.keys() & yours.files.keys())
                for kind in ("code", "data"):
                    ours, theirs = mine.of_kind(kind), yours.of_kind(kind)
                    self._mappings(kind, ours, theirs, one, follows=picked or changed)
                if not picked and len(self.found) == said:
                    # What git has at a revision need not be what ran before it was committed.
                    name = f"the code of {step_of(self.first.stage(one))} (which of its modules is not known)"
                    self._add("code", name, mine.digest, yours.digest, one)
        self._mappings("package", mine.packages, yours.packages, one, follows=True)
        self._sources(one, other)

    def _mappings(
        self, kind: Kind, ours: Mapping[str, str], theirs: Mapping[str, str], artifact: str, follows: bool
    ) -> None:
        """Values that differ; what only one side has is a consequence where `follows`."""
        for name in sorted(ours.keys() | theirs.keys()):
            before, after = ours.get(name), theirs.get(name)
            if before != after:
                self._add(kind, name, before, after, artifact, follows and None in (before, after))

    def _sources(self, one: str, other: str) -> None:
        ours = {s.name: s for s in sources_of(self.first.graph, self.first.stage(one), one)}
        theirs = {s.name: s for s in sources_of(self.second.graph, self.second.stage(other), other)}
        if one != other:  # an artifact that names no source has itself for one
            ours, theirs = (
                {n: s for n, s in x.items() if s.location not in (one, other)} for x in (ours, theirs)
            )
        for name in sorted(ours.keys() | theirs.keys()):
            mine, yours = ours.get(name), theirs.get(name)
            if _content(mine) != _content(yours):
                self._add("source", name, _content(mine), _content(yours), one)

    def _add(
        self,
        kind: Kind,
        name: str,
        first: str | None,
        second: str | None,
        artifact: str,
        follows: bool = False,
    ) -> None:
        where = self.follows if follows else self.found
        where.append(Difference(kind, name, first, second, (artifact,)))


class _Made:
    """How an output was made: code, parameters and packages as recorded; `files` None where they are not known."""

    def __init__(self, side: Side, path: str) -> None:
        codes = side.graph.code(side.stage(path))
        self.digest = " ".join(code.digest or "none" for code in codes)
        self.parameters = {name: _text(value) for code in codes for name, value in flattened(code.parameters)}
        known = all(code.current for code in codes)
        self._modules = {file: sha for code in codes for file, sha in code.modules.items()}
        self._data = {file: sha for code in codes for file, sha in code.data.items()}
        self.files = {**self._modules, **self._data} if known else None
        self.packages = {n: v for code in codes if code.current for n, v in code.packages.items()}
        records = [side.graph.code_file(code.path) or {} for code in codes if code.current]
        self.picked = [record.get("picked") for record in records]

    def of_kind(self, kind: str) -> Mapping[str, str]:
        return self._modules if kind == "code" else self._data


def _matching(children: Mapping[tuple[str, bool], str], key: tuple[str, bool]) -> str | None:
    """The child with this key; one of the same step where there is no other (a borrowed training set)."""
    step, own = key
    return children.get(key, children.get((step, not own)))


def _described(side: Side, path: str) -> str:
    parameters = [
        f"{n}={_text(v)}" for c in side.graph.code(side.stage(path)) for n, v in flattened(c.parameters)
    ]
    return (
        f"{path} ({', '.join(parameters[:4])}{', …' if len(parameters) > 4 else ''})" if parameters else path
    )


def _content(source: Source | None) -> str | None:
    """What a source is: its strongest checksum, else where it comes from."""
    if source is None:
        return None
    for name in ("sha256", "md5"):
        if name in source.checksums:
            return f"{name} {source.checksums[name]}"
    return source.location


def _alike(path: str, other: str) -> bool:
    return run_of(path)[0] == run_of(other)[0]


def _text(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _merged(found: Iterable[Difference]) -> list[Difference]:
    """One entry per difference, with every artifact that it reaches; the most telling kinds first."""
    order = {kind: place for place, kind in enumerate(Kind.__args__)}
    artifacts: dict[tuple[Kind, str, str | None, str | None], list[str]] = {}
    for item in found:
        artifacts.setdefault((item.kind, item.name, item.first, item.second), []).extend(item.artifacts)
    merged = [Difference(*key, tuple(sorted(set(paths)))) for key, paths in artifacts.items()]
    return sorted(merged, key=lambda item: (order[item.kind], item.name))
