"""`cairn run`: bring what `params.yaml` lists up to date, then print the numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cairn.parameters import Parameters
    from pipelines.graph import Node


def run(
    target: Annotated[
        str, typer.Argument(help="BENCHMARK, or BENCHMARK/SYSTEM; everything in params.yaml where left out.")
    ] = "",
    profile: Annotated[
        str, typer.Option("--profile", help="First put what profiles/NAME.yaml lists into params.yaml.")
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
    from pipelines.brought import check_brought, with_upstream
    from pipelines.code_stage import clean
    from pipelines.generate import write_pipeline
    from pipelines.graph import build_graph
    from pipelines.locking import one_run
    from pipelines.project import PARAMETERS, enter_root

    root = enter_root()
    with one_run(root):
        if profile:
            from pipelines.profile import apply_profile

            for key in apply_profile(root, profile):
                say(f"params.yaml: {key} from the profile {profile}")
        parameters = load_parameters(root / PARAMETERS)
        keys = matching_runs(target, parameters.runs)
        nodes = build_graph(parameters)
        last = [stage for stage in ("results", "head_report") if stage in nodes]
        chosen = {stage for stage, node in nodes.items() if _of_run(node, keys, parameters)}
        check_brought(root, parameters, with_upstream(nodes, chosen if target else last))
        if write_pipeline(root, parameters):
            say("dvc.yaml rewritten for what params.yaml lists")
        clean(root, parameters)
        status = repro_command(root, sorted(chosen) if target else last)
        if status == 0 and target:
            status = repro_command(root, _complete(root, nodes, last), single=True)
    if status:
        raise CairnError(
            "a stage failed (its own message stands above); mend it and run again: finished work is kept"
        )
    pairs = {(parameters.runs[key]["benchmark"], parameters.runs[key]["system"]) for key in keys}
    print_numbers(root, pairs, json_output)


def _of_run(node: "Node", keys: list[str], parameters: "Parameters") -> bool:
    """Whether a node is among the last of one of these runs: its scores, those of its heads, the check of pictures."""
    pairs = [(parameters.runs[key]["benchmark"], parameters.runs[key]["system"]) for key in keys]
    return (
        node.step.name in ("scores", "head_scores", "verification") and (node.benchmark, node.system) in pairs
    )


def _complete(root: Path, nodes: "Mapping[str, Node]", stages: list[str]) -> list[str]:
    """Those of `stages` whose inputs are all there: the report on heads wants every run."""
    return [stage for stage in stages if all((root / path).exists() for path in nodes[stage].inputs.values())]


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


def print_numbers(root: Path, pairs: set[tuple[str, str]], json_output: bool) -> None:
    """The numbers of these (benchmark, system) pairs on standard output, and what to type next."""
    from cairn.results import read_results, synthetic_benchmarks
    from cairn.results.database import rebuild_database
    from cairn.results.table import RESULTS_PATH

    rebuild_database(root)
    rows = [r for r in read_results(root / RESULTS_PATH) if (r.name.benchmark, r.name.system) in pairs]
    if json_output:
        print(
            json.dumps([{"name": str(r.name), "value": r.value, "low": r.low, "high": r.high} for r in rows])
        )
        return
    from rich.console import Console

    from cairn.results.facts import pretraining_notes
    from cairn.results.show import print_results

    synthetic = synthetic_benchmarks(root, {benchmark for benchmark, _ in pairs})
    console = Console(soft_wrap=True, highlight=False)
    print_results(rows, console, synthetic=synthetic)
    for benchmark in sorted(synthetic):
        console.print(
            f"{benchmark} is synthetic: a town drawn by code, to show that everything works; "
            "its numbers say nothing about photographs.",
            style="yellow",
        )
    for note in pretraining_notes(root, pairs):
        console.print(note, style="yellow")
    for benchmark in sorted({benchmark for benchmark, _ in pairs}):
        training = json.loads((root / f"artifacts/{benchmark}/training/training.json").read_text("utf-8"))
        if training["from"] != benchmark:
            console.print(training["note"], style="yellow")
    say_unpinned(root, rows, console)
    report = root / "artifacts/heads/report.txt"
    if any(row.name.head != "-" for row in rows) and report.is_file():
        console.print(report.read_text("utf-8"), markup=False)
    if not rows:
        console.print("No number exists: no query has anything to find.", style="yellow")
    if rows:
        console.print(f"\nFollow a number:  cairn trace {example(rows)}")
        console.print("Look at it:       cairn report")
        console.print(f'Ask a question:   cairn sql "{QUESTION}"')
        console.print("Open the graph:   make ui")


def say_unpinned(root: Path, rows: list, console) -> None:
    """Say on which of these numbers there is a source that nobody's checksum vouches for."""
    from cairn.results.database import query

    found = query(root, "SELECT number FROM results WHERE unpinned_sources > 0").rows
    resting = {name for (name,) in found} & {str(row.name) for row in rows}
    if resting:
        which = "every number" if len(resting) == len(rows) else f"{len(resting)} of these numbers"
        console.print(
            f"Unpinned sources: {which} rest on a source without a checksum of its authors; `cairn trace` names it.",
            style="yellow",
        )


QUESTION = (
    "SELECT system, stage, slice, round(100 * value, 1) AS map FROM results WHERE metric = 'map' ORDER BY ALL"
)


def example(rows: list) -> str:
    """The name, without the fields that do not apply, of the number worth following: hard mAP of the last stage."""
    from cairn.results.names import is_first

    names = [row.name for row in rows]
    last = names[-1]
    own = [n for n in names if (n.benchmark, n.system) == (last.benchmark, last.system)]
    maps = [n for n in own if n.metric == "map"] or own
    hard = [n for n in maps if n.slice == "hard"] or maps
    chosen = next((n for n in hard if not is_first(n.stage)), hard[0])
    return "/".join(field for field in chosen.fields if field != "-")
