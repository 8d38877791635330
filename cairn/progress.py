"""Progress on standard error: a bar where a person watches, nothing where a program reads."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")


def visible() -> bool:
    """Whether a bar is drawn: standard error is a terminal, or CAIRN_PROGRESS=1 asks for it."""
    return os.environ.get("CAIRN_PROGRESS", "1" if sys.stderr.isatty() else "0") == "1"


def track(
    items: Iterable[T],
    description: str,
    total: int | None = None,
    unit: str = "it",
    note: Callable[[], str] = str,
) -> Iterator[T]:
    """Yield `items` while a rich bar shows how many are done, the rate in `unit`/s and the time left.

    `note` gives a word more behind the rate.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if not visible():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(description, total=total, rate="")
        for item in items:
            yield item
            speed = progress.tasks[task].speed
            rate = f"{speed:,.{0 if speed >= 10 else 1}f} {unit}/s {note()}".rstrip() if speed else ""
            progress.update(task, advance=1, rate=rate)


def track_bytes(items: Iterable[T], description: str, total: int, position: Callable[[], int]) -> Iterator[T]:
    """Yield `items` while a rich bar shows how far `position()` has come in a file of `total` bytes."""
    if not visible():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(description, total=total)
        for item in items:
            yield item
            progress.update(task, completed=position())


def say(message: str) -> None:
    """One line of what is being done, on standard error."""
    print(message, file=sys.stderr, flush=True)
