"""A grid of read-outs as a table a person reads: cells down, slices across, in percent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cairn.results.show import HEADLINES, METRIC_TITLES, SLICE_TITLES, format_number, slice_key

if TYPE_CHECKING:
    from rich.console import Console


def print_grid(found: Mapping[str, Any], console: "Console") -> None:
    """Print the record of `cairn.readout.grid.record`: all cells, extremes marked, controls below a line."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    metrics = {number["metric"] for cell in found["measured"] for number in cell["numbers"]}
    if not metrics:
        console.print("No number exists: no query has anything to find.", style="yellow")
        return
    metric = next((name for name in HEADLINES if name in metrics), min(metrics))
    ends = {end["slice"]: end for end in found["extremes"] if end["metric"] == metric}
    slices = sorted(ends, key=slice_key)
    title = METRIC_TITLES.get(metric, metric)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(Text(f"{found['benchmark']} · {title}"))
    for name in slices:
        table.add_column(Text(SLICE_TITLES.get(name, name)), justify="right")
    for in_protocol in (True, False):
        cells = [cell for cell in found["measured"] if cell["in_protocol"] is in_protocol]
        if cells and not in_protocol:
            table.add_section()
            table.add_row(Text("controls, outside the protocol", style="dim"))
        for cell in cells:
            values = {n["slice"]: n["value"] for n in cell["numbers"] if n["metric"] == metric}
            texts = [_marked(cell["cell"], values.get(name), ends[name]) for name in slices]
            learned = " *" if cell["learned_from"] == "gallery" else ""
            table.add_row(Text(cell["cell"] + learned), *texts)
    console.print(table)
    for name in slices:
        strongest, weakest = ends[name]["strongest"], ends[name]["weakest"]
        console.print(
            f"{SLICE_TITLES.get(name, name)}: strongest of {found['cells']} {_percent(strongest['value'])} "
            f"({strongest['cell']}), weakest {_percent(weakest['value'])} ({weakest['cell']})"
        )
    if any(cell["learned_from"] == "gallery" for cell in found["measured"]):
        console.print("* learned from the gallery that it is evaluated on")
    console.print(f"A selection: {found['note']}.", style="yellow")


def _marked(cell: str, value: float | None, ends: Mapping[str, Any]):
    from rich.text import Text

    if value is None:
        return Text("–", style="dim")
    mark = {ends["strongest"]["cell"]: "▲", ends["weakest"]["cell"]: "▼"}.get(cell, " ")
    return Text(f"{_percent(value)} {mark}")


def _percent(value: float) -> str:
    return format_number(value, "fraction")
