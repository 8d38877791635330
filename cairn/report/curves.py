"""The curves behind pooled numbers: precision against recall, and mAP at each threshold of t-mAP."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.metrics import forb, micro_ap
from cairn.metrics.evaluate import COPY_DETECTION, parse_protocol
from cairn.metrics.judged import RankedRows, ranked_rows
from cairn.metrics.pooled import POOLED, predictions
from cairn.metrics.protocols import POSITIVES, outside_tops, slices

PRECISION_RECALL = "precision-recall"
THRESHOLDS = "thresholds"
POINTS = 200
"""The largest number of points kept of a curve: more cannot be told apart on a screen."""


def has_curves(protocol: str) -> bool:
    """Whether `curve_rows` gives anything for `protocol`."""
    return any(metric.family in (*COPY_DETECTION, "forb", *POOLED) for metric in parse_protocol(protocol))


def curve_rows(
    ranking: Any, truth: GroundTruth, protocol: str, gallery_size: int, where: str = "ranking"
) -> list[dict[str, Any]]:
    """Points of the curves that `protocol` has: curve, slice, metric, x, y, score; none for a mean over queries.

    `precision-recall` (DISC21 and the pooled metrics): x recall, y precision down to a true prediction with that
    score, in the order of `cairn.metrics.micro_ap`. `thresholds` (FORB): x false-positive rate, y mAP@1 of the
    candidates that score at least the threshold of that rate, whose mean over x is t-mAP@1.
    """
    families = {metric.family for metric in parse_protocol(protocol)}
    if not has_curves(protocol):
        return []
    rows = ranked_rows(ranking, truth, gallery_size, where=where)
    made: list[dict[str, Any]] = []
    if families & {*COPY_DETECTION, *POOLED}:
        made += _precision_recall(rows, truth)
    if "forb" in families:
        made += _thresholds(rows, truth)
    return made


def _precision_recall(rows: RankedRows, truth: GroundTruth) -> Iterator[dict[str, Any]]:
    for name, members in slices(truth):
        pairs = int(rows.n_with(*POSITIVES)[members].sum())
        kept = predictions(rows, members)
        score = rows.score[kept]
        points = micro_ap.true_points(score, rows.has(*POSITIVES)[kept])
        if not pairs or not len(points.place):
            continue
        found = np.arange(len(points.place)) + 1
        precision = found / (points.place + 1)
        for place in _thinned(precision):
            yield {
                "curve": PRECISION_RECALL,
                "slice": name,
                "metric": "micro-ap",
                "x": float(found[place] / pairs),
                "y": float(precision[place]),
                "score": float(score[points.index[place]]),
            }


def _thinned(precision: np.ndarray) -> list[int]:
    """At most POINTS places, first and last among them, and the last with a precision of 0.9."""
    count = len(precision)
    if count <= POINTS:
        return list(range(count))
    chosen = set(np.linspace(0, count - 1, POINTS - 1).round().astype(int).tolist())
    reached = np.flatnonzero(precision >= micro_ap.PRECISION)
    return sorted(chosen | ({int(reached[-1])} if len(reached) else set()))


def _thresholds(rows: RankedRows, truth: GroundTruth) -> Iterator[dict[str, Any]]:
    """mAP@1 at each of the 11 thresholds; nothing where t-mAP has no value (see `score_forb`)."""
    n_positives = rows.n_with(*POSITIVES)
    if not truth.image_attributes or rows.reranked or not n_positives.any():
        return
    listed = rows.rank < rows.top
    query, score, correct = rows.query[listed], rows.score[listed], rows.has(*POSITIVES)[listed]
    inside = np.array([of.get("out-of-distribution") == "no" for of in truth.image_attributes.values()])
    tops = outside_tops(rows, ~((rows.annotated >= 0) & inside[rows.annotated]) & listed)
    if np.isinf(tops).any():
        return
    for rate, level in zip(forb.RATES, forb.thresholds(tops), strict=True):
        kept = score >= level
        hits = forb.correct_candidates(query[kept], correct[kept], n_positives)
        values = forb.average_precision(query[kept], hits, n_positives, 1)
        yield {
            "curve": THRESHOLDS,
            "slice": "overall",
            "metric": "t-map@1",
            "x": round(float(rate), 1),
            "y": float(values.mean()),
            "score": float(level),
        }
