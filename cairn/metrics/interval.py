"""Percentile bootstrap over queries: how far a mean would move had other queries been asked.

Definition (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13): queries are drawn
with replacement, as many as there are; the interval holds the central 95% of the resampled means. It covers
the choice of queries only, not the training or the gallery.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Floats, Ints

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 1 << 22  # drawn indices held at once


def mean_interval(values: Floats, seed: int) -> tuple[float | None, float | None]:
    """95% interval of the mean of `values` [queries], NaN entries left out; None with fewer than two values.

    The draws depend on `seed` and the number of values alone, so that two metrics of the same queries are
    resampled alike.
    """
    counted = values[~np.isnan(values)]
    if len(counted) < 2:
        return None, None
    return percentiles(resampled_sums(counted, seed) / len(counted))


def resampled_sums(values: NDArray, seed: int) -> Floats:
    """The sum of `values` [n] over the queries drawn in each resample, [RESAMPLES]."""
    counts = draw_counts(len(values), seed)
    step = max(1, BLOCK // len(values))
    blocks = (counts[start : start + step].astype(np.float64) for start in range(0, RESAMPLES, step))
    return np.concatenate([block @ values for block in blocks])


@functools.lru_cache(maxsize=2)
def draw_counts(n: int, seed: int) -> NDArray[np.uint8]:
    """How often each of `n` queries is drawn in each resample: [RESAMPLES, n], rows sum to n.

    One byte holds a count: that a query is drawn 256 times of n has a probability below 1e-500.
    """
    generator = np.random.default_rng([seed, n])
    counts = np.empty((RESAMPLES, n), np.uint8)
    step = max(1, BLOCK // n)
    for start in range(0, RESAMPLES, step):
        rows = min(step, RESAMPLES - start)
        drawn: Ints = generator.integers(n, size=(rows, n)) + np.arange(rows)[:, None] * n
        counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
    counts.flags.writeable = False
    return counts


def percentiles(resampled: Floats) -> tuple[float | None, float | None]:
    """The interval's two ends from the resampled statistic, resamples without a value left out."""
    resampled = resampled[~np.isnan(resampled)]
    if not len(resampled):
        return None, None
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
