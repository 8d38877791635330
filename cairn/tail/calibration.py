"""Self-calibration: predict the sample's own metric, which is known, from disjoint sub-samples of it.

A uniform sub-sample of a uniform sample is a uniform sample of the pool. Its best scores are obtained
without any new search: every kept score of the sample falls into one of G equal sub-samples at random, so
the kept list splits into G lists of about T/G. Predicting the metric at S from S/G repeats, one step down,
the prediction at N from S: the mean miss is an estimate of the model's bias, the spread over the G
sub-samples that of sampling and fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cairn.tail.baselines import naive
from cairn.tail.compiled import compiled
from cairn.tail.law import average_precision
from cairn.tail.posterior import fit_posterior, mean_prediction, predict
from cairn.tail.scores import SampleScores

MOST_PARTS = 20  # a sub-sample thinner than 1/20 keeps too few scores
FEWEST_KEPT = 12  # scores per query below which a sub-sample cannot be fitted


@dataclass(frozen=True)
class Calibration:
    """Prediction of the metric at S from `draws` [M, Q] (expected AP per sub-sample and query), against what
    it is.

    `bias`: mean over sub-samples and queries of predicted minus realised. `bias_error`: its standard error,
    of the redraws and of the sample's own realisation. `spread`: standard deviation of the mean between
    sub-samples.
    `parts` G; `exceedances` used in a sub-sample, as many as the estimate is a mean over.
    """

    draws: np.ndarray
    bias: float
    bias_error: float
    spread: float
    parts: int
    exceedances: tuple[int, ...]


def calibrate(
    scores: SampleScores,
    gallery: float,
    cutoff: int,
    exceedances: Sequence[int],
    redraws: int = 6,
    seed: int = 0,
) -> Calibration | None:
    """Calibrate the posterior estimator on `redraws` of the G = min(N/S, 20) disjoint sub-samples.

    `exceedances`: the numbers that the estimate is a mean over, one or more. The same mean is taken in a
    sub-sample, whose list is shorter: a number it cannot hold becomes three quarters of the list, as often as
    that happens. None where calibration is impossible: too few kept scores per query in a sub-sample.
    """
    parts = int(np.clip(round(gallery / scores.sample_size), 2, MOST_PARTS))
    tops = split(scores.top, parts, min(redraws, parts), seed)
    if tops.shape[2] < FEWEST_KEPT:
        return None
    sizes = tuple(max(min(k, tops.shape[2] * 3 // 4), 1) for k in exceedances)
    truth = naive(scores, cutoff)
    draws = np.empty((len(tops), len(scores.top)))
    variance = 0.0
    for number, top in enumerate(tops):
        part = scores.with_top(top, max(scores.sample_size // parts, top.shape[1]))
        found = {
            k: predict(part, fit_posterior(part.spread_top, k), scores.sample_size, cutoff)
            for k in set(sizes)
        }
        got = mean_prediction([found[k] for k in sizes])
        draws[number] = average_precision(got.precision, scores.query, scores.positives, cutoff)
        variance += mean_variance(scores, got.variance, cutoff) / len(tops)
    means = draws.mean(axis=1)
    spread = float(means.std(ddof=1)) if len(means) > 1 else 0.0
    error = float(np.sqrt(variance + spread**2 / len(means)))
    return Calibration(draws, float(means.mean() - truth.mean()), error, spread, parts, sizes)


def split(top: np.ndarray, parts: int, wanted: int, seed: int) -> np.ndarray:
    """The first `wanted` of `parts` disjoint uniform sub-samples of each kept list: [wanted, Q, shortest]
    descending.

    Rows are cut to the shortest, so that all have one length.
    """
    group = np.random.default_rng([seed, parts]).integers(parts, size=top.shape, dtype=np.int8)
    sizes = np.stack([(group == part).sum(axis=1) for part in range(wanted)])
    return _split(np.ascontiguousarray(top), group, wanted, int(sizes.min()))


def mean_variance(scores: SampleScores, variance: np.ndarray, cutoff: int) -> float:
    """Variance of mean AP over these queries from each positive's variance [P].

    Positives of one query share its tail and its gallery: taken as fully correlated, queries as independent.
    """
    deviation = average_precision(np.sqrt(variance), scores.query, scores.positives, cutoff)
    return float((deviation**2).sum() / len(deviation) ** 2)


@compiled(nogil=True)
def _split(top, group, wanted, length):
    rows, kept = top.shape
    out = np.empty((wanted, rows, length), top.dtype)
    filled = np.zeros(wanted, np.int64)
    for row in range(rows):
        filled[:] = 0
        for column in range(kept):
            part = group[row, column]
            if part < wanted and filled[part] < length:
                out[part, row, filled[part]] = top[row, column]
                filled[part] += 1
    return out
