"""Puts the numbers of the runs that `params.yaml` lists into one table."""

import json
from collections.abc import Iterable
from pathlib import Path

from cairn.progress import say
from cairn.results.names import NONE
from cairn.results.table import collect_results, write_metrics, write_results

ABOUT_FILE = "benchmark.json"
NAMED = 3
"""How many runs without scores are named; more would bury the table."""


def gather_results(root: Path, runs: Iterable[tuple[str, str, str]], output: Path) -> None:
    """Write `results.parquet` and `metrics.json` (for `dvc metrics show`) of the runs: benchmark, system, head.

    The head is `-` for none, else a protocol. Runs that have not been scored yet are left out, and the first of them
    named on standard error; scores of runs and heads that are no longer listed are left out too.
    """
    wanted = set(runs)
    rows = [
        row for row in collect_results(root) if (row.name.benchmark, row.name.system, row.name.head) in wanted
    ]
    scored = {(row.name.benchmark, row.name.system) for row in rows if row.name.head == NONE}
    missing = [f"{benchmark}/{system}" for benchmark, system in sorted({run[:2] for run in wanted} - scored)]
    for run in missing[:NAMED]:
        say(f"{run} has no scores yet: `cairn run {run}` makes them")
    if len(missing) > NAMED:
        say(f"… and {len(missing) - NAMED} more; `cairn status` names them all, `cairn run` makes them")
    write_results(output / "results.parquet", rows)
    write_metrics(output / "metrics.json", rows, _synthetic(root, scored))


def _synthetic(root: Path, scored: set[tuple[str, str]]) -> set[str]:
    found = set()
    for benchmark, system in scored:
        about = root / "artifacts" / "scores" / benchmark / system / ABOUT_FILE
        if json.loads(about.read_text("utf-8")).get("synthetic"):
            found.add(benchmark)
    return found
