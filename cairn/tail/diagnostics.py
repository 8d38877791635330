"""What can go wrong with a tail estimate, measured on the input itself."""

from typing import Any

import numpy as np

from cairn.tail.baselines import naive
from cairn.tail.gpd import SHAPE_FLOOR
from cairn.tail.hardness import TailFit
from cairn.tail.law import average_precision, clustered_precision, expected_precision
from cairn.tail.scores import SampleScores, count_ahead

CLUSTER_SIZES = (2, 5, 10)
_WINDOWS = (1e-4, 1e-3, 1e-2)  # how near a near-duplicate's score is, in tail scales
_AROUND = 30.0  # the local density is taken over a window this many times as wide


def backbone_diagnostics(scores: SampleScores, capped: TailFit, free: TailFit) -> dict[str, Any]:
    """Of the paper's fit: failures, how often the cap binds, shapes, endpoints, endpoints below a
    positive."""
    usable = free.usable
    endpoint = capped.endpoint
    above = (scores.score > capped.threshold[scores.query]) & usable[scores.query]
    beyond = scores.score > endpoint[scores.query]
    shapes = free.shape[usable]
    return {
        "exceedances": capped.exceedances,
        "fit_failures": int((~usable | (free.shape <= SHAPE_FLOOR + 1e-6)).sum()),
        "cap_binds": float(capped.heavy[usable].mean()) if usable.any() else None,
        "median_shape": float(np.median(shapes)) if len(shapes) else None,
        "median_endpoint": _finite(np.median(endpoint)),
        "endpoint_below_positive": float((above & beyond).mean()),
        "resolved_by_count": float((scores.counts >= 1).mean()),
    }


def homogeneous(scores: SampleScores, gallery: float, cutoff: int) -> dict[str, float]:
    """One hardness x for every positive, such that mean AP at S is what was measured, and mean AP at N with
    it.

    A single x bends far too sharply over N: the gap to the estimate shows how heterogeneous the positives
    are.
    """
    target = naive(scores, cutoff).mean()

    def mean_ap(log_x: float, size: float) -> float:
        x = np.full(len(scores.score), np.exp(log_x))
        terms = expected_precision(x, scores.index, size, cutoff)
        return float(average_precision(terms, scores.query, scores.positives, cutoff).mean())

    low, high = np.log(1e-14), 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if mean_ap(middle, scores.sample_size) > target:
            low = middle
        else:
            high = middle
    return {"x": float(np.exp(low)), "at_sample": float(target), "at_gallery": mean_ap(low, gallery)}


def cluster_sensitivity(
    scores: SampleScores, hardness: np.ndarray, gallery: float, cutoff: int
) -> dict[str, float]:
    """Mean AP at N if distractors ranked in clusters of c = 2, 5, 10: P(none ahead) = (1-x)^(N/c)."""
    out = {}
    for size in CLUSTER_SIZES:
        terms = clustered_precision(hardness, scores.index, gallery, cutoff, size)
        ap = average_precision(terms, scores.query, scores.positives, cutoff)
        out[str(size)] = float(ap.mean())
    return out


def near_duplicates(scores: SampleScores, tail: TailFit) -> dict[str, Any]:
    """Sampled distractors whose score all but equals a positive's, against what the local density explains.

    For windows of 1e-4, 1e-3 and 1e-2 tail scales around each positive above u: found, expected (from 30
    times the window), the one-sided Poisson probability of the strongest window (times three, for three
    looks), and whether it is below 1e-6 with at least 5 in excess. A copy of a positive in the pool scores
    like the positive itself.
    """
    from scipy.stats import poisson

    wanted = (scores.score > tail.threshold[scores.query]) & tail.usable[scores.query]
    query, score = scores.query[wanted], scores.score[wanted]
    best: dict[str, Any] = {"found": 0, "expected": 0.0, "p_value": 1.0, "detected": False, "share": 0.0}
    # Quantised scores tie by construction: nothing can be said below the quantum.
    if not len(score) or scores.quantised > 0.01:
        return best
    for window in _WINDOWS:
        width = window * tail.scale[query]

        def within(factor: float, width: np.ndarray = width) -> np.ndarray:
            below = count_ahead(scores.top, query, score - factor * width)
            above = count_ahead(scores.top, query, np.nextafter(score + factor * width, np.inf))
            return below - above

        inner = within(1.0)
        found, outer = int(inner.sum()), int(within(_AROUND).sum())
        expected = max((outer - found) / (_AROUND - 1), 0.05)
        p_value = min(float(poisson.sf(found - 1, expected)) * len(_WINDOWS), 1.0) if found else 1.0
        if p_value < best["p_value"]:
            best = {
                "found": found,
                "expected": round(float(expected), 3),
                "p_value": p_value,
                "detected": bool(p_value < 1e-6 and found - expected >= 5),
                "share": float((inner > 0).mean()),
            }
    return best


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
