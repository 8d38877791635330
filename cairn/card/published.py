"""The results of others that Cairn ships: for the card's comparison, and to check who quotes them."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from cairn.card.document import lookup
from cairn.card.finding import Finding, found
from cairn.card.rows import Table
from cairn.card.words import column, dataset, words

PUBLISHED = Path(__file__).with_name("published.yaml")
_ARXIV = re.compile(r"\b\d{4}\.\d{4,5}\b")


@dataclass(frozen=True)
class Published:
    """One row of another's paper. `values`: benchmark → slice → percent as printed.

    `shortlist`: how many images the second stage reorders, None where there is none or it is not given.
    """

    system: str
    stage: str
    shortlist: int | None
    values: Mapping[str, Mapping[str, Decimal]]
    metric: str
    source: str
    uses_dinov2: bool
    note: str
    via: str


@functools.cache
def published_rows() -> tuple[Published, ...]:
    """The shipped rows in the order of the file."""
    import yaml

    content = yaml.safe_load(PUBLISHED.read_text("utf-8"))
    return tuple(_row(entry, content) for entry in content["rows"])


def check_published(document: Mapping, table: Table) -> Iterator[Finding]:
    """Whether rows that the document takes from a paper are those that Cairn has from it.

    The same paper (its arXiv number) and the same words of the system's name make the same row.
    """
    for row in table.rows:
        holder = lookup(document, row.place)
        source = holder.get("source") if isinstance(holder, Mapping) else None
        identifiers = set(_ARXIV.findall(source)) if isinstance(source, str) else set()
        for known in published_rows() if identifiers and not row.own else ():
            if not identifiers & set(_ARXIV.findall(known.source)) or words(known.system) != words(row.name):
                continue
            ours = {
                (dataset(benchmark), column(piece)): value
                for benchmark, values in known.values.items()
                for piece, value in values.items()
            }
            shared = [key for key in row.cells if key in ours]
            differing = [key for key in shared if row.cells[key].value != ours[key]]
            for key in differing:
                cell = row.cells[key]
                text = f"{row.name}: {cell.value} ({key[0]}, {key[1]}); Cairn has {ours[key]} from {known.source}"
                yield found("warning", "published", cell.path, text)
            if shared and not differing:
                text = f"{row.name}: {len(shared)} values as Cairn has them from {known.source}"
                yield found("right", "published", row.place, text)


def _row(entry: Mapping[str, Any], content: Mapping[str, Any]) -> Published:
    return Published(
        system=entry["system"],
        stage=entry["stage"],
        shortlist=entry["shortlist"],
        values={
            benchmark: {piece: Decimal(str(value)) for piece, value in values.items()}
            for benchmark, values in entry["values"].items()
        },
        metric=content["metric"],
        source=entry["source"],
        uses_dinov2=entry["uses_dinov2"],
        note=entry.get("note", ""),
        via=content["via"],
    )
