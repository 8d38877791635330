"""Ratios that keep their numerator and denominator, Wilson's interval, and Cohen's kappa."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Z95 = 1.959963984540054
"""Two-sided 95% quantile of the normal distribution."""


@dataclass(frozen=True)
class Share:
    """`part` of `whole`, and what the whole is made of."""

    part: int
    whole: int
    of: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.part <= self.whole:
            raise ValueError(f"{self.part} of {self.whole} {self.of} is no share")

    @property
    def value(self) -> float | None:
        """The ratio, 0–1; None of nothing."""
        return self.part / self.whole if self.whole else None

    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95% interval; None of nothing."""
        return wilson(self.part, self.whole)

    def __str__(self) -> str:
        """`10 / 18 = 55.6% [33.7, 75.4] of flagged classes`."""
        interval = self.interval()
        if self.value is None or interval is None:
            return f"0 / 0 = –{f' of {self.of}' if self.of else ''}"
        low, high = (100 * end for end in interval)
        text = f"{self.part:,} / {self.whole:,} = {100 * self.value:.1f}% [{low:.1f}, {high:.1f}]"
        return f"{text} of {self.of}" if self.of else text

    def as_json(self) -> dict[str, Any]:
        """For programs: both counts, the ratio, its interval, and what the denominator is."""
        interval = self.interval()
        return {
            "part": self.part,
            "whole": self.whole,
            "ratio": self.value,
            "wilson95": list(interval) if interval else None,
            "denominator": self.of,
        }


def wilson(part: float, whole: float, z: float = Z95) -> tuple[float, float] | None:
    """Wilson's score interval of a proportion (JASA 22, 1927); None where `whole` is 0.

    `whole` may be an effective number of observations, so it need not be an integer.
    """
    if whole <= 0:
        return None
    p = part / whole
    scale = 1 + z * z / whole
    centre = (p + z * z / (2 * whole)) / scale
    half = z * math.sqrt(p * (1 - p) / whole + z * z / (4 * whole * whole)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def cluster_interval(
    parts: Sequence[int], wholes: Sequence[int], seed: int = 0, resamples: int = 2000
) -> tuple[float, float] | None:
    """95% bootstrap interval of sum(parts) / sum(wholes) when whole clusters are drawn, None below two of them.

    Images of one class resemble each other: an interval that takes them for independent is too short. Here
    classes are drawn with replacement (Efron and Tibshirani, 1993, chapter 13).
    """
    part, whole = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    if len(part) < 2 or not whole.sum():
        return None
    draws = np.random.default_rng([seed, len(part)]).multinomial(
        len(part), np.full(len(part), 1 / len(part)), resamples
    )
    totals = draws @ whole
    ratios = (draws @ part)[totals > 0] / totals[totals > 0]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Agreement:
    """Cohen's kappa of two raters over `n` things both judged; None where it is not defined.

    `table[i][j]` counts what the first put in category i and the second in j.
    """

    kappa: float | None
    low: float | None
    high: float | None
    observed: float | None
    n: int
    categories: tuple[Any, ...]
    table: tuple[tuple[int, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "kappa": self.kappa,
            "interval95": None if self.low is None else [self.low, self.high],
            "observed_agreement": self.observed,
            "n": self.n,
            "categories": list(self.categories),
            "table": [list(row) for row in self.table],
        }


def cohens_kappa(first: Sequence[Any], second: Sequence[Any]) -> Agreement:
    """Agreement of two raters beyond chance (Cohen, Educ. Psychol. Meas. 20, 1960), with its 95% interval.

    kappa = (observed − expected) / (1 − expected). The interval is from the paper's standard error,
    sqrt(observed (1 − observed) / n) / (1 − expected). Not defined where there is nothing to judge, or both
    put everything into one category.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} judgements beside {len(second)}")
    categories = tuple(sorted(set(first) | set(second)))
    index = {category: number for number, category in enumerate(categories)}
    table = np.zeros((len(categories), len(categories)), np.int64)
    for one, other in zip(first, second, strict=True):
        table[index[one], index[other]] += 1
    rows = tuple(tuple(int(value) for value in row) for row in table)
    n = int(table.sum())
    if n == 0:
        return Agreement(None, None, None, None, 0, categories, rows)
    observed = float(np.trace(table)) / n
    expected = float(table.sum(axis=1) @ table.sum(axis=0)) / n**2
    if expected >= 1:
        return Agreement(None, None, None, observed, n, categories, rows)
    kappa = (observed - expected) / (1 - expected)
    half = Z95 * math.sqrt(observed * (1 - observed) / n) / (1 - expected)
    return Agreement(kappa, max(-1.0, kappa - half), min(1.0, kappa + half), observed, n, categories, rows)
