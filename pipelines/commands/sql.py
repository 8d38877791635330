"""`cairn sql`: one reading SQL statement over results, rankings, descriptors and manifests."""

import csv
import json
import math
import sys
from decimal import Decimal
from typing import Annotated

import typer


def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT; `SHOW TABLES` lists the views.")],
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV with a header line.")] = False,
) -> None:
    """Ask the results in SQL (DuckDB); reads only, works while a run goes on, from any directory.

    Views: results, benchmarks, per_query, head_per_query, rankings, rerankings, pairs, mixed_rankings, diagnostics,
    descriptors, query_descriptors, manifest, queries, relevance. The graph of hashes: artifacts, edges, code,
    packages, params, sources, and lineage (which artifacts each number rests on). docs/sql.md has ten questions with
    their queries.

    Example: cairn sql "SELECT system, stage, round(100 * value, 1) AS map FROM results WHERE slice = 'hard'"
    """
    from cairn.errors import UsageError
    from cairn.results.database import query
    from cairn.results.names import printable
    from pipelines.project import find_root

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude one another: choose one")
    answer = query(find_root(), statement)
    if as_json:
        twice = sorted({name for name in answer.columns if answer.columns.count(name) > 1})
        if twice:
            raise UsageError(
                f"--json: more than one column is called {printable(twice[0])}; name them apart (`… AS name`)"
            )
        rows = [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]
        print(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    else:
        from rich.console import Console

        print_table(answer.columns, answer.rows, Console(highlight=False))
        count = len(answer.rows)
        Console(stderr=True).print(f"{count:,} row{'' if count == 1 else 's'}", style="dim")


def print_table(columns, rows, console) -> None:
    """Print an answer as a table, or, where the terminal is too narrow for it, each row as lines `column value`.

    What does not go to a terminal (a pipe, a file) is as wide as it needs to be.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from cairn.results.names import plain

    def lines(text: str) -> str:
        # EXPLAIN answers with a plan of many lines.
        return "\n".join(plain(line) for line in text.split("\n"))

    heads = [plain(column) for column in columns]
    cells = [[lines(_shown(value)) for value in row] for row in rows]
    for index in range(len(heads)):
        _align([row[index] for row in rows], cells, index)
    widths = [
        max(cell_len(line) for text in (head, *(row[index] for row in cells)) for line in text.split("\n"))
        for index, head in enumerate(heads)
    ]
    # Two cells' padding and the divider stand between two columns; with pad_edge off, nothing around them.
    needed = sum(widths) + 3 * max(0, len(widths) - 1)
    if console.is_terminal and needed > console.width and rows:
        label = max(map(cell_len, heads))
        for number, row in enumerate(cells, 1):
            console.print(Text(f"row {number}", "dim"))
            for head, text in zip(heads, row, strict=True):
                shown = text.replace("\n", "\n" + " " * (label + 4))
                console.print(Text.assemble("  ", (head.ljust(label), "bold"), "  ", shown), soft_wrap=True)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, head in enumerate(heads):
        numeric = bool(rows) and all(isinstance(row[index], int | float | Decimal) for row in rows)
        table.add_column(Text(head), justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        table.add_row(*map(Text, row))
    if not console.is_terminal:
        console.width = max(needed + 1, console.width)
    console.print(table)


def _align(values: list, cells: list[list[str]], index: int) -> None:
    """Give the fractions of a column as many decimals as the one that has most, so that their points align."""
    fractions = [row for value, row in zip(values, cells, strict=True) if isinstance(value, float)]
    if any(character in row[index] for row in fractions for character in "ein"):  # 1e-09, inf, nan
        return
    decimals = max((len(row[index].partition(".")[2]) for row in fractions), default=0)
    for value, row in zip(values, cells, strict=True):
        # A value that was rounded to six digits gets no zeros that it does not have.
        if decimals and isinstance(value, float) and float(row[index]) == value:
            whole, _, part = row[index].partition(".")
            row[index] = f"{whole}.{part.ljust(decimals, '0')}"


def _shown(value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and len(value) > 8:
        return "[" + ", ".join(_shown(item) for item in value[:6]) + f", … {len(value)} values]"
    return str(value)


def _plain(value):
    """`value` as JSON can hold it: no NaN or infinity (null), dates as text, bytes in hexadecimal."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)
