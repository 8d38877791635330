"""The tables that claims ask: cells in percent as printed, published rows, and how they stand to one another."""

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

from cairn.card.published import Published
from cairn.results.names import FIELDS, NONE
from cairn.results.show import HEADLINES
from cairn.results.table import Result

if TYPE_CHECKING:
    import duckdb

TWO_DECIMALS = Decimal("0.01")
# The slice that sentences are about: the hardest that a benchmark has.
TELLING_SLICES = ("hard", "all", "medium", "easy")

# A tail estimate is of a larger gallery: it is neither a headline nor beside what others published.
TAIL = "tail-"
# Rank 1 is the highest; a value is level with the best published one where that lies in its 95% interval.
_STANDING = """
CREATE OR REPLACE VIEW standing AS
WITH best AS (
  SELECT benchmark, slice, metric, max(percent) AS best_percent, count(*) AS published_rows,
  arg_max(system, percent) AS best_system, arg_max(source, percent) AS best_source
  FROM published GROUP BY benchmark, slice, metric),
ranked AS (
  SELECT *, percent = max(percent) OVER (PARTITION BY benchmark, system, head, seed, slice, metric) AS stage_is_best
  FROM cells WHERE NOT starts_with(stage, 'tail-'))
SELECT ranked.*, best_system, best_percent, best_source, published_rows + 1 AS rows,
1 + (SELECT count(*) FROM published AS other WHERE other.benchmark = ranked.benchmark
  AND other.slice = ranked.slice AND other.metric = ranked.metric AND other.percent > ranked.percent) AS rank,
CASE WHEN best_percent BETWEEN low_percent AND high_percent OR percent = best_percent THEN 'level'
  WHEN percent > best_percent THEN 'above' ELSE 'below' END AS verdict
FROM ranked JOIN best USING (benchmark, slice, metric)
"""


def percent(fraction: float) -> Decimal:
    """A fraction in percent with two decimals, as the card prints it; a half goes to the even digit.

    From the shortest decimal that is the number (what Python prints), so that 0.00125 is exactly a half.
    """
    if not math.isfinite(fraction):
        raise ValueError(f"{fraction} is not a fraction")
    return (Decimal(repr(float(fraction))) * 100).quantize(TWO_DECIMALS, ROUND_HALF_EVEN)


def label(result: Result) -> str:
    """System, head and seed in one: `dinov2-l`, `dinov2-l/decon/0`."""
    name = result.name
    return "/".join([name.system, *(part for part in (name.head, name.seed) if part != NONE)])


def register_tables(
    connection: "duckdb.DuckDBPyConnection", numbers: Sequence[Result], published: Iterable[Published]
) -> None:
    """Add `cells`, `published` and `standing` to a connection that has the views of the results."""
    import pyarrow as pa

    decimal = pa.decimal128(9, 2)
    text, flag, count = pa.string(), pa.bool_(), pa.int64()
    cells = pa.schema(
        [
            ("number", text),
            ("label", text),
            *((field, text) for field in FIELDS),
            ("percent", decimal),
            ("low_percent", decimal),
            ("high_percent", decimal),
            ("n_queries", count),
            ("gallery_size", count),
            ("headline", flag),
        ]
    )
    rows = pa.schema(
        [
            ("system", text),
            ("stage", text),
            ("shortlist", count),
            ("benchmark", text),
            ("slice", text),
            ("metric", text),
            ("percent", decimal),
            ("source", text),
            ("uses_dinov2", flag),
        ]
    )
    connection.register("cells", pa.Table.from_pylist(_cells(numbers), schema=cells))
    connection.register("published", pa.Table.from_pylist(_published(published), schema=rows))
    connection.execute(_STANDING.replace("VIEW", "TEMP VIEW"))


def headlines(numbers: Iterable[Result]) -> dict[str, tuple[str, str]]:
    """Benchmark → the metric and the slice that its sentences are about."""
    seen: dict[str, set[tuple[str, str]]] = {}
    for result in numbers:
        if result.unit == "fraction" and not result.name.stage.startswith(TAIL):
            seen.setdefault(result.name.benchmark, set()).add((result.name.metric, result.name.slice))
    chosen = {}
    for benchmark, pairs in seen.items():
        metrics = {metric for metric, _ in pairs}
        metric = next((name for name in HEADLINES if name in metrics), min(metrics))
        slices = {piece for name, piece in pairs if name == metric}
        chosen[benchmark] = (metric, next((name for name in TELLING_SLICES if name in slices), min(slices)))
    return chosen


def _cells(numbers: Sequence[Result]) -> list[dict[str, Any]]:
    telling = headlines(numbers)
    return [
        {
            "number": str(result.name),
            "label": label(result),
            **dict(zip(FIELDS, result.name.fields, strict=True)),
            "percent": percent(result.value),
            "low_percent": None if result.low is None else percent(result.low),
            "high_percent": None if result.high is None else percent(result.high),
            "n_queries": result.n_queries,
            "gallery_size": result.gallery_size,
            "headline": telling.get(result.name.benchmark) == (result.name.metric, result.name.slice)
            and not result.name.stage.startswith(TAIL),
        }
        for result in numbers
        if result.unit == "fraction"
    ]


def _published(rows: Iterable[Published]) -> list[dict[str, Any]]:
    return [
        {
            "system": row.system,
            "stage": row.stage,
            "shortlist": row.shortlist,
            "benchmark": benchmark,
            "slice": piece,
            "metric": row.metric,
            "percent": value,
            "source": row.source,
            "uses_dinov2": row.uses_dinov2,
        }
        for row in rows
        for benchmark, values in row.values.items()
        for piece, value in values.items()
    ]
