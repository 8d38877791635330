"""Metrics of ranked lists, ties already broken: AP, AP@k, precision, recall, hit rate, nDCG, MRR.

All take what `revisitop.positions_without_junk` gives: `owner` [n] (query of each positive, ascending),
`position` [n] (from 0, ascending within a query, junk taken out) and `n_positives` [queries]. All return
[queries] fractions in 0-1, NaN for a query without positives: it is left out of the mean.

Definitions (Manning, Raghavan and Schütze, "Introduction to Information Retrieval", 2008, chapter 8; for AP@k
Weyand et al., "Google Landmarks Dataset v2", CVPR 2020; for nDCG Järvelin and Kekäläinen, 2002,
gain 0 or 1 and discount 1/log2(position + 2); for the hit rate Arandjelović et al., "NetVLAD", CVPR 2016,
where place recognition calls it recall@N).
"""

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import (
    Floats,
    Ints,
    count_per_query,
    divide,
    max_per_query,
    place_within,
    sum_per_query,
)


def average_precision(owner: Ints, position: Ints, n_positives: NDArray, k: int | None = None) -> Floats:
    """Sum of the precision at each positive within k, over min(#positives, k): AP by rectangles."""
    precision = (place_within(owner) + 1) / (position + 1)
    if k is None:
        return divide(sum_per_query(owner, precision, len(n_positives)), n_positives)
    counted = position < k
    total = sum_per_query(owner[counted], precision[counted], len(n_positives))
    return divide(total, np.minimum(n_positives, k))


def precision(owner: Ints, position: Ints, n_positives: NDArray, k: int) -> Floats:
    """Share of positives among the first k; the divisor is k however short the list."""
    return np.where(n_positives > 0, _found(owner, position, len(n_positives), k) / k, np.nan)


def recall(owner: Ints, position: Ints, n_positives: NDArray, k: int) -> Floats:
    """Share of the query's positives that are within the first k."""
    return divide(_found(owner, position, len(n_positives), k), n_positives)


def hit_rate(owner: Ints, position: Ints, n_positives: NDArray, k: int) -> Floats:
    """1 where any positive is within the first k, else 0 (place recognition's recall@N)."""
    return np.where(n_positives > 0, _found(owner, position, len(n_positives), k) > 0, np.nan)


def ndcg(owner: Ints, position: Ints, n_positives: NDArray, k: int | None = None) -> Floats:
    """Discounted gain of the positives within k, over that of the best possible ranking within k."""
    n_positives = np.asarray(n_positives, np.int64)
    counted = np.ones(len(position), bool) if k is None else position < k
    gain = sum_per_query(owner[counted], 1 / np.log2(position[counted] + 2.0), len(n_positives))
    reachable = n_positives if k is None else np.minimum(n_positives, k)
    best = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(reachable.max(initial=0)) + 2.0))])
    return divide(gain, best[reachable])


def reciprocal_rank(owner: Ints, position: Ints, n_positives: NDArray, k: int | None = None) -> Floats:
    """1 / (position of the first positive + 1); 0 where it is not within k."""
    counted = np.ones(len(position), bool) if k is None else position < k
    first = -max_per_query(owner[counted], -position[counted] - 1, len(n_positives), empty=-(2**62))
    return np.where(n_positives > 0, np.where(first < 2**62, 1 / first, 0.0), np.nan)


def _found(owner: Ints, position: Ints, n_queries: int, k: int) -> Ints:
    return count_per_query(owner[position < k], n_queries)
