"""Bars for downloads on standard error: the file that is coming, and all of them together, in bytes."""

import contextlib
from collections.abc import Callable, Iterator

from cairn.progress import say, visible


@contextlib.contextmanager
def download_bars(files: int, total: int | None) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function that is told (file, bytes there, bytes in all); it draws where a person watches.

    Elsewhere one line per file is written when its transfer begins. `files` and `total` bytes are those of
    the whole fetch; `total` is None where not every size is known, and then files are counted instead.
    """
    if not visible():
        begun: set[str] = set()

        def note(name: str, done: int, size: int | None) -> None:
            if name not in begun:
                begun.add(name)
                of = f" of {size:,}" if size else ""
                say(f"fetching {name} ({'from byte ' + format(done, ',') + of if done else 'all' + of})")

        yield note
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        everything = progress.add_task(f"{files} files", total=total) if files > 1 else None
        tasks: dict[str, tuple[TaskID, int]] = {}

        def advance(name: str, done: int, size: int | None) -> None:
            if name not in tasks:
                tasks[name] = (progress.add_task(name, total=size), done)
            task, before = tasks[name]
            progress.update(task, completed=done, total=size)
            if everything is not None:
                progress.advance(everything, max(0, done - before))
            tasks[name] = (task, done)

        yield advance
