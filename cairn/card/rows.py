"""Finds the results in a document: rows (what was measured) of cells (benchmark, column, value)."""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cairn.card.document import Path_, is_number, json_path, lookup, numbers, walk
from cairn.card.words import all_words, bare, column, dataset, millions, stem, vocabulary

Key = tuple[str | None, str]
"""Benchmark (None where the document names none) and column of a cell."""


@dataclass(frozen=True)
class Cell:
    """One result: where it stands, its value as written, and its standard deviation where it has one."""

    path: Path_
    value: Decimal
    spread: Decimal | None = None
    low: Decimal | None = None
    high: Decimal | None = None


@dataclass(frozen=True)
class Row:
    """What was measured: its cells by benchmark and column, and the words that tell it from other rows.

    `path` is what its cells' paths share once benchmark and column are taken out; `place` is where the object
    around its first cell stands (the two differ where the benchmark stands above the system). `own`: the
    document says that the row is its own; None where it does not say whose it is. `table`: the path of the list
    or object that the row is one of. `means`: the cells are means over several runs.
    """

    path: Path_
    place: Path_
    name: str
    words: frozenset[str]
    own: bool | None
    table: Path_
    cells: Mapping[Key, Cell]

    @functools.cached_property
    def measures(self) -> tuple[str, ...]:
        """The measures that its path names, where the columns are slices: `("map",)`."""
        return tuple(kind for step in self.path if isinstance(step, str) and (kind := column(step)))

    @property
    def means(self) -> bool:
        return any(cell.spread is not None for cell in self.cells.values())


@dataclass(frozen=True)
class Table:
    """All rows of a document, and how telling each word is among them."""

    rows: tuple[Row, ...]
    document: Mapping[str, Any]
    weights: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def datasets(self) -> tuple[str, ...]:
        """Benchmarks in the order of the document."""
        return tuple(dict.fromkeys(key[0] for row in self.rows for key in row.cells if key[0] is not None))

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns in the order of the document."""
        return tuple(dict.fromkeys(key[1] for row in self.rows for key in row.cells))

    def weight(self, word: str) -> float:
        """0 for a word of every row, more for one of few."""
        return self.weights.get(word, 0.0)


def find_rows(document: Mapping[str, Any]) -> Table:
    """Every row of results in `document`."""
    cells: dict[tuple[Path_, str], dict[Key, Cell]] = defaultdict(dict)
    places: dict[tuple[Path_, str], Path_] = {}
    keys = _structural(document)
    for path, value in numbers(document):
        located = _locate(document, path, keys)
        if located is None:
            continue
        row, extra, key, cell_path = located
        measured = _measured(lookup(document, cell_path))
        cells[(row, extra)].setdefault(
            key, Cell(path, value, measured.get("spread"), measured.get("low"), measured.get("high"))
        )
        around = cell_path[:-1]
        places.setdefault((row, extra), row if around[: len(row)] == row else around)
    own_name = document.get("model") or document.get("name")
    rows = [
        _row(document, row, places[(row, extra)], extra, found, str(own_name) if own_name else "")
        for (row, extra), found in cells.items()
    ]
    return Table(tuple(rows), document, _weights(rows))


def column_of(key: str) -> tuple[str | None, str] | None:
    """(benchmark or None, column) that a key names: `M`, `mAP`, `roxford5k_M`."""
    direct = column(key)
    if direct is not None:
        return None, direct
    head, _, tail = key.rpartition("_")
    if head and dataset(head) is not None and column(tail) is not None:
        return dataset(head), str(column(tail))
    return None


def _locate(
    document: Mapping[str, Any], path: Path_, structural: frozenset[str]
) -> tuple[Path_, str, Key, Path_] | None:
    """Row path, distinguishing word (`plus1m` where the benchmark's key says so), cell key, cell path."""
    rest, forced = path, False
    if isinstance(rest[-1], int):  # [mean, standard deviation]
        if rest[-1] != 0 or not _is_pair(lookup(document, rest[:-1])):
            return None
        rest = rest[:-1]
    elif bare(str(rest[-1])) in vocabulary()["value_keys"] and len(rest) > 1:
        siblings = lookup(document, rest[:-1])
        if isinstance(siblings, Mapping) and siblings.get("unit", "percent") not in (
            "percent",
            "%",
            "fraction",
        ):
            return None
        rest = rest[:-1]
        forced = isinstance(siblings, Mapping) and bool({"number", "low", "interval"} & set(siblings))
    if not rest or not isinstance(rest[-1], str):
        return None
    cell_path = rest
    said = column_of(rest[-1])
    if said is None:
        if not forced:
            return None
        said = (None, bare(rest[-1]))
    named, kind = said
    rest = rest[:-1]
    extra = ""
    for index in range(len(rest) - 1, -1, -1):
        step = rest[index]
        if named is None and isinstance(step, str) and (dataset(step) or step in structural):
            named = dataset(step) or bare(step)
            extra = "plus1m" if millions(step) else ""
            rest = rest[:index] + rest[index + 1 :]
            break
    if named is None:
        holder = lookup(document, rest)
        for name in vocabulary()["dataset_fields"]:
            text = holder.get(name) if isinstance(holder, Mapping) else None
            if isinstance(text, str):
                named = dataset(text) or bare(text)
                extra = "plus1m" if millions(text) else ""
                break
    return rest, extra, (named, kind), cell_path


def _structural(document: Mapping[str, Any]) -> frozenset[str]:
    """Benchmarks that the vocabulary does not know.

    Keys under "benchmarks" or "datasets", and keys that stand over columns in two or more places.
    """
    parents: dict[str, set[Path_]] = defaultdict(set)
    for path, _ in numbers(document):
        steps = path[:-1] if isinstance(path[-1], int) else path
        if steps and isinstance(steps[-1], str) and bare(steps[-1]) in vocabulary()["value_keys"]:
            steps = steps[:-1]
        above, key = (steps[-2], steps[-1]) if len(steps) > 2 else (None, None)
        if isinstance(above, str) and isinstance(key, str) and column(key) and not column(above):
            parents[above].add(steps[:-2])
    listed = {
        key
        for path, value in walk(document)
        if path and path[-1] in ("benchmarks", "datasets") and isinstance(value, Mapping)
        for key in value
    }
    return frozenset(listed) | frozenset(key for key, places in parents.items() if len(places) > 1)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(is_number(item) for item in value)


def _measured(value: Any) -> dict[str, Decimal]:
    """Standard deviation and interval that stand beside a value."""
    if isinstance(value, list) and _is_pair(value):
        return {"spread": Decimal(value[1])}
    found: dict[str, Decimal] = {}
    if isinstance(value, Mapping):
        for key, item in value.items():
            if bare(key) in vocabulary()["spread_keys"] and is_number(item):
                found["spread"] = Decimal(item)
            elif key in ("low", "high") and is_number(item):
                found[key] = Decimal(item)
    return found


def _row(
    document: Mapping[str, Any],
    path: Path_,
    place: Path_,
    extra: str,
    cells: Mapping[Key, Cell],
    own_name: str,
) -> Row:
    labels = [extra, *(str(step) for step in path if isinstance(step, str))]
    names: list[str] = []
    for length in range(1, len(place) + 1):
        holder = lookup(document, place[:length])
        if isinstance(holder, Mapping) and (length == len(place) or isinstance(place[length - 1], int)):
            found = [str(holder[key]) for key in vocabulary()["names"] if isinstance(holder.get(key), str)]
            names = found or names
            labels += found
    if not names or (path and isinstance(path[-1], str)):
        tail = path[-1:] if path and " " in str(path[-1]) else path[-3:]
        name = " / ".join(str(step) for step in tail) or "the document"
    else:
        name = names[0]
    holder = lookup(document, place)
    source = holder.get("source") if isinstance(holder, Mapping) else None
    return Row(
        path=path,
        place=place,
        name=name if not extra else f"{name} (+1M)",
        words=_told_words(labels),
        own=_own(path, name, source, own_name),
        table=_table_of(path),
        cells=dict(cells),
    )


def _told_words(labels: Iterable[str]) -> frozenset[str]:
    """The words of a row; a re-ranker's name says that it re-ranks, "global only" that nothing does."""
    found = all_words(labels)
    if {"global", "only"} <= found:
        return found | {"¬rerank"}
    return found | {"rerank"} if found & {stem(name) for name in vocabulary()["rerankers"]} else found


def _own(path: Path_, name: str, source: Any, own_name: str) -> bool | None:
    if isinstance(source, str) and any(text in source.lower() for text in vocabulary()["own_sources"]):
        return True
    if own_name and bare(own_name) in bare(name):
        return True
    if path and isinstance(path[0], str) and bare(path[0]) in vocabulary()["own_keys"]:
        return True
    return False if isinstance(source, str) else None


def _table_of(path: Path_) -> Path_:
    for length in range(len(path) - 1, -1, -1):
        if isinstance(path[length], int):
            return path[:length]
    return path[:-1]


def _weights(rows: Iterable[Row]) -> dict[str, float]:
    rows = list(rows)
    counts = Counter(word for row in rows for word in row.words)
    return {word: math.log((len(rows) + 1) / count) for word, count in counts.items()}


def describe(row: Row, key: Key) -> str:
    """`decon ROXFORD hard at $.ours…`: a row and cell in words, for messages."""
    return f"{row.name} ({json_path(row.cells[key].path)})"
