"""Scores a ranking against a benchmark's ground truth, with per-query values and intervals over queries."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import InputError, ParameterError
from cairn.metrics import micro_ap, ranked, revisitop
from cairn.metrics.interval import draw_counts, mean_interval, percentiles
from cairn.metrics.judged import RankedRows, ranked_rows
from cairn.metrics.ragged import Bools, Floats
from cairn.metrics.result import PerQuery, Row, ScoredRun, existing, mean_row

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
POOLED = ("micro-ap", "recall@p90", "threshold@p90")
"""Metrics over the predictions of all queries at once."""
POSITIVES = ("positive", "easy", "hard")


def known_protocols() -> tuple[str, ...]:
    """What a benchmark's `metrics` may name; K stands for a depth of at least 1."""
    return ("revisitop", *WHOLE, "map-trapezoid", *(f"{name}@K" for name in AT_K), *POOLED)


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
    if lower in ("revisitop", "map-trapezoid", *WHOLE, *POOLED):
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
    the ground truth has one grade of positives); `all`, each split and each `attribute:value` otherwise.

    The pooled metrics score each query's first `top` rows, at most 500,000 predictions in all (those that
    score best), junk taken out. Raises ParameterError for an unknown metric, ArtifactError for a ranking that
    does not fit the ground truth, InputError for a ground truth whose grades do not fit the protocol.
    """
    metrics = parse_protocol(protocol)
    rows = ranked_rows(ranking, ground_truth, gallery_size, top, where)
    per_query: list[PerQuery] = []
    pooled: list[Row] = []
    for metric in metrics:
        if metric.family == "revisitop":
            per_query.extend(_revisitop(rows))
        elif metric.family in POOLED:
            pooled.extend(_pooled(rows, ground_truth, metric.family, seed))
        else:
            values = _values(rows, metric)
            per_query.extend(_sliced(values, metric.name, rows.query_ids, ground_truth))
    per_query = _distinct(per_query)
    means = [mean_row(each, *mean_interval(each.values, seed)) for each in per_query]
    name = ",".join(metric.name for metric in metrics)
    return ScoredRun(name, (*means, *pooled), tuple(per_query))


def _revisitop(rows: RankedRows) -> Iterator[PerQuery]:
    graded = bool(rows.n_with("easy", "hard").sum())
    if graded and rows.n_with("positive").sum():
        raise InputError(
            "the ground truth mixes the grade positive with easy and hard; "
            "the protocol revisitop needs one kind or the other"
        )
    setups = revisitop.SETUPS if graded else {"all": (("positive",), ("junk",))}
    for setup, (positives, junk) in setups.items():
        scores = revisitop.score_setup(
            rows.query, rows.rank, rows.has(*positives), rows.has(*junk), rows.n_with(*positives)
        )
        yield PerQuery(setup, "map", rows.query_ids, scores.average_precision)
        for column, kappa in enumerate(revisitop.KAPPAS):
            yield PerQuery(setup, f"mp@{kappa}", rows.query_ids, scores.precision_at[:, column])


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


def _values(rows: RankedRows, metric: Metric) -> Floats:
    owner, position = revisitop.positions_without_junk(
        rows.query, rows.rank, rows.has(*POSITIVES), rows.has("junk")
    )
    n_positives = rows.n_with(*POSITIVES)
    if metric.family == "map-trapezoid":
        return revisitop.trapezoid_average_precision(owner, position, n_positives)
    return AT_K[metric.family](owner, position, n_positives, metric.k)  # type: ignore[arg-type]


def _sliced(
    values: Floats, metric: str, query_ids: tuple[str, ...], truth: GroundTruth
) -> Iterator[PerQuery]:
    for name, members in slices(truth):
        chosen = tuple(query_ids[i] for i in np.flatnonzero(members))
        yield PerQuery(name, metric, chosen, values[members])


def slices(truth: GroundTruth) -> Iterator[tuple[str, Bools]]:
    """`all`, every split (of two or more), every `attribute:value`; each with its queries as a mask."""
    queries = truth.queries
    yield "all", np.ones(len(queries), bool)
    splits = [query.split for query in queries]
    names = sorted({split for split in splits if split is not None})
    if len(set(splits)) > 1:
        for name in names:
            yield name, np.array([split == name for split in splits], bool)
    for attribute in truth.attribute_names():
        values = [truth.attributes.get(query.query_id, {}).get(attribute) for query in queries]
        for value in sorted({value for value in values if value is not None}):
            yield f"{attribute}:{value}", np.array([each == value for each in values], bool)


def _pooled(rows: RankedRows, truth: GroundTruth, family: str, seed: int) -> Iterator[Row]:
    shown = (rows.rank < rows.top) & ~rows.has("junk")
    for name, members in slices(truth):
        kept = np.flatnonzero(shown & members[rows.query])
        if len(kept) > micro_ap.LIMIT:
            kept = np.sort(kept[np.argsort(-rows.score[kept], kind="stable")[: micro_ap.LIMIT]])
        score, correct = rows.score[kept], rows.has(*POSITIVES)[kept]
        order = np.lexsort((correct, -score))
        points = micro_ap.true_points(score, correct)
        existing_pairs = np.where(members, rows.n_with(*POSITIVES), 0)[members]
        total = int(existing_pairs.sum())
        renumbered = (np.cumsum(members) - 1)[rows.query[kept]][order]
        n_queries = int(members.sum())
        low = high = None
        recall, threshold = micro_ap.recall_at_precision(points, score, total)
        if family == "threshold@p90":
            value = threshold
        else:
            value = recall if family == "recall@p90" else micro_ap.micro_average_precision(points, total)
            if n_queries > 1 and total:
                drawn = draw_counts(n_queries, seed)
                averages, recalls = micro_ap.resampled(points, renumbered, existing_pairs, drawn)
                low, high = percentiles(recalls if family == "recall@p90" else averages)
        yield Row(name, family, existing(value), n_queries, low, high)
