"""The leaderboard: one table per benchmark and metric, published rows beside ours, seeds and their mean."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cairn.card.published import Published
from cairn.report.words import TAIL, headline, metric_title, slice_title, stage_words, telling_slice
from cairn.results.names import NONE, is_first
from cairn.results.show import SLICE_ORDER, format_interval, format_number, format_value, slice_key
from cairn.results.table import Result

MOST_COLUMNS = 6


@dataclass(frozen=True)
class Cell:
    """One value of a line. `numbers`: the places in the results of the numbers it is (several: their mean).

    `percent`: the value as it is sorted by; `low`, `high` in 0–100 where there is an interval; `spread`: the
    standard deviation over seeds, as text; `best`: the highest of its column among our own lines.
    """

    numbers: tuple[int, ...]
    text: str
    sort: float
    interval: str = ""
    low: float | None = None
    high: float | None = None
    spread: str = ""
    best: bool = False

    @property
    def level(self) -> float:
        """The value in 0–100, for the bar that is drawn under it."""
        return min(max(self.sort, 0.0), 100.0)


@dataclass(frozen=True)
class Line:
    """One row. `kind`: `own`, `mean` (over seeds), `seed` (one of several), `published`."""

    kind: str
    system: str
    stage: str
    first: bool
    cells: tuple[Cell | None, ...]
    gallery: int | None
    note: str = ""


@dataclass(frozen=True)
class Board:
    """One table: `columns` are slices with their titles; `others` how many slices have no column here."""

    benchmark: str
    metric: str
    title: str
    unit: str
    columns: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    telling: int
    others: int


def build_boards(numbers: Sequence[Result], published: Sequence[Published]) -> dict[str, list[Board]]:
    """Benchmark → its boards, that of its headline metric first. Tail estimates stand elsewhere."""
    groups: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, row in enumerate(numbers):
        if not row.name.stage.startswith(TAIL):
            groups[row.name.benchmark][row.name.metric].append(place)
    boards = {}
    for benchmark, metrics in sorted(groups.items()):
        first = headline(metrics)
        order = sorted(metrics, key=lambda name: (name != first, *_natural(name)))
        boards[benchmark] = [
            _board(benchmark, metric, metrics[metric], numbers, published) for metric in order
        ]
    return boards


def _natural(metric: str) -> tuple[str, int]:
    """`mp@5` before `mp@10`."""
    family, _, depth = metric.partition("@")
    return (family, int(depth)) if depth.isdigit() else (metric, 0)


def _board(
    benchmark: str,
    metric: str,
    places: Sequence[int],
    numbers: Sequence[Result],
    published: Sequence[Published],
) -> Board:
    slices = sorted({numbers[place].name.slice for place in places}, key=slice_key)
    shown = slices
    if len(slices) > MOST_COLUMNS:
        # A category is a bar of a plot and a row of the full table; a column each would fill no screen.
        common = {*SLICE_ORDER, "overall", "public", "private", "val", "test", "dev", "validation"}
        shown = [name for name in slices if name in common] or slices[:MOST_COLUMNS]
    telling = shown.index(telling_slice(shown))
    lines = [*_own_lines(places, numbers, shown), *_published_lines(benchmark, metric, shown, published)]
    lines.sort(key=lambda line: _order(line, telling))
    unit = numbers[places[0]].unit
    titles = tuple((name, slice_title(name)) for name in shown)
    return Board(
        benchmark,
        metric,
        metric_title(metric),
        unit,
        titles,
        tuple(_mark_best(lines, len(shown))),
        telling,
        len(slices) - len(shown),
    )


def _order(line: Line, telling: int) -> tuple[float, str, str]:
    cell = line.cells[telling]
    return (-cell.sort if cell else float("inf"), line.system, line.stage)


def _own_lines(places: Sequence[int], numbers: Sequence[Result], slices: Sequence[str]) -> list[Line]:
    rows: dict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for place in places:
        name = numbers[place].name
        rows[(name.system, name.head, name.seed, name.stage)][name.slice] = place
    seeds: dict[tuple[str, str, str], list[tuple[str, ...]]] = defaultdict(list)
    for key in rows:
        if key[2] != NONE:
            seeds[(key[0], key[1], key[3])].append(key)
    lines = []
    for key, own in sorted(rows.items()):
        several = len(seeds.get((key[0], key[1], key[3]), ())) > 1
        cells = tuple(_cell(own[name], numbers) if name in own else None for name in slices)
        lines.append(_line("seed" if several else "own", key, cells, numbers[next(iter(own.values()))]))
    for (system, head, stage), keys in sorted(seeds.items()):
        if len(keys) > 1:
            cells = tuple(
                _mean([rows[key][name] for key in keys if name in rows[key]], numbers) for name in slices
            )
            key = (system, head, f"mean of {len(keys)} seeds", stage)
            lines.append(_line("mean", key, cells, numbers[next(iter(rows[keys[0]].values()))]))
    return lines


def _line(kind: str, key: tuple[str, ...], cells: tuple[Cell | None, ...], example: Result) -> Line:
    system, head, seed, stage = key
    words = [system, *([head] if head != NONE else [])]
    if seed != NONE:
        words.append(seed if kind == "mean" else f"seed {seed}")
    return Line(kind, " · ".join(words), stage_words(stage), is_first(stage), cells, example.gallery_size)


def _cell(place: int, numbers: Sequence[Result]) -> Cell:
    row = numbers[place]
    scale = 100 if row.unit == "fraction" else 1
    bounds = row.low is not None and row.high is not None and row.unit == "fraction"
    return Cell(
        numbers=(place,),
        text=format_value(row),
        sort=row.value * scale,
        interval=format_interval(row),
        low=100 * row.low if bounds and row.low is not None else None,
        high=100 * row.high if bounds and row.high is not None else None,
    )


def _mean(places: Sequence[int], numbers: Sequence[Result]) -> Cell | None:
    if not places:
        return None
    unit = numbers[places[0]].unit
    values = [numbers[place].value for place in places]
    scale = 100 if unit == "fraction" else 1
    spread = format_number(statistics.stdev(values), unit) if len(values) > 1 else ""
    mean = statistics.fmean(values)
    return Cell(
        tuple(places), format_number(mean, unit), mean * scale, spread=f"± {spread}" if spread else ""
    )


def _published_lines(
    benchmark: str, metric: str, slices: Sequence[str], published: Sequence[Published]
) -> list[Line]:
    lines = []
    for row in published:
        values = row.values.get(benchmark, {})
        if row.metric != metric or not any(name in values for name in slices):
            continue
        cells = tuple(
            Cell((), f"{values[name]:.1f}", float(values[name])) if name in values else None
            for name in slices
        )
        stage = row.stage if row.shortlist is None else f"{row.stage} (k{row.shortlist})"
        note = f"{row.source}. {row.note}".strip() if row.note else row.source
        lines.append(Line("published", row.system, stage, row.stage == "global only", cells, None, note))
    return lines


def _mark_best(lines: Sequence[Line], columns: int) -> list[Line]:
    """Mark the highest of each column among our own lines; where there are seeds, their mean stands for them."""
    ranked = [line for line in lines if line.kind in ("own", "mean")]
    tops = [
        max((cell.sort for line in ranked if (cell := line.cells[c])), default=None) for c in range(columns)
    ]
    marked = []
    for line in lines:
        own = line.kind in ("own", "mean")
        cells = tuple(
            replace(cell, best=True) if own and cell and cell.sort == tops[c] else cell
            for c, cell in enumerate(line.cells)
        )
        marked.append(replace(line, cells=cells))
    return marked
