"""Synthetic pools whose exact full-pool metric is known, for measuring tail estimators.

Analytic worlds: each query has a score distribution given by its quantile function of log p. The sample's T
best scores are drawn exactly as order statistics; the unsampled N - S distractors are drawn as counts between
consecutive positives, so the realised full-pool rank of every positive is exact without a list of N scores.
Clustered worlds: an actual pool of unit vectors in clusters of clusters, searched exactly once.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from cairn.tail.law import average_precision, expected_precision, realised_precision
from cairn.tail.scores import SampleScores, count_ahead, sample_scores

CENTER, BETWEEN, WITHIN = -6.7, 1.8, 3.3  # decades: hardness of positives, spread between queries and within
_GRID = np.linspace(-33.0, -0.6, 400)  # log p at which quantile functions are tabulated

# Used while the estimator was designed and its constants were chosen.
TUNING = (
    "normal",
    "bounded",
    "heavy",
    "exponential",
    "caps",
    "lognormal",
    "weibull",
    "mixture",
    "lumps-tuning",
)
# Also looked at, with seeds from 100 on, when the interval was taken apart (docs/tail-aware.md); beside them a
# clustered pool of `ClusteredPool`'s own settings with seed 100.
TUNING_INTERVAL = ("broad-lumps-tuning", "heavy-lumps-tuning", "two-tails-tuning")
# Never looked at while tuning; of "lumps" and "wide-lumps" other seeds were, when the mean over several numbers
# of exceedances was added, and "scattered-lumps" and "student-lumps" were added then.
HELD_OUT = (
    "burr",
    "student",
    "beta",
    "gumbel",
    "gamma-mixed",
    "two-shapes",
    "scale-mixture",
    "lumps",
    "wide-lumps",
    "scattered-lumps",
    "student-lumps",
)
# Written down before the interval was taken apart, and first run when that was done; beside them the clustered
# pool `OTHER_CLUSTERS`.
FRESH = (
    "gev",
    "logistic",
    "kumaraswamy",
    "chi",
    "gompertz",
    "three-shapes",
    "two-exponentials",
    "fine-lumps",
    "coarse-lumps",
)
OTHER_CLUSTERS = {"dim": 32, "coarse": 40, "fine": 4000, "between": 0.15, "within": 0.1, "skew": 1.5}


class World(NamedTuple):
    """A sample, the gallery size N it stands for, and the exact mean AP@K over the full pool (`full`).

    `law`: the same in expectation over pools (NaN where unknown); `counts` [P]: full-pool distractors ahead;
    `x` [P]: true hardness (counts/N where nothing better is known).
    """

    scores: SampleScores
    gallery: int
    cutoff: int
    full: float
    law: float
    counts: np.ndarray
    x: np.ndarray


def quantiles(shape: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Scores [n, nodes] of n queries' distributions at `_GRID`."""
    lp = _GRID[None]
    scale = np.exp(rng.normal(np.log(0.05), 0.25, n))[:, None]
    place = rng.normal(0.2, 0.05, n)[:, None]

    def uniform(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, n)[:, None]

    def pareto(xi: np.ndarray) -> np.ndarray:
        return np.expm1(-xi * lp) / xi / 5

    normal = -special.ndtri_exp(lp)
    makers: dict[str, Callable[[], np.ndarray]] = {
        "normal": lambda: normal + 0 * place,
        "bounded": lambda: pareto(rng.normal(-0.12, 0.05, n)[:, None]),
        "heavy": lambda: pareto(rng.normal(0.1, 0.05, n)[:, None]),
        "exponential": lambda: -lp / 5 + 0 * place,
        "caps": lambda: _caps(lp, uniform(12, 96)) / scale,
        "lognormal": lambda: np.exp(uniform(0.2, 0.5) * normal),
        "weibull": lambda: (-lp) ** (1 / uniform(1.2, 2.5)),
        "mixture": lambda: _two_normals(lp, 10 ** uniform(-5, -2), uniform(1, 3), uniform(0.6, 1.2)),
        "burr": lambda: np.expm1(-lp / uniform(3, 9)) ** (1 / uniform(2, 4)),
        "student": lambda: -special.stdtrit(uniform(4, 12), np.exp(lp)),
        "beta": lambda: _beta(lp, uniform(2, 6), uniform(6, 30)) / scale / 2,
        "gumbel": lambda: -np.log(-np.log1p(-np.exp(lp))) / 3 + 0 * place,
        "gamma-mixed": lambda: special.gammainccinv(uniform(0.6, 12), np.exp(lp)) / 4,
        "two-shapes": lambda: pareto(np.where(rng.random(n) < 0.5, -0.25, 0.08)[:, None]),
        "scale-mixture": lambda: _two_normals(lp, 10 ** uniform(-3, -1), uniform(0, 0.5), uniform(1.2, 1.8)),
        "two-tails-tuning": lambda: pareto(np.where(rng.random(n) < 0.5, -0.3, 1e-6)[:, None]),
        "gev": lambda: _gev(lp, uniform(0.05, 0.2)) / 4,
        "logistic": lambda: (np.log1p(-np.exp(lp)) - lp) / 4 + 0 * place,
        "kumaraswamy": lambda: 3 * (-np.expm1(lp / uniform(4, 20))) ** (1 / uniform(2, 5)),
        "chi": lambda: np.sqrt(special.gammainccinv(uniform(4, 32), np.exp(lp))),
        "gompertz": lambda: 3 * np.log1p(-lp / uniform(2, 8)),
        "three-shapes": lambda: pareto(rng.choice([-0.3, 1e-6, 0.15], n)[:, None]),
        "two-exponentials": lambda: _two_exponentials(lp, 10 ** uniform(-3, -1), uniform(1.3, 2)) / 5,
    }
    bases = {
        "lumps-tuning": "bounded",
        "lumps": "gamma-mixed",
        "wide-lumps": "beta",
        "scattered-lumps": "gumbel",
        "student-lumps": "student",
        "broad-lumps-tuning": "bounded",
        "heavy-lumps-tuning": "heavy",
        "fine-lumps": "chi",
        "coarse-lumps": "kumaraswamy",
    }
    base = bases.get(shape, shape)
    return place + scale * makers[base]()


def world(
    shape: str, seed: int, gallery: int = 10**8, fraction: float = 0.05, queries: int = 1232, kept: int =
    4000, cutoff: int = 1000,
) -> World:  # fmt: skip
    """One analytic world: queries, positives and the sample all follow from `shape` and `seed`."""
    rng = np.random.default_rng([seed, *shape.encode()])
    table = quantiles(shape, queries, rng)
    sample = round(gallery * fraction)
    query, log_x = positives(queries, rng)
    score = _read(table[query], log_x[:, None])[:, 0]
    spacing = np.cumsum(rng.exponential(size=(queries, kept)), axis=1)
    top = _read(
        table, np.log(spacing) - np.log(spacing[:, -1:] + rng.gamma(sample - kept + 1, size=(queries, 1)))
    )
    lump = _lumps(shape, table, rng)
    inside = rng.random(lump.shape) < fraction
    if lump.shape[1]:
        joined = np.concatenate([top, np.where(inside, lump, -np.inf)], axis=1)
        top = -np.sort(-joined, axis=1)[:, :kept]
    scores = sample_scores(top.astype(np.float32), query, score.astype(np.float32), sample)
    # sample_scores orders positives by descending score, that is by ascending hardness, as `positives` does.
    rest = _unsampled(scores, np.exp(log_x), gallery - sample, rng)
    x = np.exp(log_x)
    if lump.shape[1]:
        outside = np.where(inside, -np.inf, lump)
        rest += count_ahead(-np.sort(-outside, axis=1), scores.query, scores.score)
        x = x + count_ahead(-np.sort(-lump, axis=1), scores.query, scores.score) / gallery
    counts = scores.counts + rest
    full = _mean(scores, realised_precision(counts, scores.index, cutoff), cutoff)
    law = _mean(scores, expected_precision(x, scores.index, gallery, cutoff), cutoff)
    return World(scores, gallery, cutoff, full, law, counts, x)


def population(shape: str, gallery: int = 10**8, cutoff: int = 1000, queries: int = 60_000) -> float:
    """Mean AP@K of the population of queries the worlds draw from (standard error about 0.0015; 0.004 with
    lumps)."""
    rng = np.random.default_rng([7, *shape.encode()])
    queries = 10_000 if "lumps" in shape else queries
    query, log_x = positives(queries, rng)
    count = np.bincount(query, minlength=queries)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    index = np.arange(len(query)) - first[query] + 1
    x = np.exp(log_x)
    if "lumps" in shape:
        done = []
        for start in range(0, queries, 2000):
            rows = (query >= start) & (query < start + 2000)
            table = quantiles(shape, 2000, rng)
            lump = -np.sort(-_lumps(shape, table, rng), axis=1)
            score = _read(table[query[rows] - start], log_x[rows][:, None])[:, 0]
            done.append(count_ahead(lump, query[rows] - start, score) / gallery)
        x = x + np.concatenate(done)
    return float(
        average_precision(expected_precision(x, index, gallery, cutoff), query, count, cutoff).mean()
    )


def positives(queries: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Query [P] and log hardness [P], easiest first within a query: 1 + Poisson(2.8) each."""
    query = np.repeat(np.arange(queries), 1 + rng.poisson(2.8, queries))
    decades = CENTER + BETWEEN * rng.normal(size=queries)[query] + WITHIN * rng.normal(size=len(query))
    decades = np.clip(decades, -13.5, -0.3)
    return query, np.log(10) * decades[np.lexsort((decades, query))]


class ClusteredPool:
    """Unit vectors in `fine` clusters inside `coarse` ones, searched exactly; samples are drawn from it
    afterwards.

    Queries are perturbed pool-like items, positives are perturbed queries; both stay outside the pool.
    `between`, `within`: deviation per dimension of clusters around theirs and of items around theirs; `skew`:
    exponent of the Pareto law of cluster sizes.
    """

    def __init__(
        self,
        seed: int,
        size: int = 2_000_000,
        queries: int = 200,
        depth: int = 240_000,
        *,
        dim: int = 48,
        coarse: int = 60,
        fine: int = 6000,
        between: float = 0.13,
        within: float = 0.09,
        skew: float = 1.2,
    ):
        rng = np.random.default_rng([seed, dim])
        centers = _unit(rng.normal(size=(coarse, dim)))
        leaves = _unit(centers[rng.integers(coarse, size=fine)] + between * rng.normal(size=(fine, dim)))
        share = rng.pareto(skew, fine) + 0.05
        share /= share.sum()
        leaf = rng.choice(fine, size=queries, p=share)
        self.queries = _unit(leaves[leaf] + within * rng.normal(size=(queries, dim))).astype(np.float32)
        self.pos_q = np.repeat(np.arange(queries), 1 + rng.poisson(2.8, queries))
        noise = np.exp(rng.normal(np.log(0.13), 0.7, len(self.pos_q)))[:, None]
        found = _unit(self.queries[self.pos_q] + noise * rng.normal(size=(len(self.pos_q), dim)))
        self.pos_s = np.einsum("pd,pd->p", self.queries[self.pos_q], found.astype(np.float32))
        best = np.empty((queries, 0), np.float32)
        rows = np.empty((queries, 0), np.int32)
        block = 200_000
        for start in range(0, size, block):
            part = leaves[rng.choice(fine, size=block, p=share)].astype(np.float32)
            part += np.float32(within) * rng.standard_normal((block, dim), np.float32)
            part /= np.linalg.norm(part, axis=1, keepdims=True)
            best = np.concatenate([best, self.queries @ part.T], axis=1)
            here = np.broadcast_to(np.arange(start, start + block, dtype=np.int32), (queries, block))
            rows = np.concatenate([rows, here], axis=1)
            if best.shape[1] > depth:
                order = np.stack([np.argpartition(-row, depth - 1)[:depth].astype(np.int32) for row in best])
                best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
        # Row by row: a matrix of 64-bit orders would be the largest array of all.
        order = np.stack([np.argsort(-row, kind="stable").astype(np.int32) for row in best])
        self.best, self.rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
        self.size = size

    def draw(self, seed: int, fraction: float, kept: int = 1000, cutoff: int = 1000) -> World:
        """A uniform sample of the pool and the exact metric over all of it."""
        sample = round(self.size * fraction)
        inside = np.zeros(self.size, bool)
        inside[np.random.default_rng([seed, 5]).choice(self.size, sample, replace=False)] = True
        taken = inside[self.rows]
        kept = min(kept, int(taken.sum(axis=1).min()))
        top = np.stack([row[mask][:kept] for row, mask in zip(self.best, taken, strict=True)])
        scores = sample_scores(top, self.pos_q, self.pos_s, sample)
        counts = count_ahead(self.best, scores.query, scores.score)
        full = _mean(scores, realised_precision(counts, scores.index, cutoff), cutoff)
        return World(scores, self.size, cutoff, full, float("nan"), counts, counts / self.size)


def proxy_world(seed: int, fraction: float, correlation: float, gallery: int = 10**8, mined: int = 1000,
                queries: int = 1232, cutoff: int = 1000) -> tuple[World, np.ndarray]:  # fmt: skip
    """A normal world with a cheap proxy score of given correlation: the sample without the proxy's best
    `mined`, and those distractors' true scores [Q, mined or fewer, padded]. Only the best 20,000 of the pool
    are simulated: what lies below them cannot rank within the cut-off.
    """
    rng = np.random.default_rng([seed, 99])
    deep = 20_000
    query, log_x = positives(queries, rng)
    score = -special.ndtri_exp(log_x)
    edge = -special.ndtri(mined / gallery)  # the proxy's threshold: its best `mined` of N
    width = 4000
    top = np.empty((queries, width))
    hard = np.full((queries, mined), -50.0)
    everything = np.empty((queries, deep), np.float32)
    for row in range(queries):
        spacing = np.cumsum(rng.exponential(size=deep))
        true = -special.ndtri_exp(np.log(spacing / gallery))
        proxy = correlation * true + np.sqrt(1 - correlation**2) * rng.normal(size=deep)
        is_mined = proxy >= edge
        some = true[is_mined][:mined]
        hard[row, : len(some)] = some
        rest = true[~is_mined]
        rest = rest[rng.random(len(rest)) < fraction]
        # The kept list is longer than what was simulated: the remainder is below every relevant positive.
        top[row] = np.concatenate([rest, np.full(width, true[-1] - 1e-3)])[:width]
        everything[row] = true
    sample = round((gallery - mined) * fraction)
    scores = sample_scores(top, query, score, sample)
    counts = count_ahead(everything, scores.query, scores.score.astype(np.float64))
    full = _mean(scores, realised_precision(counts, scores.index, cutoff), cutoff)
    return World(scores, gallery, cutoff, full, float("nan"), counts, counts / gallery), hard


def _mean(scores: SampleScores, terms: np.ndarray, cutoff: int) -> float:
    return float(average_precision(terms, scores.query, scores.positives, cutoff).mean())


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _read(table: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Linear interpolation of each row's quantile table [n, nodes] at log p [n, m]."""
    place = (log_p - _GRID[0]) / (_GRID[1] - _GRID[0])
    left = np.clip(place.astype(np.int64), 0, len(_GRID) - 2)
    below = np.take_along_axis(table, left, 1)
    return below + (place - left) * (np.take_along_axis(table, left + 1, 1) - below)


def _unsampled(scores: SampleScores, x: np.ndarray, rest: int, rng: np.random.Generator) -> np.ndarray:
    """Unsampled distractors ahead of each positive: binomial increments from one positive to the next."""
    counts = np.zeros(len(x), np.int64)
    ahead = np.zeros(len(scores.positives), np.int64)
    last = np.zeros(len(scores.positives))
    for rank in range(1, int(scores.index.max()) + 1):
        rows = np.flatnonzero(scores.index == rank)
        query = scores.query[rows]
        step = np.clip((x[rows] - last[query]) / (1 - last[query]), 0, 1)
        ahead[query] += rng.binomial(rest - ahead[query], step)
        counts[rows], last[query] = ahead[query], x[rows]
    return counts


def _lumps(shape: str, table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Scores [n, most] of confusers that sit together in some queries' tails (-inf where there are fewer)."""
    settings = {
        "lumps-tuning": (0.25, 3, 300, (-19.0, -15.0), 0.3),
        "lumps": (0.15, 5, 400, (-18.5, -14.0), 0.15),
        "wide-lumps": (0.2, 20, 2000, (-18.0, -13.0), 1.5),
        "scattered-lumps": (0.25, 10, 1000, (-17.5, -12.5), 2.0),
        "student-lumps": (0.2, 10, 1000, (-18.0, -13.0), 0.5),
        "broad-lumps-tuning": (0.25, 30, 3000, (-17.5, -13.5), 1.0),
        "heavy-lumps-tuning": (0.2, 10, 1000, (-18.0, -13.0), 1.0),
        "fine-lumps": (0.15, 8, 800, (-18.0, -13.5), 0.3),
        "coarse-lumps": (0.3, 15, 1500, (-17.5, -13.0), 1.2),
    }
    n = len(table)
    if shape not in settings:
        return np.empty((n, 0))
    share, few, many, depths, width = settings[shape]
    size = np.where(rng.random(n) < share, np.exp(rng.uniform(np.log(few), np.log(many), n)), 0).astype(int)
    depth = rng.uniform(*depths, n)[:, None]
    center = _read(table, depth)
    unit = _read(table, depth - 1.0) - center  # the score step of one e-fold there
    lump = center + width * unit * rng.normal(size=(n, max(int(size.max()), 1)))
    return np.where(np.arange(lump.shape[1])[None] < size[:, None], lump, -np.inf)


def _caps(lp: np.ndarray, dimension: np.ndarray) -> np.ndarray:
    """Cosine exceeded with probability p by a uniform direction in `dimension` dimensions."""
    inverse = special.betaincinv((dimension - 1) / 2, 0.5, np.minimum(np.exp(lp + np.log(2)), 1.0))
    return np.sqrt(np.maximum(1 - inverse, 0))


def _beta(lp: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return 1 - special.betaincinv(b, a, np.exp(lp))


def _gev(lp: np.ndarray, xi: np.ndarray) -> np.ndarray:
    return np.expm1(-xi * np.log(-np.log1p(-np.exp(lp)))) / xi


def _two_exponentials(lp: np.ndarray, weight: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    grid = np.linspace(0, 70, 3000)[None]
    tail = np.logaddexp(np.log1p(-weight) - grid, np.log(weight) - grid / ratio)
    return np.stack([np.interp(-lp[0], -row, grid[0]) for row in tail])


def _two_normals(lp: np.ndarray, weight: np.ndarray, shift: np.ndarray, spread: np.ndarray) -> np.ndarray:
    grid = np.linspace(-3, 16, 3000)[None]
    tail = np.logaddexp(
        np.log1p(-weight) + special.log_ndtr(-grid),
        np.log(weight) + special.log_ndtr(-(grid - shift) / spread),
    )
    return np.stack([np.interp(-lp[0], -row, grid[0]) for row in tail])
