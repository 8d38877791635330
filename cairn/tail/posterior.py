"""Cairn's own tail: every query's posterior over generalised Pareto tails, shared prior, lumps of confusers
set aside.

What differs from the paper's plug-in fit, and why (docs/tail-aware.md has the measurements):

1. A fitted shape is noisy (sd about 1/sqrt(k)) and AP is far from linear in it. Each query therefore keeps a
grid
   of (shape, scale) weighted by likelihood times a normal prior over shapes whose mean and spread are
   estimated from all queries at once (empirical Bayes; Robbins 1956, Efron and Morris 1973). No cap at 0: if
   the tails are heavy, the prior says so. Scales are integrated under 1/sigma, not maximised: the profile
   alone is off by O(1/k).
2. That a positive has score s is evidence about the tail it is held against. If hardness has log-density
   proportional to x^a, the score has density x^a |d log x / ds| = x^a / (sigma + xi*y): every grid point is
   reweighted by it. `a` is estimated around the hardness at which one distractor of N is expected in front.
3. B = c + Binomial(N - S, x): the c sampled distractors in front are known, not predicted again.
4. A few items of one confusing object may sit together far above the rest. A row whose top items are
explained
   better (Bayes factor, with the share of such rows estimated) by a lump of j items is fitted without them;
   the lump's own members in front of a positive are extrapolated by count.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import lgamma
from typing import NamedTuple

import numpy as np
from numba import prange

from cairn.tail.compiled import compiled, tell_compiling
from cairn.tail.gpd import _best_scale, _mean_log
from cairn.tail.hardness import exceedances_over
from cairn.tail.law import average_precision, precision_moments
from cairn.tail.scores import SampleScores

# Shapes from uniform-like (-1) over bounded and exponential (0) to heavy; finest where real tails lie.
SHAPES = np.concatenate([np.linspace(-1.2, -0.5, 12)[:-1], np.linspace(-0.5, 0.4, 37)])
_STEPS = np.linspace(-3.3, 3.3, 7)  # scales, in posterior standard deviations around the best
# Lumps that are considered: (items above it that belong to the tail, items in it).
_LUMPS = np.array(
    [(0, 0), (0, 1), (0, 2)] + [(t, j) for t in (0, 1, 2) for j in (3, 4, 5, 7, 10, 14, 20, 28, 40)]
)
_DEEPEST = 42  # t + j of the largest
FEWEST_EXCEEDANCES = 20
AGREEMENT = 0.0016  # mean AP per e-fold of N/S by which two thresholds may differ where both are right
# Spread of shapes between queries above which a pool is taken for clusters: 0.24 to 0.38 in clustered pools, 0.03
# to 0.06 in pools with lumps, 0.17 where half the queries have another shape (shapes and seeds used while tuning).
CLUSTERED = 0.2
RESOLVED = 10  # from this count on, c/S is more certain than any fit
_TABLE_INDEX = 64  # positives ranked later within their query than this use the mean hardness instead


def default_exceedances(kept: int) -> int:
    """How many of T kept scores the posterior uses: T/16 (250 of 4000), at least 20 where there are that
    many."""
    return max(min(max(round(kept / 16), FEWEST_EXCEEDANCES), 400, kept - 1), 1)


@dataclass(frozen=True)
class TailPosterior:
    """Posterior over tails of Q queries on a grid of G shapes and Z scales.

    `threshold` u [Q]; `exceedances` k; `usable` [Q]; `weight` [Q, G, Z] sums to 1 per query; `scale` [Q, G,
    Z] in score units; `largest` exceedance [Q]; `lump_skip`, `lump_size` [Q] (0, 0: none); prior over shapes:
    `shape_mean`, `shape_spread`; `lump_share` of rows with a lump, as estimated.
    """

    threshold: np.ndarray
    exceedances: int
    usable: np.ndarray
    weight: np.ndarray
    scale: np.ndarray
    largest: np.ndarray
    lump_skip: np.ndarray
    lump_size: np.ndarray
    shape_mean: float
    shape_spread: float
    lump_share: float


class Prediction(NamedTuple):
    """Expected precision [P] and its variance [P] (unknown hardness and the draw of the gallery together),
    the posterior mean of log x [P] (log c/S where counted), and the slope `a` of the hardness density.
    """

    precision: np.ndarray
    variance: np.ndarray
    log_hardness: np.ndarray
    slope: float


def fit_posterior(top: np.ndarray, k: int) -> TailPosterior:
    """Posterior from the k largest of `top` [Q, T] (descending) over the (k+1)-th."""
    threshold, values, usable = exceedances_over(top, k)
    likelihood, scale = _grid(values, SHAPES, _STEPS)
    evidence = _lump_evidence(values)
    widths = np.gradient(SHAPES)
    mean, spread, share = -0.05, 0.1, 0.02
    current, scale_current = likelihood, scale
    chosen = np.zeros(len(values), np.int64)
    for _ in range(2):
        mean, spread = _shape_prior(_flatten(current), SHAPES, widths, usable, mean, spread)
        prior = np.log(widths) - 0.5 * ((SHAPES - mean) / spread) ** 2
        prior -= np.log(np.exp(prior).sum())
        chosen, probability = _choose_lumps(
            values, SHAPES, scale, likelihood, prior, evidence + _lump_prior(share), _LUMPS
        )
        current, scale_current = _without_lumps(values, chosen, likelihood, scale)
        share = float(np.clip(probability[usable].mean() if usable.any() else 0.0, 1e-3, 0.5))
    mean, spread = _shape_prior(_flatten(current), SHAPES, widths, usable, mean, spread)
    prior = np.log(widths) - 0.5 * ((SHAPES - mean) / spread) ** 2
    weight = current + prior[None, :, None]
    weight = np.exp(weight - weight.max(axis=(1, 2), keepdims=True))
    weight /= weight.sum(axis=(1, 2), keepdims=True)
    skip, size = _LUMPS[np.where(usable, chosen, 0)].T
    return TailPosterior(
        threshold, k, usable, weight, scale_current, values[:, 0].copy(), skip, size, mean, spread, share
    )


class Choice(NamedTuple):
    """The tails that an estimate is made of, their mean prediction, and how far they lie apart.

    `tails`: posteriors at falling numbers of exceedances, one or more; `prediction`: the mean of theirs;
    `disagreement`: standard error of mean AP@K over all candidates down to the last of them, 0 for one.
    """

    tails: tuple[TailPosterior, ...]
    prediction: Prediction
    disagreement: float


def choose_posterior(scores: SampleScores, gallery: float, cutoff: int) -> Choice:
    """Posteriors from `default_exceedances` down to the largest number that no smaller one contradicts.

    Candidates are `default_exceedances` and its halves down to 20. One is contradicted where a smaller k puts
    mean AP@K at N higher by more than `AGREEMENT` per e-fold of N/S plus twice the paired standard error
    over queries: a pool made of clusters ends sooner near the top than its wider tail suggests. After Lepski
    (Theory Probab. Appl. 1990); one-sided, since lumps of confusers make few exceedances err downwards.
    Confusers that are too few or too scattered to be told apart contradict in the same way, but there the
    larger k is the better one. Where shapes differ between queries by more than `CLUSTERED` the pool is taken
    to be made of clusters and the uncontradicted k stands alone; elsewhere the prediction is the mean over
    all candidates down to it. Either way their disagreement belongs in the interval.
    """
    sizes = [default_exceedances(scores.top.shape[1])]
    while sizes[-1] > FEWEST_EXCEEDANCES:
        sizes.append(max(sizes[-1] // 2, FEWEST_EXCEEDANCES))
    tails = [fit_posterior(scores.spread_top, k) for k in sizes]
    found = [predict(scores, tail, gallery, cutoff) for tail in tails]
    ap = [average_precision(f.precision, scores.query, scores.positives, cutoff) for f in found]
    allowed = AGREEMENT * np.log(gallery / scores.sample_size)
    last = len(tails) - 1
    for place, values in enumerate(ap):
        moves = [other - values for other in ap[place + 1 :]]
        if all(move.mean() <= allowed + 2 * move.std() / np.sqrt(len(move)) for move in moves):
            last = place
            break
    means = np.array([values.mean() for values in ap[: last + 1]])
    if tails[0].shape_spread > CLUSTERED:
        return Choice((tails[last],), found[last], _standard_error(means))
    return Choice(tuple(tails[: last + 1]), mean_prediction(found[: last + 1]), _standard_error(means))


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def mean_prediction(predictions: list[Prediction]) -> Prediction:
    """The mean of several predictions of the same positives, each as likely to be right."""
    columns = [np.mean(column, axis=0) for column in zip(*predictions, strict=True)]
    return Prediction(columns[0], columns[1], columns[2], float(columns[3]))


def predict(
    scores: SampleScores, tail: TailPosterior, gallery: float, cutoff: int, slope: float | None = None
) -> Prediction:
    """Expected precision of every positive at gallery size N >= S given the sample. See the module's text."""
    size, row, counts = scores.sample_size, scores.query, scores.counts
    rest = gallery - size
    above = scores.score - tail.threshold[row]
    extrapolated = (above > 0) & tail.usable[row]
    known = np.minimum(counts, RESOLVED)
    lump = np.clip(counts - tail.lump_skip[row], 0, tail.lump_size[row]).astype(np.float64)
    by_table = extrapolated & (counts < RESOLVED) & (scores.index + known <= _TABLE_INDEX)
    largest = int((scores.index + known)[by_table].max(initial=1))
    start, step, table = _law_table(max(rest, 1.0), cutoff, largest)
    edge = np.log(tail.exceedances * gallery / size)  # depth below u at which one distractor of N is expected
    fitted = 0.05 if slope is None else slope
    first = second = depth = np.empty(0)
    turns = 3 if slope is None else 1
    for turn in range(turns):
        first, second, depth = _integrate(
            np.maximum(above, 0.0), row, scores.index, known, extrapolated, SHAPES, tail.weight, tail.scale,
            np.log(tail.exceedances - tail.lump_size), max(rest, 0.0) / size, fitted, start, step, table,
            tail.largest, lump, turn == turns - 1,
        )  # fmt: skip
        if slope is None:
            fitted = _density_slope(-depth[extrapolated], edge) if turn < turns - 1 else fitted
    first[scores.index + known > cutoff] = 0.0
    second[scores.index + known > cutoff] = 0.0
    log_count = np.log(np.maximum(counts, 0.5) / size)
    log_tail = np.log(np.exp(depth) * (tail.exceedances - tail.lump_size[row]) + lump + 1e-300) - np.log(size)
    log_x = np.where(extrapolated & (counts < RESOLVED), log_tail, log_count)
    direct = ~by_table
    x = np.where(extrapolated & (counts < RESOLVED), np.exp(log_x), counts / size)
    first[direct], second[direct] = precision_moments(
        x[direct], scores.index[direct], rest, cutoff, counts[direct]
    )
    return Prediction(first, np.maximum(second - first**2, 0.0), log_x, fitted)


def _density_slope(depth: np.ndarray, edge: float) -> float:
    """Exponent a of the hardness density x^a near x = 1/N, from positives' depths [n] = log((k/S)/x).

    The mean of a truncated exponential on a window of width W is W/2 - a*W^2/12 + ...; shrunk towards 0 (log
    x uniform) where few positives are in the window, and kept within what is plausible.
    """
    low, high = max(edge - 6.0, 0.0), edge + 6.0
    inside = depth[(depth > low) & (depth < high)]
    if inside.size == 0:
        return 0.0
    width = high - low
    slope = ((high + low) / 2 - inside.mean()) * 12 / width**2
    return float(np.clip(slope * inside.size / (inside.size + 30), -0.05, 0.3))


@lru_cache(maxsize=4)  # sub-samples and thresholds ask for the same one
def _law_table(gallery: float, cutoff: int, largest: int) -> tuple[float, float, np.ndarray]:
    """Precision moments over a grid of log(N x): its start, its step, values [2, largest, 800]."""
    grid = np.linspace(np.log(1e-5), np.log(cutoff + 12 * np.sqrt(cutoff) + 60), 800)
    x = np.minimum(np.exp(grid) / gallery, 1 - 1e-12)
    index = np.repeat(np.arange(1, largest + 1), len(grid))
    first, second = precision_moments(np.tile(x, largest), index, gallery, cutoff)
    table = np.stack([first, second]).reshape(2, largest, len(grid))
    return float(grid[0]), float(grid[1] - grid[0]), table


def _lump_prior(share: float) -> np.ndarray:
    out = np.full(len(_LUMPS), np.log(share / (len(_LUMPS) - 1)))
    out[0] = np.log1p(-share)
    return out


def _lump_evidence(values: np.ndarray) -> np.ndarray:
    """Log-likelihood [rows, lumps] of each lump's items, apart from the tail's: j items uniform in a window.

    The window's place is uniform over 10 mean exceedances, its width log-uniform over 7 e-folds; integrated,
    with span s between the lump's ends: s^(1-j) / (j (j-1) 70). As points of a Poisson process beside the
    tail's k.
    """
    rows, k = values.shape
    mean = values.mean(axis=1)
    gaps = np.where(values[:, :-1] > values[:, 1:], values[:, :-1] - values[:, 1:], np.inf).min(axis=1)
    # Quantised scores tie: a lump cannot be narrower than the quantum the row shows.
    floor = np.maximum(2 * np.where(np.isfinite(gaps), gaps, mean) / mean, 1e-6)
    out = np.zeros((rows, len(_LUMPS)))
    for number, (skip, size) in enumerate(_LUMPS[1:], 1):
        if skip + size > min(_DEEPEST, k // 2):
            out[:, number] = -1e300
            continue
        span = np.maximum((values[:, skip] - values[:, skip + size - 1]) / mean, floor)
        crowd = np.log(size * (size - 1) * 70.0) if size > 1 else np.log(10.0)
        out[:, number] = lgamma(size + 1) - size * np.log(k) + (1 - size) * np.log(span) - crowd
    return out


def _without_lumps(
    values: np.ndarray, chosen: np.ndarray, likelihood: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Grids in which rows with a lump are fitted to their other exceedances alone."""
    likelihood, scale = likelihood.copy(), scale.copy()
    for number in np.unique(chosen[chosen > 0]):
        rows = np.flatnonzero(chosen == number)
        skip, size = _LUMPS[number]
        rest = np.delete(values[rows], np.s_[skip : skip + size], axis=1)
        likelihood[rows], scale[rows] = _grid(np.ascontiguousarray(rest), SHAPES, _STEPS)
    return likelihood, scale


def _flatten(likelihood: np.ndarray) -> np.ndarray:
    """Marginal likelihood of each shape [rows, G], largest 1, from the log-likelihood grid [rows, G, Z]."""
    return np.exp(likelihood - likelihood.max(axis=(1, 2), keepdims=True)).sum(axis=2)


def _shape_prior(
    marginal: np.ndarray,
    shapes: np.ndarray,
    widths: np.ndarray,
    usable: np.ndarray,
    mean: float,
    spread: float,
) -> tuple[float, float]:
    """Mean and spread of the normal prior over shapes by EM over the usable rows."""
    rows = marginal[usable]
    if not len(rows):
        return mean, spread
    for _ in range(60):
        prior = widths * np.exp(-0.5 * ((shapes - mean) / spread) ** 2)
        total = rows @ prior
        share = prior * (1 / np.maximum(total, 1e-300) @ rows) / len(rows)
        new = float(share @ shapes)
        wide = float(np.sqrt(max(share @ (shapes - new) ** 2, 1e-4)))
        settled = abs(new - mean) + abs(wide - spread) < 1e-6
        mean, spread = new, wide
        if settled:
            break
    return mean, spread


@compiled(parallel=True, nogil=True)
def _grid(values, shapes, steps):
    """Log-likelihood (times d log sigma) and sigma on the grid; values [rows, k] descending."""
    rows, k = values.shape
    likelihood = np.full((rows, len(shapes), len(steps)), -np.inf)
    scale = np.ones((rows, len(shapes), len(steps)))
    for row in prange(rows):
        mean = values[row].mean()
        z = values[row] / mean
        top = z.max()
        sigma = 0.0
        middle = len(steps) // 2
        best = -np.inf
        for g in range(len(shapes)):
            # The middle of the scales, not an answer: a tenth of a posterior deviation is exact enough.
            sigma = _best_scale(z, top, shapes[g], sigma, 3e-3)
            scale[row, g, middle] = sigma * mean
            likelihood[row, g, middle] = _log_likelihood(z, top, shapes[g], sigma)
            best = max(best, likelihood[row, g, middle])
        for g in range(len(shapes)):
            sigma = scale[row, g, middle] / mean
            spread = np.sqrt((1 + 2 * max(shapes[g], -0.4)) / k)
            near = likelihood[row, g, middle] > best - 20
            for q in range(len(steps)):
                s = sigma * np.exp(spread * steps[q])
                scale[row, g, q] = s * mean
                if near:
                    likelihood[row, g, q] = _log_likelihood(z, top, shapes[g], s) + np.log(spread)
                else:
                    likelihood[row, g, q] = -np.inf
    return likelihood, scale


@compiled(nogil=True)
def _log_likelihood(z, top, xi, s):
    k = len(z)
    if xi < 0 and s <= -xi * top:
        return -np.inf
    if abs(xi) < 1e-7:
        return -k * np.log(s) - k / s
    value = -k * np.log(s) - (1 + 1 / xi) * k * _mean_log(z, xi / s)
    return value if value == value else -np.inf


@compiled(parallel=True, nogil=True)
def _choose_lumps(values, shapes, scale, likelihood, prior, evidence, lumps):
    """Each row's most probable lump (0: none) and the probability of any lump."""
    rows, k = values.shape
    chosen = np.zeros(rows, np.int64)
    probability = np.zeros(rows)
    depth = min(_DEEPEST, k // 2)  # of the lumps that `_lump_evidence` admits
    for row in prange(rows):
        mean = values[row].mean()
        best = likelihood[row].max()
        total = np.zeros(len(lumps))
        running = np.zeros(depth + 1)
        # The best scale of each shape decides whether a row is worth the whole grid: few are.
        middle = scale.shape[2] // 2
        for coarse in range(2):
            total[:] = 0.0
            for g in range(len(shapes)):
                for q in range(scale.shape[2]):
                    base = likelihood[row, g, q]
                    if base < best - 40 or (coarse == 0 and q != middle):
                        continue
                    _running(values[row], mean, shapes[g], scale[row, g, q] / mean, depth, running)
                    for a in range(len(lumps)):
                        if evidence[row, a] < -1e290:  # too many items for this k
                            continue
                        gone = running[lumps[a, 0] + lumps[a, 1]] - running[lumps[a, 0]]
                        value = base - best - gone + evidence[row, a] + prior[g]
                        if value > -60:
                            total[a] += np.exp(value)
            if total[0] >= 0.999 * total.sum():
                break
        everything = total.sum()
        if everything <= 0:
            continue
        probability[row] = 1 - total[0] / everything
        if probability[row] > 0.5:
            chosen[row] = 1 + np.argmax(total[1:])
    return chosen, probability


@compiled(nogil=True)
def _running(values, mean, xi, s, depth, out):
    """Cumulated log-density of the largest exceedances, into `out` [depth + 1]."""
    log_s = np.log(s)
    for i in range(depth):
        z = values[i] / mean / s
        if abs(xi) < 1e-7:
            out[i + 1] = out[i] - log_s - z
        else:
            out[i + 1] = out[i] - log_s - (1 + 1 / xi) * np.log(1 + xi * z)


@compiled(parallel=True, nogil=True)
def _integrate(
    above,
    row,
    index,
    known,
    wanted,
    shapes,
    weight,
    scale,
    log_k,
    ratio,
    slope,
    start,
    step,
    table,
    largest,
    lump,
    last,
):
    """Posterior means of precision and its square, and of log x relative to u, per positive."""
    first = np.zeros(len(above))
    second = np.zeros(len(above))
    depth = np.zeros(len(above))
    nodes = table.shape[2]
    for p in prange(len(above)):
        if not wanted[p]:
            continue
        r = row[p]
        i = min(index[p] + known[p], table.shape[1]) - 1
        total = 0.0
        for g in range(len(shapes)):
            xi = shapes[g]
            for q in range(scale.shape[2]):
                w = weight[r, g, q]
                if w < 1e-7:
                    continue
                d = scale[r, g, q] + xi * above[p]
                if d <= 0:
                    continue  # a positive cannot lie beyond the end of its own tail's density
                if abs(xi) < 1e-7:
                    log_tail = -above[p] / scale[r, g, q]
                else:
                    log_tail = -np.log(d / scale[r, g, q]) / xi
                w *= largest[r] / d * np.exp(slope * log_tail)
                if not last:  # the slope is fitted to depths alone
                    total += w
                    depth[p] += w * max(log_tail, -60.0)
                    continue
                place = (np.log((np.exp(log_tail + log_k[r]) + lump[p]) * ratio + 1e-300) - start) / step
                total += w
                depth[p] += w * max(log_tail, -60.0)
                if place < 0:
                    first[p] += w
                    second[p] += w
                elif place < nodes - 1:
                    left = int(place)
                    part = place - left
                    first[p] += w * (table[0, i, left] * (1 - part) + table[0, i, left + 1] * part)
                    second[p] += w * (table[1, i, left] * (1 - part) + table[1, i, left + 1] * part)
        # The table speaks of (i+c)/(i+c+b); the precision is i/(i+c+b).
        share = index[p] / (index[p] + known[p])
        if total > 0:
            first[p] *= share / total
            second[p] *= share * share / total
            depth[p] /= total
        else:  # beyond every tail on the grid
            first[p] = share
            second[p] = share * share
            depth[p] = -60.0
    return first, second, depth


def tell_first_use() -> None:
    """Say on standard error that the estimator is about to be compiled, where nothing of it is kept yet."""
    tell_compiling(_integrate, "posterior._integrate", "the estimator")
