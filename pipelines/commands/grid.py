"""`cairn grid`: read-outs compared on stored descriptors, reported as the selection that it is."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def grid(
    systems: Annotated[
        list[str],
        typer.Argument(help="BENCHMARK/SYSTEM …, of one benchmark: whose descriptors are read out."),
    ],
    dimension: Annotated[
        str, typer.Option("--dimension", help="First numbers kept, and `all`: 512,1024,all.")
    ] = "all",
    centre: Annotated[
        str, typer.Option("--centre", help="Whose mean is subtracted: none, training, gallery.")
    ] = "none,gallery",
    whiten: Annotated[
        str,
        typer.Option(
            "--whiten", help="PCA whitening: none, training, gallery; training:256 keeps 256 components."
        ),
    ] = "none",
    control: Annotated[
        list[str] | None,
        typer.Option("--control", help="BENCHMARK/SYSTEM outside the protocol (uncropped queries, say)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write everything to this file, as JSON.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print everything, as JSON.")] = False,
) -> None:
    """Measure every combination of systems and read-outs on the descriptors that are stored: no image is read.

    Prints all cells, the strongest and the weakest per column; controls stand apart. What it says is a selection
    on the test queries, and it enters no results table: to report a read-out, give a system that `readout` and run it.

    Example: `cairn grid toytown/colour-histogram --dimension 64,256,all --centre none,gallery`
    """
    from cairn.files import write_json
    from pipelines.project import enter_root

    root = enter_root()
    found = measured_grid(root, systems, control or [], dimension, centre, whiten)
    if output is not None:
        write_json(output, found)
    if json_output:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    from cairn.readout.show import print_grid

    print_grid(found, Console(soft_wrap=True, highlight=False))


def measured_grid(
    root: Path, systems: list[str], controls: list[str], dimension: str, centre: str, whiten: str
) -> dict[str, Any]:
    """The record of the grid (see `cairn.readout.grid.record`), with what it was measured on."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.errors import ArtifactError, UsageError
    from cairn.images.manifest import read_manifest
    from cairn.parameters import load_parameters
    from cairn.progress import track
    from cairn.readout.grid import grid_cells, measure, record
    from pipelines.commands.run import matching_runs
    from pipelines.graph import build_graph
    from pipelines.project import PARAMETERS

    parameters = load_parameters(root / PARAMETERS)
    runs: dict[str, str] = {}
    for name in [*systems, *controls]:
        keys = matching_runs(name, dict(parameters.runs))
        if len(keys) != 1:
            raise UsageError(f"{name} stands for {len(keys)} runs; BENCHMARK/SYSTEM is expected")
        runs[name] = keys[0]
    benchmarks = sorted({parameters.runs[key]["benchmark"] for key in runs.values()})
    if len(benchmarks) > 1:
        raise UsageError(f"a grid is of one benchmark; these are of {', '.join(benchmarks)}")
    for name in systems:
        if parameters.systems[parameters.runs[runs[name]]["system"]]["uncropped_queries"]:
            raise UsageError(f"{name} has uncropped queries, outside the protocol; name it with --control")
    nodes = {(node.step.name, node.key): node for node in build_graph(parameters).values()}
    system_of = {name: parameters.runs[key]["system"] for name, key in runs.items()}
    cells = grid_cells(
        [system_of[name] for name in systems],
        [system_of[name] for name in controls],
        [_dimension(text) for text in _listed(dimension, "--dimension")],
        [_centre(text) for text in _listed(centre, "--centre")],
        [_whitening(text) for text in _listed(whiten, "--whiten")],
    )
    key_of = {system_of[name]: key for name, key in runs.items()}
    for key in runs.values():
        path = nodes["descriptors", key].output
        if not (root / path).is_dir():
            raise ArtifactError(f"{path} is not there yet; `cairn run` makes it")
    benchmark = benchmarks[0]
    manifest = read_manifest(root / nodes["manifest", benchmark].output / "manifest.parquet")
    truth = read_ground_truth(root / nodes["ground_truth", benchmark].output)
    measured = []
    for cell in track(cells, "Measuring read-outs", total=len(cells), unit="cells"):
        key = key_of[cell.system]
        training = root / nodes["training_descriptors", key].output
        measured.append(
            measure(
                cell,
                root / nodes["descriptors", key].output,
                training if training.is_dir() else None,
                manifest,
                truth,
                parameters.benchmarks[benchmark]["metric"],
                parameters.systems[cell.system]["search"]["top"],
            )
        )
    return {
        "benchmark": benchmark,
        "measured_on": _inputs(root, nodes, benchmark, key_of),
        **record(measured),
    }


def _inputs(root: Path, nodes: dict[Any, Any], benchmark: str, keys: dict[str, str]) -> dict[str, str]:
    """Path → DVC's hash of what is on disk, of every artifact that the cells were measured on."""
    from cairn.files import dvc_digest

    paths = [nodes[step, benchmark].output for step in ("manifest", "ground_truth")]
    paths += [
        nodes[step, key].output for key in keys.values() for step in ("descriptors", "training_descriptors")
    ]
    return {path: dvc_digest(root / path) for path in sorted(set(paths)) if (root / path).is_dir()}


def _listed(text: str, option: str) -> list[str]:
    from cairn.errors import UsageError

    values = [part.strip() for part in text.split(",") if part.strip()]
    if not values or len(set(values)) < len(values):
        raise UsageError(f"{option} {text!r}: values separated by commas are expected, each once")
    return values


def _dimension(text: str) -> int | None:
    from cairn.errors import UsageError

    if text == "all":
        return None
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--dimension {text!r}: a whole number from 1 on, or `all`, is expected")
    return int(text)


def _centre(text: str) -> str:
    from cairn.errors import UsageError

    if text not in ("none", "training", "gallery"):
        raise UsageError(f"--centre {text!r}: one of none, training, gallery is expected")
    return text


def _whitening(text: str) -> dict[str, Any] | None:
    from cairn.errors import UsageError

    if text == "none":
        return None
    source, colon, dimension = text.partition(":")
    if source not in ("training", "gallery") or (colon and not dimension.isdigit()) or dimension == "0":
        raise UsageError(f"--whiten {text!r}: none, training, gallery, or one of the two with :COMPONENTS")
    return {"source": source, "dimension": int(dimension) if colon else None}
