"""Is a difference between two training protocols larger than what the seed alone moves?

For each cell (a benchmark's metric on a slice): mean and standard deviation over a protocol's runs, the
difference of the protocols' means, and the pooled within-protocol standard deviation

    sqrt(((n₁ − 1) s₁² + (n₂ − 1) s₂²) / (n₁ + n₂ − 2)),

with Student's 95% interval of the difference. Correlations across runs show whether two benchmarks move
together: a negative one where the epoch is chosen on one of them is a trace of that choice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import InputError


@dataclass(frozen=True)
class Spread:
    """`n` runs of one protocol in one cell: mean and standard deviation (n − 1 in the denominator)."""

    n: int
    mean: float
    sd: float


@dataclass(frozen=True)
class Difference:
    """Second protocol less first, in one cell.

    `pooled_sd` is within protocols; `in_sd` the difference in units of it, None where all runs are equal;
    `interval` Student's 95% interval of the difference, None with a single run each.
    """

    cell: str
    first: Spread
    second: Spread
    difference: float
    pooled_sd: float
    in_sd: float | None
    interval: tuple[float, float] | None

    @property
    def within_noise(self) -> bool:
        """Whether the difference is at most one pooled standard deviation."""
        return abs(self.difference) <= self.pooled_sd

    @property
    def excludes_zero(self) -> bool:
        """Whether the 95% interval of the difference excludes 0."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


@dataclass(frozen=True)
class Correlation:
    """Pearson's r of two cells across runs, None where one of them does not vary.

    `all_runs` is over every run; `within_protocols` with each protocol's mean taken out, so that a
    difference between the protocols does not look like agreement.
    """

    first: str
    second: str
    n: int
    all_runs: float | None
    within_protocols: float | None
    interval: tuple[float, float] | None  # Fisher's, of `all_runs`; None below four runs


@dataclass(frozen=True)
class SeedAnalysis:
    """The analysis of two protocols' runs; `unit` is what values are given in."""

    protocols: tuple[str, str]
    cells: tuple[Difference, ...]
    correlations: tuple[Correlation, ...]
    unit: str
    selected_on: str | None

    @property
    def verdict(self) -> str:
        """What the numbers say, in words."""
        return verdict(self)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        first, second = self.protocols
        return {
            "protocols": list(self.protocols),
            "unit": self.unit,
            "selected_on": self.selected_on,
            "cells": [
                {
                    "cell": one.cell,
                    first: {"n": one.first.n, "mean": one.first.mean, "sd": one.first.sd},
                    second: {"n": one.second.n, "mean": one.second.mean, "sd": one.second.sd},
                    "difference": one.difference,
                    "pooled_sd": one.pooled_sd,
                    "difference_in_pooled_sd": one.in_sd,
                    "interval95": list(one.interval) if one.interval else None,
                }
                for one in self.cells
            ],
            "correlations": [
                {
                    "cells": [one.first, one.second],
                    "runs": one.n,
                    "r": one.all_runs,
                    "r_within_protocols": one.within_protocols,
                    "interval95": list(one.interval) if one.interval else None,
                }
                for one in self.correlations
            ],
            "verdict": self.verdict,
        }


Runs = Sequence[Mapping[str, float]]
"""One mapping per run (seed): cell → value. A cell is named `benchmark/slice`, as in `roxford5k/medium`."""


def analyse_seeds(
    runs: Mapping[str, Runs], *, unit: str = "mAP points", selected_on: str | None = None
) -> SeedAnalysis:
    """Compare the two protocols of `runs` (protocol → its runs); the difference is second less first.

    `selected_on` is the cell that epochs are chosen by. InputError where there are not two protocols, a
    protocol has fewer than two runs, runs lack a cell, or a value is not finite.
    """
    if len(runs) != 2:
        raise InputError(f"{len(runs)} protocols; two are compared")
    first, second = runs
    cells = _cells(runs)
    if selected_on is not None and selected_on not in cells:
        raise InputError(f"selected_on {selected_on!r} is no cell; expected one of {', '.join(cells)}")
    values = {
        protocol: {cell: np.array([run[cell] for run in members], np.float64) for cell in cells}
        for protocol, members in runs.items()
    }
    differences = tuple(
        difference(cell, spread(values[first][cell]), spread(values[second][cell])) for cell in cells
    )
    benchmarks = {cell: cell.partition("/")[0] for cell in cells}
    correlations = tuple(
        correlation(a, b, [values[first][a], values[second][a]], [values[first][b], values[second][b]])
        for number, a in enumerate(cells)
        for b in cells[number + 1 :]
        if benchmarks[a] != benchmarks[b]
    )
    return SeedAnalysis((first, second), differences, correlations, unit, selected_on)


def read_runs(path: Path) -> dict[str, list[dict[str, float]]]:
    """Protocol → runs (cell → value) from a CSV protocol,seed,cell,value, protocols in order of appearance.

    InputError, naming the line, where a value is no finite number or a cell of a run stands twice.
    """
    from cairn.scoring.files import number_column, read_table

    table = read_table(path, ("protocol", "seed", "cell", "value"), more_columns=True)
    values = number_column(table, "value", ("protocol", "seed", "cell"))
    found: dict[str, dict[str, dict[str, float]]] = {}
    names = (table.columns[name] for name in ("protocol", "seed", "cell"))
    for row, (protocol, seed, cell) in enumerate(zip(*names, strict=True)):
        run = found.setdefault(protocol, {}).setdefault(seed, {})
        if cell in run:
            table.fail(row, f"{cell} of {protocol}, seed {seed} is given twice")
        run[cell] = float(values[row])
    return {protocol: list(members.values()) for protocol, members in found.items()}


def spread(values: np.ndarray) -> Spread:
    """Mean and standard deviation of float64 [runs]; sd is 0 for a single run."""
    return Spread(len(values), float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)


def difference(cell: str, first: Spread, second: Spread) -> Difference:
    """The difference of two protocols from means and standard deviations alone, as papers print them."""
    from scipy.stats import t

    degrees = first.n + second.n - 2
    gap = second.mean - first.mean
    if degrees < 1:
        return Difference(cell, first, second, gap, 0.0, None, None)
    variance = ((first.n - 1) * first.sd**2 + (second.n - 1) * second.sd**2) / degrees
    pooled = math.sqrt(variance)
    half = float(t.ppf(0.975, degrees)) * pooled * math.sqrt(1 / first.n + 1 / second.n)
    in_sd = gap / pooled if pooled > 0 else None
    return Difference(cell, first, second, gap, pooled, in_sd, (gap - half, gap + half))


def correlation(first: str, second: str, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Correlation:
    """Pearson's r of cells `first` and `second`; `a` and `b` hold their values by protocol, runs in order.

    The interval is Fisher's: tanh(atanh r ± 1.96 / sqrt(n − 3)).
    """
    everything = pearson(np.concatenate(a), np.concatenate(b))
    centred = pearson(
        np.concatenate([one - one.mean() for one in a]), np.concatenate([one - one.mean() for one in b])
    )
    n = sum(map(len, a))
    interval = None
    if everything is not None and n > 3 and abs(everything) < 1:
        centre, half = math.atanh(everything), 1.959963984540054 / math.sqrt(n - 3)
        interval = (math.tanh(centre - half), math.tanh(centre + half))
    return Correlation(first, second, n, everything, centred, interval)


def pearson(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's r of two float64 [n]; None where one does not vary."""
    x, y = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    # Equal values leave rounding errors behind, which are no variation.
    if scale <= 1e-24 * (1 + float(abs(a).max())) * (1 + float(abs(b).max())) * len(a):
        return None
    return max(-1.0, min(1.0, float(x @ y) / scale))


def shown(points: float, sign: str = "") -> str:
    """With one decimal, as every table of percentages has it; `sign` "+" writes it always. Never -0.0."""
    return f"{round(points, 1) + 0.0:{sign}.1f}"


def verdict(analysis: SeedAnalysis) -> str:
    """Sentences computed from the numbers: how many differences the seeds explain, and what can be said."""
    first, second = analysis.protocols
    cells, unit = analysis.cells, analysis.unit
    within = sum(one.within_noise for one in cells)
    largest = max(cells, key=lambda one: abs(one.in_sd) if one.in_sd is not None else abs(one.difference))
    sentences = [
        f"{within} of {len(cells)} differences ({second} less {first}) are within one pooled standard "
        f"deviation of runs that differ in their seed alone; the largest, relative to it, is "
        f"{shown(largest.difference, '+')} on {largest.cell}"
        + (f" ({abs(largest.in_sd):.1f} pooled sd)." if largest.in_sd is not None else ".")
    ]
    beyond = [one for one in cells if one.excludes_zero]
    if beyond:
        named = ", ".join(f"{one.cell} {shown(one.difference, '+')}" for one in beyond)
        sentences.append(
            f"The 95% interval excludes 0 for {named}: there the protocols differ beyond the seeds."
        )
        if len(cells) > 1:
            expected = 0.05 * len(cells)
            sentences.append(
                f"With {len(cells)} cells compared, {expected:.1f} such intervals are expected by chance."
            )
    else:
        most = max(abs(one.difference) for one in cells)
        reach = max(max(abs(end) for end in one.interval) for one in cells if one.interval is not None)
        sentences.append(
            f"No 95% interval excludes 0: the runs show no effect, which is not to show that there is none; "
            f"no mean moves by more than {shown(most)} {unit}, and the intervals reach {shown(reach)}."
        )
    if analysis.selected_on is not None:
        bench = analysis.selected_on.partition("/")[0]
        against = [
            one
            for one in analysis.correlations
            if one.all_runs is not None
            and one.all_runs < -0.5
            and bench in (one.first.partition("/")[0], one.second.partition("/")[0])
        ]
        if against:
            worst = min(against, key=lambda one: one.all_runs or 0.0)
            sentences.append(
                f"{worst.first} and {worst.second} correlate at r = {worst.all_runs:.2f} across the "
                f"{worst.n} runs, as selecting epochs on one of them ({analysis.selected_on}) can bring about."
            )
    return " ".join(sentences)


def _cells(runs: Mapping[str, Runs]) -> list[str]:
    cells: list[str] | None = None
    for protocol, members in runs.items():
        if len(members) < 2:
            raise InputError(f"protocol {protocol} has {len(members)} runs; a spread needs at least two")
        for number, run in enumerate(members):
            if cells is None:
                cells = list(run)
            if set(run) != set(cells):
                odd = sorted(set(run) ^ set(cells))[0]
                raise InputError(f"protocol {protocol}, run {number}: cell {odd} is not in every run")
            for cell, value in run.items():
                if not math.isfinite(value):
                    raise InputError(f"protocol {protocol}, run {number}: {cell} is {value}")
    if not cells:
        raise InputError("the runs have no cell")
    return cells
