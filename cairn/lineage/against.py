"""`cairn trace A --against B`: names in, what separates them out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cairn.errors import LineageError
from cairn.lineage.differences import Comparison, Difference, compare_graphs, compare_numbers
from cairn.lineage.graph import Graph, load_graph, load_numbers
from cairn.lineage.past import DigestOf, PastGraph, load_past
from cairn.lineage.tracing import choose
from cairn.results.table import Result


@dataclass(frozen=True)
class Against:
    """Two sides and what separates them.

    `first`, `second`: a number's name, with `@commit` where it is that of a revision, or a commit alone.
    `values`: both values where they are numbers of one unit, None where one is not known any more.
    `numbers`: for two revisions, a difference's place → the numbers that rest on what it reaches.
    """

    first: str
    second: str
    values: tuple[float | None, float | None] | None
    unit: str
    comparison: Comparison
    numbers: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        made = {
            "first": self.first,
            "second": self.second,
            "values": None if self.values is None else list(self.values),
            "unit": self.unit,
            "differences": [_plain(item) for item in self.comparison.differences],
            "follows": [_plain(item) for item in self.comparison.follows],
            "artifacts": {"alike": self.comparison.alike, "unlike": self.comparison.unlike},
            "notes": list(self.notes),
        }
        for entry, numbers in zip(made["differences"], self.numbers, strict=False):
            entry["numbers"] = list(numbers)
        return made


def against(
    root: Path,
    name: str | None,
    other: str | None = None,
    revision: str | None = None,
    digest_of: DigestOf | None = None,
) -> Against:
    """Compare the number `name` with `other`, or with itself (or `other`) at the git `revision`.

    Without a name, everything that was run now is compared with the revision. Raises LineageError for a number
    or revision that does not exist.
    """
    graph = load_graph(root)
    past = None if revision is None else load_past(root, revision, digest_of)
    if name is None:
        if past is None:
            raise LineageError(
                "two revisions are compared with --against-revision; two numbers with --against"
            )
        return _revisions(graph, past)
    numbers = load_numbers(root)
    one, notes = choose(name, numbers)
    if past is None:
        two, more = choose(other or name, numbers)
        comparison = compare_numbers(graph, one, graph, two)
        return _of_numbers(one, two, str(two.name), comparison, known=True, notes=(*notes, *more))
    known = past.numbers
    two, more = _past_number(past, known, numbers, other or str(one.name))
    comparison = compare_numbers(graph, one, past, two)
    label = f"{two.name}@{past.commit[:10]}"
    return _of_numbers(one, two, label, comparison, known is not None, (*notes, *more))


def _past_number(
    past: PastGraph, known: Sequence[Result] | None, now: Sequence[Result], name: str
) -> tuple[Result, tuple[str, ...]]:
    if known is not None:
        try:
            return choose(name, known)
        except LineageError as error:
            raise LineageError(f"at {past.commit[:10]}: {error}") from None
    # Its table is gone from the cache, but the graph still says how a number of this name was made.
    chosen, notes = choose(name, now)
    return chosen, (
        *notes,
        f"the results table of {past.commit[:10]} is not in DVC's cache, or of an older form: the value is not known",
    )


def _of_numbers(
    one: Result,
    two: Result,
    second: str,
    comparison: Comparison,
    known: bool,
    notes: tuple[str, ...],
) -> Against:
    values = (one.value, two.value if known else None) if one.unit == two.unit else None
    return Against(str(one.name), second, values, one.unit, comparison, (), notes)


def _revisions(graph: Graph, past: PastGraph) -> Against:
    comparison = compare_graphs(graph, past)
    rests: dict[str, set[str]] = {}
    for result in load_numbers(graph.root):
        try:
            under = graph.way_back(result)
        except LineageError:
            continue
        for path in under:
            rests.setdefault(path, set()).add(str(result.name))
    numbers = tuple(
        tuple(sorted({name for path in item.artifacts for name in rests.get(path, ())}))
        for item in comparison.differences
    )
    return Against("now", past.commit, None, "", comparison, numbers, ())


def _plain(item: Difference) -> dict[str, Any]:
    return {**asdict(item), "artifacts": list(item.artifacts)}
