"""What a scoring gives: values per query first, one row per mean second."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.metrics.ragged import Floats

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PerQuery:
    """One metric of one slice for every query of the slice; NaN = the query is left out of the mean."""

    slice: str
    metric: str
    query_ids: tuple[str, ...]
    values: Floats  # [queries]


@dataclass(frozen=True)
class Row:
    """One number: a fraction in 0-1 (a threshold as it is), None where it does not exist."""

    slice: str
    metric: str
    value: float | None
    n_queries: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ScoredRun:
    """A scored run: `per_query` is the primary result, `rows` its means and the pooled numbers."""

    protocol: str
    rows: tuple[Row, ...]
    per_query: tuple[PerQuery, ...]
    warnings: tuple[str, ...] = ()

    def value(self, slice_name: str, metric: str) -> float | None:
        """The value of one row; KeyError where there is none of that name."""
        for row in self.rows:
            if (row.slice, row.metric) == (slice_name, metric):
                return row.value
        raise KeyError((slice_name, metric))


def mean_row(values: PerQuery, low: float | None = None, high: float | None = None) -> Row:
    """The mean over the queries that count."""
    counted = values.values[~np.isnan(values.values)]
    value = float(counted.mean()) if len(counted) else None
    return Row(values.slice, values.metric, value, len(counted), low, high)


def scored(protocol: str, per_query: Iterable[PerQuery], warnings: Iterable[str] = ()) -> ScoredRun:
    """A scored run all of whose rows are means over queries."""
    values = tuple(per_query)
    return ScoredRun(protocol, tuple(mean_row(each) for each in values), values, tuple(warnings))


def existing(value: float | None) -> float | None:
    """`value` as a plain float, None where it does not exist (NaN)."""
    return None if value is None or math.isnan(value) else float(value)


def as_json(run: ScoredRun, per_query: bool = False) -> dict[str, Any]:
    """The object `cairn score --json` prints: protocol, rows, warnings, and per-query values if asked."""
    result: dict[str, Any] = {
        "protocol": run.protocol,
        "rows": [
            {"slice": row.slice, "metric": row.metric, "value": row.value, "n_queries": row.n_queries}
            for row in run.rows
        ],
        "warnings": list(run.warnings),
    }
    if per_query:
        result["per_query"] = nested = {}
        for each in run.per_query:
            pairs = zip(each.query_ids, each.values.tolist(), strict=True)
            nested.setdefault(each.slice, {})[each.metric] = {name: existing(v) for name, v in pairs}
    return result


def rows_table(run: ScoredRun) -> "pa.Table":
    """The rows as a table: slice, metric, value, low, high (null = does not exist), n_queries."""
    import pyarrow as pa

    columns = {
        "slice": pa.array([row.slice for row in run.rows], pa.string()),
        "metric": pa.array([row.metric for row in run.rows], pa.string()),
        "value": pa.array([row.value for row in run.rows], pa.float64()),
        "low": pa.array([row.low for row in run.rows], pa.float64()),
        "high": pa.array([row.high for row in run.rows], pa.float64()),
        "n_queries": pa.array([row.n_queries for row in run.rows], pa.int64()),
    }
    return pa.table(columns)


def per_query_table(run: ScoredRun) -> "pa.Table":
    """The per-query values as a table: slice, metric, query_id, value (null = left out)."""
    import pyarrow as pa

    parts = [
        pa.table(
            {
                "slice": pa.array([each.slice] * len(each.query_ids), pa.string()),
                "metric": pa.array([each.metric] * len(each.query_ids), pa.string()),
                "query_id": pa.array(list(each.query_ids), pa.string()),
                "value": pa.array(each.values, pa.float64(), from_pandas=True),
            }
        )
        for each in run.per_query
    ]
    names = ("slice", "metric", "query_id")
    schema = pa.schema([*((name, pa.string()) for name in names), ("value", pa.float64())])
    return pa.concat_tables(parts) if parts else schema.empty_table()
