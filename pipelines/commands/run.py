"""`cairn run`: bring what `params.yaml` lists up to date, then print the numbers."""

from typing import Annotated

import typer


def run(
    target: Annotated[
        str, typer.Argument(help="BENCHMARK, or BENCHMARK/SYSTEM; everything in params.yaml where left out.")
    ] = "",
    json_output: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Bring the benchmark's numbers up to date through DVC, then print them.

    Example: `cairn run toytown/rootsift-vlad`
    """
    from cairn.errors import CairnError
    from cairn.parameters import load_parameters
    from cairn.progress import say
    from pipelines.bridge import repro_command
    from pipelines.generate import write_pipeline
    from pipelines.project import PARAMETERS, find_root

    root = find_root()
    parameters = load_parameters(root / PARAMETERS)
    keys = matching_runs(target, parameters.runs)
    if write_pipeline(root, parameters):
        say("dvc.yaml rewritten for what params.yaml lists")
    status = repro_command(root, [f"scores@{key}" for key in keys] if target else ["results"])
    if status == 0 and target:
        status = repro_command(root, ["results"], single=True)
    if status:
        raise CairnError(
            "a stage failed (its own message stands above); mend it and run again: finished work is kept"
        )
    print_numbers(
        root,
        [(parameters.runs[key]["benchmark"], parameters.runs[key]["system"]) for key in keys],
        json_output,
    )


def matching_runs(target: str, runs: dict) -> list[str]:
    """Names of the runs that `BENCHMARK`, `BENCHMARK/SYSTEM` or a run's own name selects."""
    from cairn.errors import UsageError

    benchmark, _, system = target.partition("/")
    keys = [
        key
        for key, item in runs.items()
        if key == target
        or ((not benchmark or item["benchmark"] == benchmark) and (not system or item["system"] == system))
    ]
    if not keys:
        there = ", ".join(f"{item['benchmark']}/{item['system']}" for item in runs.values()) or "none"
        raise UsageError(f"params.yaml lists no run of {target or 'anything'!r}; there are: {there}")
    return keys


def print_numbers(root, pairs, json_output: bool) -> None:
    """The results table of these (benchmark, system) pairs on standard output."""
    from cairn.report.table import numbers_json, print_results
    from cairn.results import rebuild_database

    rebuild_database(root)
    if json_output:
        print(numbers_json(root, pairs))
    else:
        print_results(root, pairs)
