"""What one would do without a tail: the sample's own number, counted hardness, and fitted curves."""

from dataclasses import dataclass

import numpy as np

from cairn.tail.law import average_precision, expected_precision, realised_precision
from cairn.tail.scores import SampleScores

CURVES = ("log-linear", "log-quadratic", "power-law", "log-uniform")
_NODES = 48


def per_query(scores: SampleScores, hardness: np.ndarray, gallery: float, cutoff: int) -> np.ndarray:
    """AP@K of each query [Q] by the exact law at gallery size N, from each positive's hardness [P]."""
    terms = expected_precision(hardness, scores.index, gallery, cutoff)
    return average_precision(terms, scores.query, scores.positives, cutoff)


def naive(scores: SampleScores, cutoff: int) -> np.ndarray:
    """AP@K [Q] evaluated on the sample and reported as if it held for N."""
    terms = realised_precision(scores.counts, scores.index, cutoff)
    return average_precision(terms, scores.query, scores.positives, cutoff)


def count(scores: SampleScores, gallery: float, cutoff: int) -> np.ndarray:
    """AP@K [Q] with x = c/S (Krichene and Rendle, KDD 2020): a positive nothing outranks is taken as
    immune."""
    return per_query(scores, scores.counts / scores.sample_size, gallery, cutoff)


@dataclass(frozen=True)
class Curve:
    """Mean AP@K at gallery sizes `sizes` [n] int64, all within the sample: `values` [n] float64."""

    sizes: np.ndarray
    values: np.ndarray


def sample_curve(scores: SampleScores, cutoff: int, low: float = 0.01, points: int = 12) -> Curve:
    """Mean AP@K at sizes from max(10, S*low) to S, by the exact law with x = c/S."""
    size = scores.sample_size
    sizes = np.unique(np.round(np.geomspace(max(size * low, 10), size, points)).astype(np.int64))
    x = scores.counts / size
    return Curve(sizes, np.array([per_query(scores, x, n, cutoff).mean() for n in sizes]))


def extrapolate(curve: Curve, gallery: float, cutoff: int) -> dict[str, float]:
    """Each curve of `CURVES` fitted to `curve` by least squares and read off at `gallery`, clipped to [0, 1].

    log-linear and log-quadratic: polynomials in log n. power-law: a line in log n and log mAP. log-uniform:
    one positive per query whose log-hardness is uniform on [a, b], a and b fitted through the exact law.
    """
    return {name: float(predict([gallery])[0]) for name, predict in fit_curves(curve, cutoff).items()}


def fit_curves(curve: Curve, cutoff: int) -> dict:
    """The same fits as functions of gallery sizes: name -> (sizes [m]) -> mAP [m]."""
    from scipy.optimize import least_squares

    logs = np.log(curve.sizes)
    line = np.polyfit(logs, curve.values, 1)
    parabola = np.polyfit(logs, curve.values, 2)
    power = np.polyfit(logs, np.log(np.maximum(curve.values, 1e-12)), 1)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    first = np.ones(_NODES, np.int64)

    def uniform(parameters: np.ndarray, n: float) -> float:
        low = parameters[0]
        high = min(low + np.exp(parameters[1]), 0.0)
        return float(weights @ expected_precision(np.exp(low + (high - low) * nodes), first, n, cutoff))

    fitted = least_squares(
        lambda p: [uniform(p, n) - value for n, value in zip(curve.sizes, curve.values, strict=True)],
        [-20.0, np.log(18.0)],
        max_nfev=30,
    ).x

    def clipped(values: np.ndarray) -> np.ndarray:
        return np.clip(values, 0.0, 1.0)

    return {
        "log-linear": lambda sizes: clipped(np.polyval(line, np.log(sizes))),
        "log-quadratic": lambda sizes: clipped(np.polyval(parabola, np.log(sizes))),
        "power-law": lambda sizes: clipped(np.exp(np.polyval(power, np.log(sizes)))),
        "log-uniform": lambda sizes: clipped(np.array([uniform(fitted, n) for n in sizes])),
    }
