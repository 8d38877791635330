"""The exact law of a metric at any gallery size, given each positive's hardness.

A positive is the i-th best of its query (i = 1 is the best) and x is the probability that a random distractor
scores at least as high: its *hardness*. The number of N distractors in front of it is B ~ Binomial(N, x), its
rank i + B, its precision i/(i+B).

    AP@K(N) = 1/min(K, R) * sum_i E[ i/(i+B_i) ; i+B_i <= K ],    R positives of the query

The expectation is summed exactly (no simulation); linear in the positives, so no joint law is needed.
Source of the metric: Philbin et al., CVPR 2007 (AP); the binomial law of ranks under a random gallery:
Krichene and Rendle, KDD 2020.
"""

import numpy as np
from numba import prange

from cairn.tail.compiled import compiled

# Beyond this many standard deviations a binomial has no mass a double could hold beside its mode.
_SPREAD = 12.0


def expected_precision(
    hardness: np.ndarray, index: np.ndarray, gallery: float, cutoff: float, before: np.ndarray | None = None
) -> np.ndarray:
    """E[ i/(i+b+B) ; i+b+B <= K ] with B ~ Binomial(N, x): float64 [P], absolute error below 1e-9.

    `hardness` x in [0, 1] [P]; `index` i > 0 [P]; `gallery` N >= 0; `cutoff` K >= 1; `before` b >= 0 [P]:
    distractors already known to be in front (0 where not given).
    Stable from N = 1 to 1e9 and from x = 1 down to 1e-12 and 0: the terms are built outward from the mode by
    their ratios and divided by their own sum, so no large logarithms cancel.
    """
    return precision_moments(hardness, index, gallery, cutoff, before)[0]


def precision_moments(
    hardness: np.ndarray, index: np.ndarray, gallery: float, cutoff: float, before: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Expected precision as in `expected_precision`, and expected squared precision: two float64 [P]."""
    hardness = np.ascontiguousarray(hardness, np.float64)
    index = np.ascontiguousarray(index, np.float64)
    known = np.zeros(len(index)) if before is None else np.ascontiguousarray(before, np.float64)
    return _moments(hardness, index, known, float(gallery), float(cutoff))


def clustered_precision(
    hardness: np.ndarray, index: np.ndarray, gallery: float, cutoff: int, size: float
) -> np.ndarray:
    """Expected precision where distractors come in clusters of `size` c that rank together: float64 [P].

    B = c * Binomial(N/c, x), so that P(nothing in front) = (1-x)^(N/c): what the law overlooks when the pool
    is full of near-copies of itself. i/(i+cB') = (i/c)/(i/c+B'), so the same sum serves.
    """
    return expected_precision(hardness, np.asarray(index) / size, gallery / size, cutoff / size)


def average_precision(terms: np.ndarray, query: np.ndarray, positives: np.ndarray, cutoff: int) -> np.ndarray:
    """AP@K per query [Q] from each positive's (expected) precision `terms` [P]: the sum over min(K, R).

    `query` [P] is the row of each positive's query, `positives` [Q] holds R, at least 1 each.
    """
    return np.bincount(query, terms, len(positives)) / np.minimum(positives, cutoff)


def realised_precision(counts: np.ndarray, index: np.ndarray, cutoff: int) -> np.ndarray:
    """i/(i+B) where i+B <= K, else 0: float64 [P], for known numbers of distractors in front [P]."""
    rank = index + counts
    return np.where(rank <= cutoff, index / rank, 0.0)


@compiled(parallel=True, nogil=True)
def _moments(hardness, index, before, gallery, cutoff):
    first = np.empty(len(hardness))
    second = np.empty(len(hardness))
    for p in prange(len(hardness)):
        first[p], second[p] = _one(hardness[p], index[p], before[p], gallery, cutoff)
    return first, second


@compiled(nogil=True)
def _one(x, i, before, gallery, cutoff):
    start = i + before
    if start > cutoff + 1e-9:
        return 0.0, 0.0
    room = np.floor(cutoff - start + 1e-9)  # B may be at most this
    if x <= 0.0 or gallery <= 0.0:
        return i / start, (i / start) ** 2
    if x >= 1.0:
        value = i / (start + gallery) if gallery <= room else 0.0
        return value, value * value
    mean = gallery * x
    if mean > room + _SPREAD * np.sqrt(room + 1.0) + 60.0 and gallery > room:
        return 0.0, 0.0
    odds = x / (1.0 - x)
    mode = min(np.floor((gallery + 1.0) * x), np.floor(gallery))
    value = i / (start + mode) if mode <= room else 0.0
    total = 1.0
    first = value
    second = value * value
    weight = 1.0
    b = mode
    while b > 0.0:  # downward: w(b-1) = w(b) * b / ((N-b+1) odds)
        weight *= b / ((gallery - b + 1.0) * odds)
        b -= 1.0
        total += weight
        if b <= room:
            value = i / (start + b)
            first += weight * value
            second += weight * value * value
        if weight < 1e-18 * total:
            break
    weight = 1.0
    b = mode
    while b < gallery:  # upward: w(b+1) = w(b) * (N-b) odds / (b+1)
        weight *= (gallery - b) * odds / (b + 1.0)
        b += 1.0
        total += weight
        if b <= room:
            value = i / (start + b)
            first += weight * value
            second += weight * value * value
        if weight < 1e-18 * total:
            break
    return first / total, second / total
