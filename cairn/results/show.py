"""The results as a table a person reads: systems and their stages down, difficulty across, in percent."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn.results.names import FIRST_STAGE, NONE, NumberName, is_first
from cairn.results.table import Result

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# What a stage's first word means to a reader, and the letter the field prints for a slice.
STAGE_TITLES: Mapping[str, str] = {
    "geometry": "geometric rerank",
    "ames": "AMES rerank",
    "sg": "SuperGlobal rerank",
    "aqe": "query expansion",
    "kr": "k-reciprocal rerank",
}
SLICE_TITLES: Mapping[str, str] = {"easy": "E", "medium": "M", "hard": "H"}
SLICE_ORDER = ("easy", "medium", "hard", "all")
METRIC_TITLES: Mapping[str, str] = {"map": "mAP", "micro-ap": "µAP"}
# How the protocol of a benchmark says that the metric is a project's choice.
OPEN_METRIC = "the metric named in params.yaml"
# The metric a benchmark's table shows: the first of these that it has, else its first by name.
HEADLINES = ("map", "micro-ap")


def print_results(
    results: Iterable[Result],
    console: "Console",
    synthetic: Collection[str] = (),
    intervals: bool = False,
) -> None:
    """Print one table per benchmark to `console`; `intervals` adds the 95% interval under each value."""
    rows = list(results)
    for benchmark in sorted({row.name.benchmark for row in rows}):
        own = [row for row in rows if row.name.benchmark == benchmark]
        console.print(results_table(own, benchmark in synthetic, intervals))


def results_table(results: Sequence[Result], synthetic: bool = False, intervals: bool = False) -> "Table":
    """The rich table of one benchmark's headline metric. Raises ValueError where `results` is empty."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    benchmark = results[0].name.benchmark
    metrics = {row.name.metric for row in results}
    metric = next((name for name in HEADLINES if name in metrics), min(metrics))
    shown = [row for row in results if row.name.metric == metric]
    slices = sorted({row.name.slice for row in shown}, key=slice_key)
    cells = {(_line(row.name), row.name.slice): row for row in shown}

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(Text(f"{benchmark} (synthetic)" if synthetic else benchmark))
    for name in slices:
        table.add_column(Text(_column_title(name, metric, slices)), justify="right")
    lines = sorted({_line(row.name) for row in shown}, key=lambda line: (line[:3], _stage_key(line[3])))
    for line in lines:
        title = Text(line_title(line, [other[3] for other in lines if other[:3] == line[:3]]))
        texts = [_cell(cells.get((line, name)), intervals) for name in slices]
        table.add_row(title, *texts)
    return table


def line_title(line: tuple[str, str, str, str], stages: Sequence[str]) -> str:
    """What the row (system, head, seed, stage) is called: the system at its first stage, then `+ stage`.

    Options around the search stand beside the system: `dinov2-l (aqe-n10)`.
    """
    system, head, seed, stage = line
    if not is_first(stage):
        title = stage_title(stage)
        alike = [other for other in stages if not is_first(other) and stage_title(other) == title]
        cell = stage.partition("-")[2]
        return f"+ {title} ({cell})" if len(alike) > 1 and cell else f"+ {title}"
    options = [f"({stage.removeprefix(f'{FIRST_STAGE}-')})"] if stage != FIRST_STAGE else []
    return " ".join([system, *(part for part in (head, seed) if part != NONE), *options])


def stage_title(stage: str) -> str:
    """A stage slug's display name: `geometry-k100` → `geometric rerank`; an unknown slug stays as it is."""
    parts = [STAGE_TITLES.get(part.split("-")[0]) for part in stage.split("~")]
    return ", ".join(part for part in parts if part) if all(parts) else stage


def protocol_words(facts: Mapping[str, Any], results: Iterable[Result]) -> str:
    """A benchmark's protocol (of `benchmark_facts`; empty where it says none) for readers of `results`.

    A protocol that leaves the metric to `params.yaml` is said with the metrics that there are numbers of.
    """
    protocol = str(facts.get("protocol") or "")
    metrics = dict.fromkeys(result.name.metric for result in results)
    titles = ", ".join(METRIC_TITLES.get(metric, metric) for metric in metrics)
    return protocol.replace(OPEN_METRIC, titles) if titles else protocol


def format_value(result: Result, decimals: int = 1) -> str:
    """`41.2` for the fraction 0.412 (percent is understood), the plain value where the unit is another."""
    return format_number(result.value, result.unit, decimals)


def format_number(value: float, unit: str, decimals: int = 1) -> str:
    """`value` as it is shown: a fraction as percent without the sign, a count without decimals."""
    if unit == "fraction":
        return f"{100 * value:.{decimals}f}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def format_interval(result: Result, decimals: int = 1) -> str:
    """`36.0–46.5`, or nothing where there is no interval."""
    if result.low is None or result.high is None:
        return ""
    return "–".join(format_number(value, result.unit, decimals) for value in (result.low, result.high))


def slice_key(name: str) -> tuple[int, str]:
    """Sort key of slices: easy, medium, hard, all, then by name."""
    return (SLICE_ORDER.index(name) if name in SLICE_ORDER else len(SLICE_ORDER), name)


def _line(name: NumberName) -> tuple[str, str, str, str]:
    return (name.system, name.head, name.seed, name.stage)


def _stage_key(stage: str) -> tuple[bool, list[tuple[int, str]]]:
    # Digits count as numbers, so that k100 stands before k1600.
    parts = re.findall(r"\d+|\D+", stage)
    return (not is_first(stage), [(int(part), "") if part.isdigit() else (-1, part) for part in parts])


def _column_title(name: str, metric: str, slices: Sequence[str]) -> str:
    title = METRIC_TITLES.get(metric, metric)
    if name in SLICE_TITLES and title == "mAP":
        return SLICE_TITLES[name]
    if name in ("all", NONE) and len(slices) == 1:
        return title
    return f"{title} {name}"


def _cell(result: Result | None, intervals: bool):
    from rich.text import Text

    if result is None:
        return Text("–", style="dim")
    text = Text(format_value(result))
    if intervals and (interval := format_interval(result)):
        text.append(f"\n{interval}", style="dim")
    return text
