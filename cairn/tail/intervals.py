"""Two intervals that must not be confused: for these queries on the whole pool, and for new queries.

Fixed queries: what full-pool evaluation of the same queries would give. Sources: which distractors were
sampled and the fit to them (spread over disjoint sub-samples), what the unsampled rest will do (posterior
variance), and the model (the self-calibrated bias). New queries: what another set of queries of the same
kind would give; a bootstrap over queries nested with redraws of the sample.
"""

import numpy as np


def query_interval(values: np.ndarray, level: float = 0.95, draws: int = 20_000, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap of the mean over queries: [low, high], from per-query values [Q].

    It holds the sample fixed: it says nothing about the error of `values` themselves.
    """
    means = _bootstrap_means(values[None], draws, np.random.default_rng(seed))
    return np.quantile(means, [(1 - level) / 2, (1 + level) / 2])


def fixed_interval(center: float, deviation: float, bias: float, level: float = 0.95) -> np.ndarray:
    """[low, high] within [0, 1]: normal quantiles of `deviation` around `center`, widened by |`bias`| each
    side."""
    from scipy.stats import norm

    half = float(norm.ppf((1 + level) / 2)) * deviation + abs(bias)
    return np.clip([center - half, center + half], 0.0, 1.0)


def nested_interval(
    values: np.ndarray,
    redraws: np.ndarray,
    variance: float,
    bias: float,
    level: float = 0.95,
    draws: int = 5_000,
    seed: int = 0,
) -> np.ndarray:
    """[low, high] for new queries: pick a redraw, resample queries, widen by |`bias`|.

    `values` [Q] per query at N; `redraws` [M, Q] the same quantity from M disjoint sub-samples one step
    down: only their differences from their own mean are used. `variance` of the mean that the unsampled rest
    adds.
    """
    rng = np.random.default_rng(seed)
    rows = values[None] + redraws - redraws.mean(axis=0) if len(redraws) else values[None]
    means = _bootstrap_means(rows, draws, rng) + rng.normal(0.0, np.sqrt(variance), draws)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return np.clip([low - abs(bias), high + abs(bias)], 0.0, 1.0)


def _bootstrap_means(values: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Means of `draws` resamples of the columns of a random row of `values` [rows, Q]."""
    rows, n = values.shape
    chosen = rng.integers(rows, size=draws)
    out = np.empty(draws)
    for start in range(0, draws, 1000):
        part = chosen[start : start + 1000]
        picked = rng.integers(n, size=(len(part), n))
        out[start : start + 1000] = values[part[:, None], picked].mean(axis=1)
    return out
