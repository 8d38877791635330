"""Writes a user's folder into `params.yaml` as a benchmark, after its files were checked."""

import os
from pathlib import Path
from typing import Any

from cairn.errors import InputError, ParameterError, UsageError
from cairn.files import atomic
from cairn.parameters import check_metric, identifier, load_parameters
from cairn.progress import say
from pipelines.brought import plain_path
from pipelines.generate import write_pipeline
from pipelines.project import PARAMETERS

DEFAULT_METRIC = "map"


def add_folder(
    root: Path, name: str, images: Path, truth: Path, *, metric: str, training: str, systems: list[str]
) -> None:
    """Check everything, then add `benchmarks.<name>` and one run per system to `params.yaml`.

    Nothing is written where anything is wrong. Raises `ParameterError` for names, `InputError` for files.
    """
    from cairn.benchmarks.folder import folder_notes, read_folder_benchmark

    identifier(name, "cairn add")
    parameters = load_parameters(root / PARAMETERS)
    if name in parameters.benchmarks:
        raise ParameterError(
            f"params.yaml has a benchmark {name!r} already; choose another name or remove that one"
        )
    if training not in parameters.benchmarks:
        there = ", ".join(parameters.benchmarks)
        raise ParameterError(f"--training {training}: no such benchmark in params.yaml; there are: {there}")
    for system in systems:
        if system not in parameters.systems:
            raise ParameterError(
                f"--system {system}: not in params.yaml; there are: {', '.join(parameters.systems)}"
            )
    if not images.exists():
        raise InputError(f"--images {images}: there is no such folder (or tar or zip file)")
    if not truth.is_file():
        raise InputError(f"--truth {truth}: a CSV file is expected there")
    for key, path in (("images", images), ("truth", truth)):
        plain_path(_relative(root, path), f"benchmarks.{name}.{key}")
    entries, found = read_folder_benchmark(Path(_relative(root, images)), Path(_relative(root, truth)), root)
    metric = check_metric(metric or _metric_for(found), "--metric")
    chosen = systems or list(parameters.systems)
    entry = {
        "adapter": "folder",
        "images": _relative(root, images),
        "truth": _relative(root, truth),
        "training": training,
        "metric": metric,
    }
    runs = {f"{name}-{system}": {"benchmark": name, "system": system} for system in chosen}
    taken = [run for run in runs if run in parameters.runs]
    if taken:
        raise UsageError(f"params.yaml has a run {taken[0]!r} already; choose another benchmark name")
    _write(root / PARAMETERS, name, entry, runs)
    write_pipeline(root, load_parameters(root / PARAMETERS))
    say(f"{name}: {len(entries):,} images, {len(found.queries):,} queries, scored by {metric}")
    for note in folder_notes(entries, found):
        say(f"{name}: {note}")
    if training != name:
        say(f"{name} has no training images of its own: what a system learns, it learns from {training}'s")
    say(f"next: cairn run {name}")


def _metric_for(truth: Any) -> str:
    """Easy / Medium / Hard where the file grades by difficulty, plain mAP otherwise."""
    grades = {grade for judged in truth.relevance.values() for grade in judged.values()}
    return "revisitop" if grades & {"easy", "hard"} else DEFAULT_METRIC


def _relative(root: Path, path: Path) -> str:
    """The path as seen from the project where that stays short, so that a clone beside the data works too."""
    relative = Path(os.path.relpath(path.absolute(), root))
    return (
        path.absolute().as_posix()
        if len([p for p in relative.parts if p == ".."]) > 2
        else relative.as_posix()
    )


def _on_one_line(mapping: dict[str, str]) -> Any:
    """The mapping as `{benchmark: …, system: …}`, the way the file writes its runs."""
    from ruamel.yaml.comments import CommentedMap

    line = CommentedMap(mapping)
    line.fa.set_flow_style()
    return line


def _write(path: Path, name: str, entry: dict[str, Any], runs: dict[str, Any]) -> None:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    document = yaml.load(path.read_text("utf-8"))
    pairs = {run: _on_one_line(pair) for run, pair in runs.items()}
    for section, values in (("benchmarks", {name: entry}), ("runs", pairs)):
        if document.get(section) is None:
            document[section] = {}
        document[section].update(values)
    with atomic(path) as temporary:
        with temporary.open("w", encoding="utf-8") as stream:
            yaml.dump(document, stream)
        load_parameters(temporary)  # what is written can be read, or the file stays as it was
