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

    Views: results, benchmarks, per_query, rankings, rerankings, pairs, mixed_rankings, diagnostics, descriptors,
    query_descriptors, manifest, queries, relevance.

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
        _print_table(answer.columns, answer.rows)


def _print_table(columns, rows) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from cairn.results.names import plain

    def lines(text: str) -> str:
        # EXPLAIN answers with a plan of many lines.
        return "\n".join(plain(line) for line in text.split("\n"))

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float | Decimal) for row in rows)
        table.add_column(Text(plain(column)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(lines(_shown(value))) for value in row))
    Console().print(table)
    Console(stderr=True).print(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}", style="dim")


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
