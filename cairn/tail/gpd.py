"""Generalised Pareto fits of many rows of exceedances at once.

G(y) = 1 - (1 + xi*y/sigma)^(-1/xi): xi < 0 has a finite end at -sigma/xi, xi = 0 is exponential, xi > 0 is
heavy. Rows are queries; nothing here loops over them in Python. All functions take exceedances float [rows,
k], any order inside a row, at least 0, at least one above 0 (`hardness.py` sees to both).
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from cairn.tail.compiled import compiled

SHAPE_FLOOR = -0.9  # at xi <= -1 the likelihood has no maximum; the reference stops at -0.9
_BLOCK = 32  # factors multiplied before one logarithm is taken


class Fit(NamedTuple):
    """Row-wise fit: shape xi [rows], scale sigma [rows] (score units), and where the data ask for xi > 0
    [rows]."""

    shape: np.ndarray
    scale: np.ndarray
    heavy: np.ndarray


def fit_likelihood(exceedances: np.ndarray, cap: float | None = 0.0) -> Fit:
    """Maximum likelihood by the one-dimensional profile in t = xi*mean(y)/sigma, safeguarded Newton.

    For a given t the best shape is xi(t) = mean(log(1 + t*y/mean)) (Davison 1984; Grimshaw, Technometrics
    1993). xi stays above -0.9. The maximum has xi > 0 exactly when mean(z^2) > 2, z = y/mean: `heavy`. With
    `cap=0.0` (the paper's configuration) such rows get xi = 0, sigma = mean(y); with `cap=None` their own
    maximum.
    """
    values = np.ascontiguousarray(exceedances)
    shape, scale, heavy = _likelihood(values, cap is not None)
    return Fit(shape, scale, heavy)


def fit_moments(exceedances: np.ndarray, cap: float | None = None) -> Fit:
    """Probability-weighted moments (Hosking and Wallis, Technometrics 1987), plotting position (j - 0.35)/k.

    With `cap` given, shapes above it are set to it and sigma to mean(y)*(1 - cap).
    """
    ordered = np.sort(np.asarray(exceedances, np.float64), axis=1)
    k = ordered.shape[1]
    position = (np.arange(1, k + 1) - 0.35) / k
    a0 = ordered.mean(axis=1)
    a1 = (ordered * (1 - position)).mean(axis=1)
    shape = 2 - a0 / (a0 - 2 * a1)
    scale = 2 * a0 * a1 / (a0 - 2 * a1)
    heavy = shape > 0
    if cap is not None:
        over = shape > cap
        shape, scale = np.where(over, cap, shape), np.where(over, a0 * (1 - cap), scale)
    return Fit(shape, scale, heavy)


def fit_quasi_bayes(exceedances: np.ndarray, cap: float | None = None) -> Fit:
    """Zhang and Stephens, Technometrics 2009: likelihood-weighted mean over 20 + floor(sqrt(k)) candidates.

    Their data-driven grid of theta = -xi/sigma, no shrinkage of xi towards a prior. `cap=0.0` as in
    `fit_likelihood`.
    """
    ordered = np.sort(np.asarray(exceedances, np.float64), axis=1)
    shape, scale = _quasi_bayes(ordered)
    heavy = shape > 0
    if cap is not None and cap <= 0:
        scale, shape = np.where(heavy, ordered.mean(axis=1), scale), np.where(heavy, 0.0, shape)
    return Fit(shape, scale, heavy)


def fit_scale(exceedances: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Maximum-likelihood sigma [rows] for given shapes [rows], safeguarded Newton."""
    return _scale_given_shape(
        np.ascontiguousarray(exceedances, np.float64), np.ascontiguousarray(shape, np.float64)
    )


def profile(exceedances: np.ndarray, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood at the best sigma, and that sigma, for each of G `shapes`: two float64 [rows, G]."""
    return _profile(np.ascontiguousarray(exceedances, np.float64), np.ascontiguousarray(shapes, np.float64))


def log_survival(y: np.ndarray, shape: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """log(1 - G(y)) for y >= 0, -inf beyond the endpoint; arrays broadcast."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inside = 1 + shape * y / scale
        curved = -np.log(np.maximum(inside, 0)) / np.where(shape == 0, 1, shape)
        value = np.where(np.abs(shape) < 1e-7, -y / scale, curved)
    return np.where((inside <= 0) & (shape < 0), -np.inf, value)


@compiled(nogil=True)
def _sums(z, t):
    """mean log(1+tz), mean r and mean r^2 with r = z/(1+tz)."""
    k = len(z)
    logs = 0.0
    first = 0.0
    second = 0.0
    start = 0
    while start < k:
        stop = min(start + _BLOCK, k)
        product = 1.0
        for j in range(start, stop):
            d = 1.0 + t * z[j]
            r = z[j] / d
            product *= d
            first += r
            second += r * r
        logs += np.log(product)
        start = stop
    return logs / k, first / k, second / k


@compiled(nogil=True)
def _mean_log(z, t):
    """mean log(1+tz) alone: no division, one logarithm per block."""
    k = len(z)
    logs = 0.0
    start = 0
    while start < k:
        stop = min(start + _BLOCK, k)
        product = 1.0
        for j in range(start, stop):
            product *= 1.0 + t * z[j]
        logs += np.log(product)
        start = stop
    return logs / k


@compiled(nogil=True)
def _profile_root(z, capped):
    """(xi, sigma/mean, heavy) of one row of exceedances with mean 1."""
    k = len(z)
    m2 = 0.0
    m3 = 0.0
    m4 = 0.0
    top = 0.0
    least = np.inf
    for j in range(k):
        least = min(least, z[j])
        square = z[j] * z[j]
        m2 += square
        m3 += square * z[j]
        m4 += square * square
        top = max(top, z[j])
    m2 /= k
    m3 /= k
    m4 /= k
    heavy = m2 > 2.0
    if heavy and capped:
        return 0.0, 1.0, heavy
    variance = max(m2 - 1.0, 1e-12)
    t = (1.0 - 1.0 / variance) / (1.0 + 1.0 / variance)  # moment estimate of xi/sigma
    if heavy:
        low, high = 1e-9, 50.0
        t = min(max(t, 1e-6), 20.0)
        # Where the mean does not exist, the sample's dwarfs sigma. Exceedances of 0 (ties with the threshold) would
        # draw t to infinity: there the bracket stays.
        while least > 0 and high < 1e5:
            shape, a1, a2 = _sums(z, high)
            if 1.0 / high - a1 / shape - a1 <= 0:
                break
            high *= 8.0
    else:
        edge = -(1.0 - 1e-7) / top
        low, high = edge, -1e-9
        t = min(max(t, 0.98 * edge), -1e-6)
    for _ in range(80):
        if abs(t) * top < 3e-3:
            # Near 0 the terms of the score cancel; its expansion in t does not.
            value = (
                (m2 / 2 - 1) + t * (1.5 * m2 - 2 / 3 * m3) + t * t * (0.75 * m4 - 4 / 3 * m3 - m2 * m2 / 2)
            )
            even = 1 - t * m2 / 2 + t * t * m3 / 3
            slope = ((1.5 * m2 - 2 / 3 * m3) + value * m2 / 2) / even
            value /= even
            shape = t
        else:
            shape, a1, a2 = _sums(z, t)
            value = 1.0 / t - a1 / shape - a1
            slope = -1.0 / (t * t) + a2 / shape + (a1 / shape) ** 2 + a2
        floored = not shape >= SHAPE_FLOOR  # also where the product ran to 0 or NaN
        if floored or value > 0:
            low = t
        else:
            high = t
        new = 0.5 * (low + high)
        if not floored and slope < 0:
            step = t - value / slope
            if low < step < high:
                new = step
        if abs(new - t) < 1e-11 * (1 + abs(t)):
            t = new
            break
        t = new
    if abs(t) <= 1e-8:
        return 0.0, 1.0, heavy
    if abs(t) * top < 3e-3:
        even = 1 - t * m2 / 2 + t * t * m3 / 3
        return t * even, even, heavy
    shape, a1, a2 = _sums(z, t)
    return shape, shape / t, heavy


@compiled(parallel=True, nogil=True)
def _likelihood(values, capped):
    n, k = values.shape
    shape = np.empty(n)
    scale = np.empty(n)
    heavy = np.empty(n, np.bool_)
    for row in prange(n):
        z = np.empty(k)
        mean = 0.0
        for j in range(k):
            z[j] = values[row, j]
            mean += z[j]
        mean /= k
        for j in range(k):
            z[j] /= mean
        xi, ratio, pull = _profile_root(z, capped)
        shape[row] = xi
        scale[row] = ratio * mean
        heavy[row] = pull
    return shape, scale, heavy


@compiled(parallel=True, nogil=True)
def _quasi_bayes(ordered):
    n, k = ordered.shape
    m = 20 + int(np.sqrt(k))
    shape = np.empty(n)
    scale = np.empty(n)
    for row in prange(n):
        y = ordered[row]
        largest = y[k - 1]
        # The quartile is 0 where most exceedances tie with the threshold; any small scale then serves.
        quartile = max(y[int(k / 4 + 0.5) - 1], 1e-9 * largest)
        theta = np.empty(m)
        likelihood = np.empty(m)
        for j in range(m):
            theta[j] = 1 / largest + (1 - np.sqrt(m / (j + 0.5))) / (3 * quartile)
            minus_shape = -_mean_log(y, -theta[j])
            likelihood[j] = k * (np.log(theta[j] / minus_shape) + minus_shape - 1)
        best = -np.inf
        for j in range(m):
            if likelihood[j] > best:
                best = likelihood[j]
        weights = 0.0
        mean = 0.0
        for j in range(m):
            weight = np.exp(likelihood[j] - best)
            if weight == weight:
                weights += weight
                mean += weight * theta[j]
        mean /= weights
        xi = _mean_log(y, -mean)
        shape[row] = xi
        scale[row] = -xi / mean
    return shape, scale


@compiled(nogil=True)
def _best_scale(z, top, xi, start, tolerance):
    """sigma (mean 1) maximising the likelihood for xi, to a relative `tolerance`; `start` <= 0 means none."""
    if abs(xi) < 1e-7:
        return 1.0
    k = len(z)
    low = -xi * top * (1 + 1e-9) if xi < 0 else 1e-6
    high = 1e4
    sigma = start if start > 0 else 1.0 - xi
    sigma = max(sigma, 1.0001 * low, 1e-3)
    for _ in range(60):
        first = 0.0
        second = 0.0
        for j in range(k):
            inverse = 1.0 / (sigma + xi * z[j])
            r = z[j] * inverse
            first += r
            second += r * inverse
        value = -1 + (1 + xi) * first / k
        slope = -(1 + xi) * second / k
        if value > 0:
            low = sigma
        else:
            high = sigma
        new = sigma - value / slope
        if not (low < new < high):
            new = 0.5 * (low + min(high, 4 * sigma))
        if abs(new - sigma) < tolerance * sigma:
            return new
        sigma = new
    return sigma


@compiled(parallel=True, nogil=True)
def _scale_given_shape(values, shapes):
    n = len(values)
    out = np.empty(n)
    for row in prange(n):
        mean = values[row].mean()
        z = values[row] / mean
        out[row] = mean * _best_scale(z, z.max(), shapes[row], 0.0, 1e-11)
    return out


@compiled(parallel=True, nogil=True)
def _profile(values, shapes):
    n, k = values.shape
    grid = len(shapes)
    likelihood = np.empty((n, grid))
    scale = np.empty((n, grid))
    for row in prange(n):
        mean = values[row].mean()
        z = values[row] / mean
        top = z.max()
        sigma = 0.0
        for g in range(grid):
            xi = shapes[g]
            sigma = _best_scale(z, top, xi, sigma, 1e-11)
            if abs(xi) < 1e-7:
                value = -k * np.log(sigma) - k / sigma
            else:
                value = -k * np.log(sigma) - (1 + 1 / xi) * k * _mean_log(z, xi / sigma)
            likelihood[row, g] = value if value == value else -np.inf
            scale[row, g] = sigma * mean
    return likelihood, scale
