"""Tail estimates as the page shows them: every estimator's value, the interval, bias and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.report.words import TAIL, metric_title
from cairn.results.show import format_interval, format_value
from cairn.results.table import Result, read_json_object

ABOUT = {
    "default": "Bayesian estimate over the hardness of positives",
    "evt": "generalised Pareto tail, per positive",
    "count": "the sample's counts, scaled",
    "naive": "the sample as if it were the gallery",
}


@dataclass(frozen=True)
class TailReport:
    """One run's estimates. `values`: estimator, what it is, place of the number, its text, its interval's."""

    system: str
    metric: str
    gallery: int
    sample: int
    pool: int
    queries: int
    values: tuple[tuple[str, str, int, str, str], ...]
    bias: float | None
    warnings: tuple[str, ...]


def tail_reports(root: Path, benchmark: str, numbers: Sequence[Result]) -> list[TailReport]:
    """A report for each run of `benchmark` that has estimates among `numbers`."""
    reports = []
    for system in sorted({row.name.system for row in numbers if row.name.benchmark == benchmark}):
        rows = [
            (place, row)
            for place, row in enumerate(numbers)
            if row.name.benchmark == benchmark
            and row.name.system == system
            and row.name.stage.startswith(TAIL)
        ]
        facts = read_json_object(root / "artifacts" / benchmark / system / "tail" / "tail.json") or {}
        if not rows or "parameters" not in facts:
            continue
        values = []
        for place, row in rows:
            estimator = row.name.stage.removeprefix(TAIL).rpartition("-s")[0]
            about = ABOUT.get(estimator, "a curve fitted to the sample")
            values.append((estimator, about, place, format_value(row), format_interval(row)))
        values.sort(
            key=lambda value: (list(ABOUT).index(value[0]) if value[0] in ABOUT else len(ABOUT), value[0])
        )
        reports.append(
            TailReport(
                system=system,
                metric=metric_title(str(facts["parameters"]["metric"])),
                gallery=int(facts["parameters"]["gallery"]),
                sample=int(facts["sample"]),
                pool=int(facts["pool"]),
                queries=int(facts["queries"]),
                values=tuple(values),
                bias=facts.get("model_bias"),
                warnings=tuple(str(warning) for warning in facts.get("warnings") or []),
            )
        )
    return reports
