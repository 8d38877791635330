"""Prints what separates two numbers or two revisions."""

from typing import TYPE_CHECKING

from cairn.lineage.against import Against
from cairn.lineage.differences import Difference
from cairn.results.names import plain
from cairn.results.show import format_number

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 60
TITLES = {
    "number": "what is measured",
    "step": "a step of one side alone",
    "parameter": "parameters",
    "code": "code (by syntax tree)",
    "data": "data beside the code",
    "package": "packages",
    "source": "sources",
    "unexplained": "other bytes without a recorded cause",
}


def print_against(found: Against, console: "Console", full: bool = False) -> None:
    """Print both sides and their differences by kind; `full` shows whole digests and what only follows."""
    from rich.text import Text

    for mark, side, place in (("first ", found.first, 0), ("second", found.second, 1)):
        value = None if found.values is None else found.values[place]
        percent = "%" if found.unit == "fraction" else f" {found.unit}"
        shown = "" if value is None else f" = {format_number(value, found.unit, 2)}{percent}"
        console.print(Text.assemble((f"{mark}  ", "dim"), (plain(side), "bold"), shown))
    comparison = found.comparison
    kind = None
    for place, item in enumerate(comparison.differences):
        if item.kind != kind:
            kind = item.kind
            console.print(Text(TITLES[kind], "bold cyan"))
        console.print(_difference(item, full))
        if place < len(found.numbers):
            console.print(Text(f"    reaches {len(found.numbers[place]):,} numbers", "dim"))
    if not comparison.differences:
        console.print(Text("nothing that was recorded separates them", "bold green"))
    if comparison.follows:
        if full:
            console.print(Text("these follow from the above", "bold cyan"))
            for item in comparison.follows:
                console.print(_difference(item, full))
        else:
            count = len(comparison.follows)
            console.print(
                Text(
                    f"{count} more differ because of these (only one side has them): --full lists them", "dim"
                )
            )
    total = comparison.alike + comparison.unlike
    console.print(
        Text(f"{comparison.alike} of {total} pairs of artifacts that were compared have one hash", "dim")
    )
    for note in found.notes:
        console.print(Text(plain(f"note: {note}"), "yellow"))


def _difference(item: Difference, full: bool):
    from rich.text import Text

    if item.first is None or item.second is None:
        side, value = ("second", item.second) if item.first is None else ("first", item.first)
        change = f"only {side}: {_short(item, value or '', full)}"
    else:
        change = f"{_short(item, item.first, full)} → {_short(item, item.second, full)}"
    text = Text.assemble("  ", (plain(item.name), "bold"), f"  {plain(change)}")
    if item.artifacts:
        shown = item.artifacts if full else item.artifacts[:3]
        more = f" and {len(item.artifacts) - len(shown)} more" if len(item.artifacts) > len(shown) else ""
        text.append(f"\n    in {plain(', '.join(shown))}{more}", "dim")
    return text


def _short(item: Difference, value: str, full: bool) -> str:
    if full:
        return value
    if item.kind in ("code", "data", "unexplained"):
        return value[:12]
    return value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"
