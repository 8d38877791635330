"""Each positive's hardness x from the sample: counted where the sample resolves it, extrapolated beyond.

The paper's configuration: a generalised Pareto tail over the k = round(T(1-q)) largest kept scores of each
query, shape at most 0 (Pickands 1975; Balkema and de Haan 1974 for the limit law).
"""

from dataclasses import dataclass

import numpy as np

from cairn.errors import InputError
from cairn.tail import gpd
from cairn.tail.scores import SampleScores

FITS = ("likelihood", "moments", "quasi-bayes")


@dataclass(frozen=True)
class TailFit:
    """Row-wise tail over `threshold` u [Q]: `exceedances` k, `shape` xi [Q], `scale` sigma [Q].

    `heavy` [Q]: the data ask for xi > 0. `usable` [Q]: False where all exceedances are 0 (ties), so that
    there is no tail to fit. `endpoint` [Q] = u - sigma/xi, inf where xi >= 0.
    """

    exceedances: int
    threshold: np.ndarray
    shape: np.ndarray
    scale: np.ndarray
    heavy: np.ndarray
    usable: np.ndarray

    @property
    def endpoint(self) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                self.shape < 0, self.threshold - self.scale / np.where(self.shape < 0, self.shape, -1), np.inf
            )


def exceedance_count(kept: int, keep_quantile: float) -> int:
    """k = round(T(1-q)): how many of T kept scores lie over the quantile q of the kept scores.

    Raises InputError where fewer than 5 exceedances, or all the scores, would remain.
    """
    if not 0 < keep_quantile < 1:
        raise InputError(f"the kept quantile is {keep_quantile}; it must lie between 0 and 1")
    k = round(kept * (1 - keep_quantile))
    if k < 5 or k >= kept:
        raise InputError(
            f"the {keep_quantile} quantile of T = {kept} kept scores leaves k = {k} exceedances;"
            f" at least 5 and fewer than T are needed: keep more scores per query"
        )
    return k


def exceedances_over(top: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Threshold u [Q] (the (k+1)-th largest), exceedances float64 [Q, k], and where they are usable [Q].

    Unusable rows (the k+1 largest scores tie) hold ones, so that a fit of them is harmless.
    """
    threshold = top[:, k].astype(np.float64)
    values = top[:, :k].astype(np.float64) - threshold[:, None]
    usable = values[:, 0] > 0
    if not usable.all():
        values[~usable] = 1.0
    return threshold, values, usable


def fit_tail(top: np.ndarray, k: int, cap: float | None = 0.0, fit: str = "likelihood") -> TailFit:
    """Fit every row of `top` [Q, T] over its (k+1)-th largest score; `cap` and `fit` as in `gpd`."""
    threshold, values, usable = exceedances_over(top, k)
    chosen = {
        "likelihood": gpd.fit_likelihood,
        "moments": gpd.fit_moments,
        "quasi-bayes": gpd.fit_quasi_bayes,
    }
    if fit not in chosen:
        raise InputError(f"no tail fit is called {fit!r}; there are {', '.join(FITS)}")
    shape, scale, heavy = chosen[fit](values, cap)
    return TailFit(k, threshold, shape, scale, heavy, usable)


def evt_hardness(scores: SampleScores, tail: TailFit, resolved: int = 1) -> np.ndarray:
    """x [P] float64: c/S where c >= `resolved` or s <= u, else (k/S)(1 - G(s - u)); 0 beyond the endpoint.

    `resolved=1` is the paper's rule; a very large value extrapolates every positive above the threshold.
    """
    row = scores.query
    above = scores.score - tail.threshold[row]
    counted = (scores.counts >= resolved) | (above <= 0) | ~tail.usable[row]
    log_x = gpd.log_survival(np.maximum(above, 0), tail.shape[row], tail.scale[row])
    x = tail.exceedances / scores.sample_size * np.exp(log_x)
    return np.where(counted, scores.counts / scores.sample_size, x)
