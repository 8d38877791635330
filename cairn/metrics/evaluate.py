"""Scores a ranking against a benchmark's ground truth, with per-query values and intervals over queries."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ParameterError
from cairn.metrics import ranked, revisitop
from cairn.metrics.interval import mean_interval
from cairn.metrics.judged import RankedRows, ranked_rows
from cairn.metrics.pooled import POOLED, pooled, score_disc21, score_track2
from cairn.metrics.protocols import BENCHMARKS, ilias_categories, positives_without_junk, sliced
from cairn.metrics.ragged import Floats
from cairn.metrics.result import PerQuery, Row, ScoredRun, mean_row

COPY_DETECTION = {"disc21": score_disc21, "disc21-track2": score_track2}
"""Protocols whose numbers are pooled over queries."""

Values = Callable[[Any, Any, Any, int], Floats]

AT_K: dict[str, Values] = {
    "map": ranked.average_precision,
    "mp": revisitop.precision_at,
    "precision": ranked.precision,
    "recall": ranked.recall,
    "hit": ranked.hit_rate,
    "ndcg": ranked.ndcg,
    "mrr": ranked.reciprocal_rank,
}
"""Metrics with a depth k: `name@k` in parameters."""
WHOLE = ("map", "ndcg", "mrr")
"""Metrics of the whole ranking: `name` in parameters."""


def known_protocols() -> tuple[str, ...]:
    """What a benchmark's `metrics` may name; K stands for a depth of at least 1."""
    return (*BENCHMARKS, *COPY_DETECTION, *WHOLE, "map-trapezoid", *(f"{name}@K" for name in AT_K), *POOLED)


@dataclass(frozen=True)
class Metric:
    """One metric asked for: its name as printed, its family, and its depth where it has one."""

    name: str
    family: str
    k: int | None = None


def parse_protocol(protocol: str | Sequence[str]) -> tuple[Metric, ...]:
    """The metrics named, in order: a list, or a string with commas or blanks between; else ParameterError."""
    asked = re.split(r"[,\s]+", protocol.strip()) if isinstance(protocol, str) else list(protocol)
    metrics = dict.fromkeys(_parse(str(name)) for name in asked if name)
    if not metrics:
        raise ParameterError(f"no metric is named; known: {', '.join(known_protocols())}")
    return tuple(metrics)


def _parse(name: str) -> Metric:
    lower = name.strip().lower().replace("_", "-")
    if lower in (*BENCHMARKS, *COPY_DETECTION, "map-trapezoid", *WHOLE, *POOLED):
        return Metric(lower, lower)
    family, _, depth = lower.partition("@")
    if family in AT_K and depth.isascii() and depth.isdigit() and 1 <= int(depth) <= 10**9:
        return Metric(f"{family}@{int(depth)}", family, int(depth))
    raise ParameterError(f"unknown metric {name!r}; known: {', '.join(known_protocols())}")


def score_ranking(
    ranking: Any,
    ground_truth: GroundTruth,
    protocol: str | Sequence[str],
    gallery_size: int,
    seed: int = 0,
    top: int | None = None,
    where: str = "ranking",
) -> ScoredRun:
    """Score `ranking` (columns query_id, rank from 0, image_id, score) by the metrics `protocol` names.

    The ranking holds each query's first `top` rows (found from the rows where None) and every judged image
    with its exact rank in a gallery of `gallery_size` images. Values are fractions in 0-1 with 95% bootstrap
    intervals over queries, drawn from `seed`. Slices: `easy`, `medium`, `hard` under `revisitop` (`all` where
    the ground truth has one grade of positives); `all`, each split and each `attribute-value` otherwise.

    The pooled metrics score each query's first `top` rows, at most 500,000 predictions in all (those that
    score best), junk taken out. Raises ParameterError for an unknown metric, ArtifactError for a ranking that
    does not fit the ground truth, InputError for a ground truth whose grades do not fit the protocol.
    """
    metrics = parse_protocol(protocol)
    rows = ranked_rows(ranking, ground_truth, gallery_size, top, where)
    per_query: list[PerQuery] = []
    pooled_rows: list[Row] = []
    for metric in metrics:
        if metric.family in BENCHMARKS:
            per_query.extend(BENCHMARKS[metric.family](rows, ground_truth))
            if metric.family == "ilias":
                pooled_rows.extend(ilias_categories(rows, ground_truth))
        elif metric.family in COPY_DETECTION:
            pooled_rows.extend(COPY_DETECTION[metric.family](rows, ground_truth, seed))
        elif metric.family in POOLED:
            pooled_rows.extend(pooled(rows, ground_truth, metric.family, seed))
        else:
            per_query.extend(sliced(_values(rows, metric), metric.name, rows.query_ids, ground_truth))
    per_query = _distinct(per_query)
    means = [mean_row(each, *mean_interval(each.values, seed)) for each in per_query]
    name = ",".join(metric.name for metric in metrics)
    return ScoredRun(name, (*means, *_distinct_rows(means, pooled_rows)), tuple(per_query))


def _distinct(per_query: list[PerQuery]) -> list[PerQuery]:
    """Each slice and metric once: `revisitop` with one grade gives `all`, as `mp@5` and `map` do."""
    kept: dict[tuple[str, str], PerQuery] = {}
    for each in per_query:
        first = kept.setdefault((each.slice, each.metric), each)
        if not np.array_equal(first.values, each.values, equal_nan=True):
            raise ParameterError(
                f"revisitop and {each.metric} both give a number {each.slice}/{each.metric}, by different "
                "definitions (AP by trapezoids and by rectangles); name one of them"
            )
    return list(kept.values())


def _distinct_rows(means: list[Row], pooled_rows: list[Row]) -> list[Row]:
    """Pooled rows once each; `disc21` has a recall@k of its own, over pairs and with ties."""
    kept: dict[tuple[str, str], Row] = {(row.slice, row.metric): row for row in means}
    taken = len(kept)
    for row in pooled_rows:
        if kept.setdefault((row.slice, row.metric), row) != row:
            raise ParameterError(
                f"disc21 and {row.metric} both give a number {row.slice}/{row.metric}, by different "
                "definitions (over true pairs and over queries); name one of them"
            )
    return list(kept.values())[taken:]


def _values(rows: RankedRows, metric: Metric) -> Floats:
    owner, position, n_positives = positives_without_junk(rows)
    if metric.family == "map-trapezoid":
        return revisitop.trapezoid_average_precision(owner, position, n_positives)
    return AT_K[metric.family](owner, position, n_positives, metric.k)  # type: ignore[arg-type]
