"""The tables behind the plots: rows of plain values, from the results and the scores artifacts."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from cairn.files import atomic
from cairn.report.curves import POINTS, PRECISION_RECALL, THRESHOLDS
from cairn.report.words import MEAN, TAIL, headline, series_title, telling_slice, with_stage
from cairn.results.names import NONE, is_first
from cairn.results.scoring import CURVES_FILE
from cairn.results.show import slice_key
from cairn.results.table import SCORES_PATH, Result

Rows = list[dict[str, Any]]
_SIZED = re.compile(r"-\d+[km]$|-(?:full|core|mini)$")


@dataclass(frozen=True)
class Table:
    """One kind of plot: the columns of its rows in order, each with what it holds."""

    name: str
    columns: Mapping[str, str]


TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(
            "slices",
            {
                "benchmark": "benchmark",
                "series": "system and stage",
                "metric": "metric",
                "slice": "slice",
                "value": "value (percent)",
                "low": "95% from",
                "high": "95% to",
            },
        ),
        Table(
            PRECISION_RECALL,
            {
                "benchmark": "benchmark",
                "series": "system and stage",
                "slice": "slice",
                "recall": "recall (percent)",
                "precision": "precision (percent)",
                "score": "score",
            },
        ),
        Table(
            THRESHOLDS,
            {
                "benchmark": "benchmark",
                "series": "system and stage",
                "slice": "slice",
                "rate": "false-positive rate",
                "value": "mAP@1 (percent)",
                "threshold": "threshold",
            },
        ),
        Table(
            "gallery",
            {
                "benchmark": "benchmark",
                "series": "system and stage",
                "metric": "metric",
                "slice": "slice",
                "gallery": "images in the gallery",
                "value": "value (percent)",
                "low": "95% from",
                "high": "95% to",
            },
        ),
        Table(
            "tail",
            {
                "benchmark": "benchmark",
                "system": "system",
                "metric": "metric",
                "estimator": "estimator",
                "n": "distractors N",
                "value": "value (percent)",
                "low": "95% from",
                "high": "95% to",
            },
        ),
        Table(
            "seeds",
            {
                "benchmark": "benchmark",
                "series": "system, head and stage",
                "metric": "metric",
                "slice": "slice",
                "seed": "seed",
                "value": "value (percent)",
            },
        ),
        Table(
            "gains",
            {
                "benchmark": "benchmark",
                "series": "system and stage",
                "metric": "metric",
                "slice": "slice",
                "share": "share of queries (percent)",
                "gain": "gain (points)",
            },
        ),
    )
}


def plot_tables(root: Path, numbers: Sequence[Result]) -> dict[str, Rows]:
    """Name of each of TABLES → its rows (fractions as percent), those of all benchmarks in order."""
    runs = sorted({(row.name.benchmark, row.name.system) for row in numbers})
    return {
        "slices": list(_slices(numbers)),
        PRECISION_RECALL: list(_curves(root, runs, PRECISION_RECALL, "recall", "precision", "score")),
        THRESHOLDS: list(_curves(root, runs, THRESHOLDS, "rate", "value", "threshold")),
        "gallery": list(_gallery(numbers)),
        "tail": list(_tail(root, runs)),
        "seeds": list(_seeds(numbers)),
        "gains": list(_gains(root, runs)),
    }


def write_tables(root: Path, numbers: Sequence[Result], folder: Path) -> None:
    """Write every table as `NAME.csv` into `folder`, for `dvc plots`; an empty one has its header alone."""
    for name, rows in plot_tables(root, numbers).items():
        with atomic(folder / f"{name}.csv") as temporary, temporary.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(TABLES[name].columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _headlines(numbers: Iterable[Result]) -> dict[str, str]:
    metrics: dict[str, set[str]] = defaultdict(set)
    for row in numbers:
        if row.unit == "fraction" and not row.name.stage.startswith(TAIL):
            metrics[row.name.benchmark].add(row.name.metric)
    return {benchmark: headline(names) for benchmark, names in metrics.items()}


def _main(numbers: Sequence[Result]) -> list[Result]:
    """The numbers of each benchmark's headline metric, tail estimates left out."""
    chosen = _headlines(numbers)
    return [
        row
        for row in numbers
        if chosen.get(row.name.benchmark) == row.name.metric and not row.name.stage.startswith(TAIL)
    ]


def _slices(numbers: Sequence[Result]) -> Iterator[dict[str, Any]]:
    for row in sorted(
        _seed_means(_main(numbers)),
        key=lambda row: (row.name.benchmark, series_title(row), slice_key(row.name.slice)),
    ):
        yield {
            "benchmark": row.name.benchmark,
            "series": series_title(row),
            "metric": row.name.metric,
            "slice": row.name.slice,
            **_percents(row),
        }


def _seed_means(numbers: Iterable[Result]) -> Iterator[Result]:
    """`numbers`, those that differ in the seed alone as their mean, which has no interval over queries."""
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for row in numbers:
        name = row.name
        groups[(name.benchmark, name.system, name.head, name.stage, name.slice, name.metric)].append(row)
    for rows in groups.values():
        if len(rows) == 1:
            yield rows[0]
        else:
            name = replace(rows[0].name, seed=f"{MEAN}{len(rows)}-seeds")
            yield replace(rows[0], name=name, value=fmean(row.value for row in rows), low=None, high=None)


def _gallery(numbers: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Benchmarks that are one with galleries of several sizes (`roxford5k`, `roxford5k-1m`), under the smallest."""
    sizes: dict[tuple[str, ...], dict[int, Result]] = defaultdict(dict)
    for row in _seed_means(_main(numbers)):
        family = _SIZED.sub("", row.name.benchmark)
        key = (family, row.name.metric, row.name.slice, series_title(row))
        sizes[key][row.gallery_size] = row
    for (_, metric, piece, series), found in sorted(sizes.items()):
        if len(found) < 2:
            continue
        for size, row in sorted(found.items()):
            yield {
                "benchmark": found[min(found)].name.benchmark,
                "series": series,
                "metric": metric,
                "slice": piece,
                "gallery": size,
                **_percents(row),
            }


def _seeds(numbers: Sequence[Result]) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for row in _main(numbers):
        name = row.name
        if name.seed != NONE:
            title = f"{name.system} {name.head}".removesuffix(f" {NONE}")
            groups[(name.benchmark, with_stage(title, name.stage), name.metric, name.slice)].append(row)
    for (benchmark, series, metric, piece), rows in sorted(groups.items()):
        if len(rows) > 1:
            for row in rows:
                yield {
                    "benchmark": benchmark,
                    "series": series,
                    "metric": metric,
                    "slice": piece,
                    "seed": row.name.seed,
                    "value": _percent(row.value),
                }


def _curves(
    root: Path, runs: Sequence[tuple[str, str]], curve: str, x: str, y: str, score: str
) -> Iterator[dict[str, Any]]:
    for benchmark, system in runs:
        for row in _table(root / SCORES_PATH / benchmark / system / CURVES_FILE):
            if row["curve"] == curve:
                series = with_stage(system, row["stage"])
                yield {
                    "benchmark": benchmark,
                    "series": series,
                    "slice": row["slice"],
                    x: row["x"] if x == "rate" else _percent(row["x"]),
                    y: _percent(row["y"]),
                    score: float(f"{row['score']:.6g}"),
                }


def _tail(root: Path, runs: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    for benchmark, system in runs:
        for row in _table(root / SCORES_PATH / benchmark / system / CURVES_FILE):
            if row["curve"] == "tail":
                yield {
                    "benchmark": benchmark,
                    "system": system,
                    "metric": row["metric"],
                    "estimator": row["stage"].removeprefix(TAIL),
                    "n": int(row["x"]),
                    "value": _percent(row["y"]),
                    "low": None if row["low"] is None else _percent(row["low"]),
                    "high": None if row["high"] is None else _percent(row["high"]),
                }


def _gains(root: Path, runs: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """The gain of every query by each later stage over the first, sorted, thinned to POINTS quantiles."""
    for benchmark, system in runs:
        values, metric, piece = query_values(root / SCORES_PATH / benchmark / system / "per_query.parquet")
        first = next((found for stage, found in values.items() if is_first(stage)), {})
        for stage, later in values.items():
            gains = sorted(later[query] - first[query] for query in later if query in first)
            if is_first(stage) or not gains:
                continue
            places = np.linspace(0, len(gains) - 1, min(len(gains), POINTS)).round().astype(int)
            for place in places.tolist():
                yield {
                    "benchmark": benchmark,
                    "series": with_stage(system, stage),
                    "metric": metric,
                    "slice": piece,
                    "share": _percent((place + 0.5) / len(gains)),
                    "gain": _percent(gains[place]),
                }


def query_values(path: Path) -> tuple[dict[str, dict[str, float]], str, str]:
    """Stage → query → value of the metric and slice a leaderboard is sorted by, and what these are called.

    Empty where the file is missing or holds no value per query (pooled metrics have none).
    """
    rows = [row for row in _table(path) if row.get("value") is not None and "metric" in row]
    if not rows:
        return {}, "", ""
    metric = headline({row["metric"] for row in rows})
    piece = telling_slice({row["slice"] for row in rows if row["metric"] == metric})
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row["metric"] == metric and row["slice"] == piece:
            values[row["stage"]][row["query_id"]] = row["value"]
    return dict(values), metric, piece


def _table(path: Path) -> Rows:
    """The rows of a Parquet file of the project; none where it does not exist."""
    import pyarrow as pa

    from cairn.store.tables import read_table

    return read_table(path, pa.schema([]), extra_columns=True).to_pylist() if path.is_file() else []


def _percents(row: Result) -> dict[str, float | None]:
    return {
        "value": _percent(row.value),
        "low": None if row.low is None else _percent(row.low),
        "high": None if row.high is None else _percent(row.high),
    }


def _percent(fraction: float) -> float:
    return round(100 * fraction, 3)
