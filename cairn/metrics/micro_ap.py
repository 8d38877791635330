"""Copy detection (DISC21): micro-AP over all predictions at once, recall at a precision, recall at a rank.

Definition (Douze et al., "The 2021 Image Similarity Dataset and Challenge", 2021; official code
`isc2021/isc/metrics.py`, `precision_recall`, `average_precision`, `find_operating_point`, `find_tp_ranks`):

- All predictions (query, reference, score) of all queries are put in one order: score descending, and among
  equal scores the false ones first, so that equal scores never help. Queries without a match (distractor
  queries) have predictions too, all false.
- micro-AP = sum over true predictions of the precision down to it, over the number of true pairs that exist.
- Recall at precision 90: the largest recall among the points of that order whose precision is at least 0.9;
  its threshold is the score there. Where no point reaches 0.9, neither exists.
- Recall at rank k: share of all true pairs predicted with fewer than k other predictions of their query
  scoring as high or higher (ties count against).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Bools, Floats, Ints

PRECISION = 0.9
LIMIT = 500_000
"""The largest number of predictions the challenge admits."""
MAX_DIM = 256
"""The most dimensions a descriptor may have in the challenge's track 2."""


@dataclass(frozen=True)
class TruePoints:
    """The true predictions in the official order: all that the precision-recall curve turns on."""

    index: Ints  # [true] index of each into the predictions as given
    place: Ints  # [true] place of each among all predictions in the official order, from 0


def true_points(score: NDArray[np.floating], correct: Bools) -> TruePoints:
    """Put predictions into the official order; `score`, `correct` [n], scores finite."""
    order = np.lexsort((correct, -score))
    place = np.flatnonzero(correct[order])
    return TruePoints(order[place], place)


def micro_average_precision(points: TruePoints, n_positives: int) -> float:
    """micro-AP in 0-1; NaN where no true pair exists. `n_positives`: true pairs, predicted or not."""
    if not n_positives:
        return float("nan")
    return float(_precision(points).sum() / n_positives)


def recall_at_precision(
    points: TruePoints, score: NDArray[np.floating], n_positives: int, least: float = PRECISION
) -> tuple[float, float]:
    """Largest recall with precision at least `least`, and the score there; NaN, NaN where none has it.

    Recall grows at true predictions only, and precision falls between them: no other point need be looked at.
    """
    reached = np.flatnonzero(_precision(points) >= least)
    if not len(reached) or not n_positives:
        return float("nan"), float("nan")
    last = int(reached[-1])
    return (last + 1) / n_positives, float(score[points.index[last]])


def pessimistic_ranks(query: NDArray[np.integer], score: NDArray[np.floating], index: Ints) -> Ints:
    """For the predictions `index` [m]: how many others of the same query score as high or higher, [m]."""
    order = np.lexsort((-score, query))
    by_query, by_score = query[order], score[order]
    start = np.searchsorted(by_query, query[index], side="left")
    # Entries of one query and one score form a run; its end is where the next run starts.
    run_end = np.flatnonzero(np.append((np.diff(by_query) != 0) | (np.diff(by_score) != 0), True)) + 1
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return run_end[np.searchsorted(run_end, place[index], side="right")] - start - 1


def resampled(
    points: TruePoints,
    query: NDArray[np.integer],
    n_positives: NDArray[np.integer],
    counts: NDArray[np.uint8],
    least: float = PRECISION,
) -> tuple[Floats, Floats]:
    """micro-AP and recall at precision under resampled queries, [resamples] each.

    `query` [n] of every prediction in the official order; `n_positives` [queries]; `counts`
    [resamples, queries] how often each query is drawn. A query drawn twice has its predictions twice.
    """
    average = np.full(len(counts), np.nan)
    recall = np.full(len(counts), np.nan)
    for row, drawn in enumerate(counts):
        drawn = drawn.astype(np.float64)
        existing = float(drawn @ n_positives)
        if not existing:
            continue
        average[row] = recall[row] = 0.0
        if len(points.place):
            weight = drawn[query]
            seen = np.cumsum(weight)[points.place]
            true_weight = weight[points.place]
            true_seen = np.cumsum(true_weight)
            precision = np.divide(true_seen, seen, out=np.zeros(len(seen)), where=seen > 0)
            average[row] = (true_weight * precision).sum() / existing
            recall[row] = np.max(true_seen, where=precision >= least, initial=0.0) / existing
    return average, recall


def _precision(points: TruePoints) -> Floats:
    return (np.arange(len(points.place)) + 1) / (points.place + 1)
