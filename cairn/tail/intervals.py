"""Two intervals that must not be confused: for these queries on the whole pool, and for new queries.

Fixed queries: what full-pool evaluation of the same queries would give. Sources: which distractors were
sampled and the fit to them (spread over disjoint sub-samples), what the unsampled rest will do (posterior
variance), and the model (the self-calibrated bias). New queries: what another set of queries of the same
kind would give; a bootstrap over queries nested with redraws of the sample.

The bias is a bound b, not a known shift and not a random one: an interval must hold whatever the bias is in
[-b, b]. At one end of that range only one side can miss, so b + 1.96 deviations are more than are needed;
`quantile_beside` gives what is (Armstrong and Kolesár, Econometrica 2018, section 3.1, their cv less b).
"""

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import ndtr, ndtri


def query_interval(values: np.ndarray, level: float = 0.95, draws: int = 20_000, seed: int = 0) -> np.ndarray:
    """Percentile bootstrap of the mean over queries: [low, high], from per-query values [Q].

    It holds the sample fixed: it says nothing about the error of `values` themselves.
    """
    means = _bootstrap_means(values[None], draws, np.random.default_rng(seed))
    return np.quantile(means, [(1 - level) / 2, (1 + level) / 2])


def fixed_interval(center: float, deviation: float, bias: float, level: float = 0.95) -> np.ndarray:
    """[low, high] within [0, 1] around `center`: covers at `level` under a normal error of `deviation` whose
    mean is anything within |`bias`|."""
    half = quantile_beside(bias, deviation, level) * deviation + abs(bias)
    return np.clip([center - half, center + half], 0.0, 1.0)


def quantile_beside(bias: float, deviation: float, level: float = 0.95) -> float:
    """z for which `center` -+ (|bias| + z deviation) covers at `level` under every bias within |`bias`|.

    The worst case is the bound itself: Phi(z) - Phi(-z - 2|bias|/deviation) = level. 1.96 without bias, 1.645
    where the bias is large beside `deviation`.
    """
    two_sided, one_sided = float(ndtri((1 + level) / 2)), float(ndtri(level))
    if bias == 0:
        return two_sided
    if deviation <= 0:
        return one_sided
    apart = 2 * abs(bias) / deviation
    # The bracket is a little wider than where the root can be, so that rounding cannot put it outside.
    bracket = (one_sided - 1e-6, two_sided + 1e-6)
    return float(root_scalar(lambda z: ndtr(z) - ndtr(-z - apart) - level, bracket=bracket).root)


def nested_interval(
    values: np.ndarray,
    redraws: np.ndarray,
    variance: float,
    bias: float,
    level: float = 0.95,
    draws: int = 5_000,
    seed: int = 0,
) -> np.ndarray:
    """[low, high] for new queries: pick a redraw, resample queries, widen by |`bias`| as `quantile_beside` has it.

    `values` [Q] per query at N; `redraws` [M, Q] the same quantity from M disjoint sub-samples one step
    down: only their differences from their own mean are used. `variance` of the mean beyond what the redraws
    show.
    """
    rng = np.random.default_rng(seed)
    rows = values[None] + redraws - redraws.mean(axis=0) if len(redraws) else values[None]
    means = _bootstrap_means(rows, draws, rng) + rng.normal(0.0, np.sqrt(variance), draws)
    inside = float(ndtr(quantile_beside(bias, float(means.std()), level)))
    low, high = np.quantile(means, [1 - inside, inside])
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
