"""Two intervals that must not be confused: for these queries, and for new ones."""

import numpy as np


def query_interval(values: np.ndarray, level: float = 0.95, draws: int = 20_000, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap of the mean over queries: [low, high], from per-query values [Q].

    It holds the sample fixed: it says nothing about the error of `values` themselves.
    """
    rng = np.random.default_rng(seed)
    means = _bootstrap_means(values[None], draws, rng)
    return np.quantile(means, [(1 - level) / 2, (1 + level) / 2])


def _bootstrap_means(values: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Means of `draws` resamples of the columns of a random row of `values` [rows, Q]."""
    rows, n = values.shape
    chosen = rng.integers(rows, size=draws)
    out = np.empty(draws)
    for start in range(0, draws, 1000):
        part = chosen[start : start + 1000]
        weights = rng.multinomial(n, np.full(n, 1 / n), size=len(part))
        out[start : start + 1000] = np.einsum("bn,bn->b", weights, values[part]) / n
    return out
