"""The figures of one benchmark's part of the page: which plots it has, with words, rows and pictures for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cairn.report.charts import MOST_CATEGORIES, MOST_SERIES, chart, choose_series
from cairn.report.plots import TABLES, Rows
from cairn.report.words import metric_title, telling_slice

_EDGES = ("easy", "medium", "hard", "all", "overall")


@dataclass(frozen=True)
class Figure:
    """One plot: `spec` draws `rows`, whose values are called `fields`; `columns` titles those that its table shows.

    A column is None where every row says the same, which the figure's title says already.
    """

    id: str
    title: str
    caption: str
    alt: str
    fields: tuple[str, ...]
    columns: tuple[str | None, ...]
    rows: tuple[tuple[Any, ...], ...]
    spec: Mapping[str, Any]


def benchmark_figures(benchmark: str, tables: Mapping[str, Rows]) -> list[Figure]:
    """The figures that `tables` has rows for, in the order in which a reader asks."""
    own = {name: [row for row in rows if row["benchmark"] == benchmark] for name, rows in tables.items()}
    made = [
        *_slices(benchmark, own["slices"]),
        *_curves(benchmark, own["precision-recall"]),
        *_thresholds(benchmark, own["thresholds"]),
        *_by_slice(benchmark, "gallery", own["gallery"]),
        *_seeds(benchmark, own["seeds"]),
        *_gains(benchmark, own["gains"]),
        *_tail(benchmark, own["tail"]),
    ]
    return made


def _figure(benchmark: str, name: str, part: str, title: str, caption: str, rows: Rows) -> Figure:
    table = TABLES[name]
    fields = [field for field in table.columns if field != "benchmark"]
    titles = [
        None
        if f in ("metric", "slice", "system") and len({row[f] for row in rows}) == 1
        else table.columns[f]
        for f in fields
    ]
    key = next((f for f in ("series", "estimator") if f in table.columns), "")
    names = list(dict.fromkeys(str(row[key]) for row in rows if row[key] != "interval"))
    alt = f"{title}. {caption} Series: {', '.join(names)}. The table below the plot holds the same values."
    return Figure(
        id="-".join(filter(None, (name, benchmark, part))),
        title=title,
        caption=caption,
        alt=alt,
        fields=tuple(fields),
        columns=tuple(titles),
        rows=tuple(tuple(row[field] for field in fields) for row in rows),
        spec=chart(name, rows),
    )


def _slices(benchmark: str, rows: Rows) -> list[Figure]:
    if not rows:
        return []
    metric = metric_title(rows[0]["metric"])
    names = {row["slice"] for row in rows}
    best = choose_series(rows)
    rows, words = _kept(rows, best)
    edges = sorted(names & set(_EDGES))
    made = []
    main = [row for row in rows if row["slice"] in edges] if edges and len(names) > 6 else rows
    if main and len({row["slice"] for row in main}) <= 6:
        title = f"{metric} by difficulty" if {"easy", "hard"} & names else metric
        bars = f"Thin lines are 95% intervals over queries.{words}"
        made.append(_figure(benchmark, "slices", "", title, bars, main))
    if len(names) > 6:
        others = [row for row in rows if row["slice"] not in edges]
        others, more = _widest(others)
        caption = f"One line per category; thin lines are 95% intervals over queries.{more}{words}"
        made.append(_figure(benchmark, "slices", "categories", f"{metric} by category", caption, others))
    return made


def _widest(rows: Rows) -> tuple[Rows, str]:
    """The categories in which systems differ most, where there are too many to draw."""
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row["slice"], []).append(row["value"])
    if len(values) <= MOST_CATEGORIES:
        return rows, ""
    spread = sorted(values, key=lambda name: (min(values[name]) - max(values[name]), name))[:MOST_CATEGORIES]
    words = f" Of {len(values)} categories, the {MOST_CATEGORIES} in which the systems differ most."
    return [row for row in rows if row["slice"] in set(spread)], words


def _kept(rows: Rows, names: Sequence[str]) -> tuple[Rows, str]:
    there = len({row["series"] for row in rows})
    order = {name: place for place, name in enumerate(names)}
    kept = sorted((row for row in rows if row["series"] in order), key=lambda row: order[row["series"]])
    return kept, f" The {MOST_SERIES} best of {there} are drawn." if there > len(names) else ""


def _curves(benchmark: str, rows: Rows) -> list[Figure]:
    if not rows:
        return []
    piece = telling_slice({row["slice"] for row in rows})
    rows = [row for row in rows if row["slice"] == piece]
    rows, words = _kept(rows, choose_series(rows, value="precision"))
    caption = (
        "All predictions of all queries in one order; the dotted line is precision 90, where the copy-detection "
        f"challenge reads recall.{words}"
    )
    return [_figure(benchmark, "precision-recall", "", "Precision against recall", caption, rows)]


def _thresholds(benchmark: str, rows: Rows) -> list[Figure]:
    if not rows:
        return []
    rows, words = _kept(rows, choose_series(rows))
    caption = (
        "mAP@1 over the candidates that score at least the threshold of each false-positive rate; t-mAP@1 is the "
        f"mean over the eleven.{words}"
    )
    return [_figure(benchmark, "thresholds", "", "What t-mAP averages", caption, rows)]


def _by_slice(benchmark: str, name: str, rows: Rows) -> list[Figure]:
    if not rows:
        return []
    piece = telling_slice({row["slice"] for row in rows})
    rows, words = _kept([row for row in rows if row["slice"] == piece], choose_series(rows))
    title = f"{metric_title(rows[0]['metric'])}, {piece}, against the gallery's size"
    caption = f"Measured, not estimated; vertical lines are 95% intervals.{words}"
    return [
        _figure(
            benchmark,
            name,
            "",
            title,
            caption,
            rows,
        )
    ]


def _seeds(benchmark: str, rows: Rows) -> list[Figure]:
    if not rows:
        return []
    piece = telling_slice({row["slice"] for row in rows})
    rows = [row for row in rows if row["slice"] == piece]
    title = f"{metric_title(rows[0]['metric'])}, {piece}, seed by seed"
    return [_figure(benchmark, "seeds", "", title, "A ring is one training seed, the bar their mean.", rows)]


def _gains(benchmark: str, rows: Rows) -> list[Figure]:
    if not rows:
        return []
    rows, words = _kept(rows, choose_series(rows, value="gain"))
    metric = metric_title(rows[0]["metric"]).replace("mAP", "AP")
    title = f"What re-ranking gave each query ({metric}, {rows[0]['slice']})"
    caption = f"Below zero are the queries that it made worse.{words}"
    return [_figure(benchmark, "gains", "", title, caption, rows)]


def _tail(benchmark: str, rows: Rows) -> list[Figure]:
    made = []
    for system in sorted({row["system"] for row in rows}):
        own = [row for row in rows if row["system"] == system]
        title = f"{metric_title(own[0]['metric'])} of {system} in larger galleries (estimated)"
        caption = (
            "From a sample of the distractors (docs/tail-aware.md): “sample” is measured within it, “default” is "
            "the estimate, with its 95% interval for these queries; the others are baselines."
        )
        figure = _figure(benchmark, "tail", system, title, caption, own)
        made.append(figure)
    return made
