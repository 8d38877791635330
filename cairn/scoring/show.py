"""Prints a scored run as a table for people: percent, thresholds as they are."""

from typing import TYPE_CHECKING

from cairn.images.names import one_line
from cairn.metrics.result import ScoredRun

if TYPE_CHECKING:
    from rich.table import Table


def shown(metric: str, value: float | None) -> str:
    """A value as the table shows it: percent with two decimals, a threshold as it is, a dash for none."""
    if value is None:
        return "–"
    return f"{value:.6g}" if metric.startswith("threshold") else f"{100 * value:.2f}"


def rich_table(run: ScoredRun) -> "Table":
    """Slices as rows, metrics as columns, and how many queries count (per metric where that differs)."""
    from rich.table import Table
    from rich.text import Text

    metrics = list(dict.fromkeys(row.metric for row in run.rows))
    table = Table(title=f"{run.protocol} (percent)", title_justify="left", header_style="bold")
    table.add_column("slice", overflow="fold")
    for metric in (*metrics, "queries"):
        table.add_column(metric, justify="right", overflow="fold")
    for part in dict.fromkeys(row.slice for row in run.rows):
        cells = {row.metric: row for row in run.rows if row.slice == part}
        counts = list(dict.fromkeys(f"{row.n_queries:,}" for row in cells.values()))
        values = [shown(m, cells[m].value) if m in cells else "" for m in metrics]
        table.add_row(Text(one_line(part)), *values, " / ".join(counts))
    return table
