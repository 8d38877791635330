"""`cairn report`: writes the page, one HTML file that opens from disk."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it (report.html).")
    ] = None,
) -> None:
    """Write the report: leaderboard, plots, queries, and every number's lineage, in one HTML file.

    The file needs no network and no server. The same artifacts give the same bytes. Exit code 1, and no file,
    where a number cannot be followed to its sources.

    Example: cairn report -o release/report.html
    """
    from cairn.errors import UsageError
    from cairn.report.page import DEFAULT_PATH, write_report
    from pipelines.project import find_root

    root = find_root()
    target = output or root / DEFAULT_PATH
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name the file, e.g. {target / DEFAULT_PATH}")
    write_report(root, target)
    print(target)
