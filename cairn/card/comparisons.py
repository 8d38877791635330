"""Checks that a comparison compares like with like: shortlist sizes, and rows that have no second stage."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cairn.card.document import Path_, is_number, json_path, lookup
from cairn.card.finding import Finding, found
from cairn.card.rows import Row, Table

_TOP = re.compile(r"\b(?:top|k)[ _-]?k?[ _-]?=?\s?(\d{2,6})\b", re.IGNORECASE)
_SIZE_KEYS = ("shortlist", "topk", "top_k", "k", "shortlist_size")
_ONLY = re.compile(
    r"\bonly (?:rows|systems|methods|results) that re-?rank (?:a |the )?top-?(?P<size>\d+)", re.IGNORECASE
)


@dataclass(frozen=True)
class Shortlist:
    """What a row says about its second stage: `size` is None where it gives none, `reranks` whether it has one."""

    row: Row
    size: int | None
    reranks: bool


def check_comparisons(document: Mapping, table: Table, statements: Sequence[Finding]) -> Iterator[Finding]:
    """Findings about every list of rows, and about the sentences that compare two of its rows."""
    tables: dict[Path_, list[Shortlist]] = defaultdict(list)
    for row in table.rows:
        if row.place and isinstance(row.place[-1], int):
            tables[row.table].append(_shortlist(document, row))
    for place, shortlists in tables.items():
        stated = _stated(document, place)
        yield from _rows(place, shortlists, stated)
        yield from _compared(shortlists, statements)


def _rows(
    place: Path_, shortlists: Sequence[Shortlist], stated: tuple[Path_, int] | None
) -> Iterator[Finding]:
    sizes = {item.size for item in shortlists if item.reranks and item.size is not None}
    if stated is not None:
        note, size = stated
        said = f"only rows that rerank a top-{size} shortlist are said to be compared"
        for item in shortlists:
            if not item.reranks:
                text = f"{said}; {item.row.name} does not rerank"
                yield found("warning", "shortlist", item.row.place, text, [note])
            elif item.size is None:
                text = f"{said}; {item.row.name} does not give its shortlist size"
                yield found("warning", "shortlist", item.row.place, text, [note])
            elif item.size != size:
                text = f"{said}; {item.row.name} reranks {item.size:,}"
                yield found("error", "shortlist", item.row.place, text, [note])
    elif len(sizes) > 1:
        listed = ", ".join(f"{size:,}" for size in sorted(sizes))
        text = f"rows with shortlists of {listed} stand in one comparison"
        yield found("warning", "shortlist", place, text, [item.row.place for item in shortlists])


def _compared(shortlists: Sequence[Shortlist], statements: Iterable[Finding]) -> Iterator[Finding]:
    """Differences between rows of unlike, or unknown, shortlists."""
    by_path = {json_path(cell.path): item for item in shortlists for cell in item.row.cells.values()}
    told: set[tuple[str, Path_]] = set()
    for finding in statements:
        if finding.rule not in ("difference", "best", "level") or finding.severity not in (
            "right",
            "warning",
        ):
            continue
        rows = [by_path[path] for path in finding.related if path in by_path]
        if len(rows) < 2 or not all(item.reranks for item in rows[:2]):
            continue
        first, second = rows[:2]
        if first.size == second.size or (finding.path, second.row.path) in told:
            continue
        told.add((finding.path, second.row.path))
        sizes = " and ".join(
            "one not given" if item.size is None else f"top-{item.size:,}" for item in rows[:2]
        )
        text = f"compares {first.row.name} with {second.row.name}: shortlists {sizes}"
        yield Finding("warning", "shortlist", finding.path, text, (json_path(second.row.path),))


def _shortlist(document: Mapping, row: Row) -> Shortlist:
    around = lookup(document, row.place)
    holder: Mapping = around if isinstance(around, Mapping) else {}
    size = None
    for key in _SIZE_KEYS:
        if is_number(holder.get(key)):
            size = int(holder[key])
    for key in ("system", "name", "method", "stage", "model"):
        match = _TOP.search(holder[key]) if isinstance(holder.get(key), str) else None
        if match and size is None:
            size = int(match.group(1))
    return Shortlist(row, size, "rerank" in row.words or size is not None)


def _stated(document: Mapping, place: Path_) -> tuple[Path_, int] | None:
    """The size that a text beside the list says all rows have."""
    around = lookup(document, place[:-1])
    if isinstance(around, Mapping):
        for key, value in around.items():
            match = _ONLY.search(value) if isinstance(value, str) else None
            if match:
                return place[:-1] + (key,), int(match.group("size"))
    return None
