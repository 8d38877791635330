"""Writes `dvc.yaml` from the declarations, in templated form: a new run needs an entry in `params.yaml` alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.step import Step, steps
from cairn.errors import CairnError, ParameterError
from cairn.files import atomic
from cairn.lineage.graph import CODE_STAGE
from cairn.lineage.lock_checks import Declared
from cairn.parameters import Parameters, load_parameters
from pipelines.brought import reranker_files
from pipelines.graph import build_graph, external_paths, instances, stage_address
from pipelines.plots import plot_entries
from pipelines.project import CODE, PARAMETERS, PIPELINE, RESULTS

HEADER = "# Generated from the declarations in assets/ by `cairn generate`; edit those, not this file.\n"
SOURCE_DIRECTORIES = ("assets", "cairn", "pipelines")


def pipeline_text(parameters: Parameters) -> str:
    """The text of `dvc.yaml` for these parameters."""
    import yaml

    stages: dict[str, Any] = {"code": _code_stage(parameters)}
    for step in steps().values():
        if step.name == "sources":
            stages.update(_source_stages(step, parameters))
        elif step.of_heads:
            stages.update(_head_stages(step, parameters))
        else:
            stages.update(_stages(step, parameters))
    document = {"stages": stages, "metrics": [f"{RESULTS}/metrics.json"], "plots": plot_entries()}
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=10_000, default_flow_style=False)


def write_pipeline(root: Path, parameters: Parameters) -> bool:
    """Bring `dvc.yaml` up to date; whether it changed."""
    path, text = root / PIPELINE, pipeline_text(parameters)
    if path.is_file() and path.read_text("utf-8") == text:
        return False
    with atomic(path) as temporary:
        temporary.write_text(text, "utf-8")
    return True


def check_pipeline(root: Path, parameters: Parameters) -> None:
    """`ParameterError` where `dvc.yaml` is not what the declarations and `params.yaml` say."""
    path = root / PIPELINE
    if not path.is_file() or path.read_text("utf-8") != pipeline_text(parameters):
        raise ParameterError(
            f"{PIPELINE} does not match assets/ and {PARAMETERS} (a benchmark was added or a declaration changed); "
            "run `cairn generate`, which rewrites it"
        )


def declared_stages(root: Path) -> dict[str, Declared]:
    """Stage → the paths that it is declared to read and to write; nothing where `params.yaml` cannot be read."""
    try:
        parameters = load_parameters(root / PARAMETERS)
        nodes = build_graph(parameters)
        found = {CODE_STAGE: Declared((*SOURCE_DIRECTORIES, *user_files(parameters)), CODE)}
    except CairnError:
        return {}  # verification says what the files are, whatever params.yaml has become
    for stage, node in nodes.items():
        inputs = dict.fromkeys([*node.inputs.values(), *node.externals.values()])
        found[stage] = Declared(tuple(inputs), node.output)
    return found


def user_files(parameters: Parameters) -> list[str]:
    """Files of the user's own code that systems name, as paths relative to the project."""
    from cairn.encoders import user_module_files

    found = {path for system in parameters.systems.values() for path in user_module_files(system["encoder"])}
    return sorted(found.union(reranker_files(parameters)))


def _code_stage(parameters: Parameters) -> dict[str, Any]:
    return {
        "desc": "Digest of the code and the effective parameters of every step; everything else depends on it.",
        "cmd": "python -m pipelines code",
        "deps": [*SOURCE_DIRECTORIES, *user_files(parameters)],
        "params": [{PARAMETERS: ["benchmarks", "systems", "runs"]}],
        # Kept while the stage runs: where params.yaml is wrong, the digests of before stay in place.
        "outs": [{CODE: {"persist": True}}],
    }


def _source_stages(step: Step, parameters: Parameters) -> dict[str, Any]:
    """One stage per adapter in use: only adapters know which of the user's paths they read."""
    from cairn.benchmarks.adapters import load_adapter

    stages: dict[str, Any] = {}
    for name, benchmark in parameters.benchmarks.items():
        adapter = load_adapter(benchmark["adapter"], f"benchmarks.{name}.adapter")
        stage = stages.setdefault(f"sources-{benchmark['adapter']}", {"foreach": {}, "do": None})
        stage["foreach"][name] = external_paths(step, name, "", parameters) or {"name": name}
        stage["do"] = _body(step, "${key}", "", ["${item." + key + "}" for key in adapter.EXTERNAL])
    return stages


def _head_stages(step: Step, parameters: Parameters) -> dict[str, Any]:
    """Written out, since a template cannot ask which systems have heads; nothing where none has."""
    places = instances(step, parameters)
    if not places:
        return {}
    if step.scope == "all":
        gathered = [
            node.output for node in build_graph(parameters).values() if node.step.name in step.gathers
        ]
        return {step.name: _body(step, "", "", gathered)}
    body = _body(step, "${item.benchmark}", "${item.system}", [])
    return {step.name: {"foreach": places, "do": body}}


def _stages(step: Step, parameters: Parameters) -> dict[str, Any]:
    """One stage for everything; runs whose descriptors the user brings get their own, which names the files."""
    if step.scope == "benchmark":
        # What a known name stands for is not in params.yaml, so DVC cannot read it there.
        named = {name: {"training": entry["training"]} for name, entry in parameters.benchmarks.items()}
        benchmarks = named if parameters.implied else "${benchmarks}"
        return {step.name: {"foreach": benchmarks, "do": _body(step, "${key}", "", [])}}
    if step.scope == "all":
        return {step.name: _body(step, "", "", [])}
    stages: dict[str, Any] = {step.name: {"foreach": {}, "do": None}}
    for key, run in parameters.runs.items():
        brought = external_paths(step, run["benchmark"], run["system"], parameters)
        name = stage_address(step, key, parameters).partition("@")[0]
        stage = stages.setdefault(name, {"foreach": {}, "do": None})
        stage["foreach"][key] = {**run, **brought}
        externals = ["${item." + external + "}" for external in brought]
        stage["do"] = _body(step, "${item.benchmark}", "${item.system}", externals)
    if len(stages) == 1:
        return {
            step.name: {"foreach": "${runs}", "do": _body(step, "${item.benchmark}", "${item.system}", [])}
        }
    return {name: stage for name, stage in stages.items() if stage["foreach"]}


def _body(step: Step, benchmark: str, system: str, externals: list[str]) -> dict[str, Any]:
    key = "all" if step.scope == "all" else "${key}"

    def path(reference: str) -> str:
        source = benchmark
        if reference.startswith("training:"):
            source, reference = "${item.training}", reference.removeprefix("training:")
        elif reference.startswith("selection:"):
            source, reference = "${item.selection}", reference.removeprefix("selection:")
        return steps()[reference].output.format(benchmark=source, system=system, head="${item.head}")

    dependencies = [*externals, *(path(reference) for reference in step.inputs.values())]
    if step.fan_in:
        dependencies.append(steps()[step.fan_in].output.split("/{", 1)[0])
    recorded = ["digest", "parameters"] if step.parameters else ["digest"]
    body: dict[str, Any] = {"desc": step.description.split(". ")[0].rstrip(".") + "."}
    body["cmd"] = f"python -m pipelines step {step.name} {key}"
    if dependencies:
        body["deps"] = dependencies
    body["params"] = [{f"{CODE}/{step.name}/{key}.json": recorded}]
    body["outs"] = [step.output.format(benchmark=benchmark, system=system, head="${item.head}")]
    return body


def recorded_parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    """`digest` and `parameters` that `dvc.lock` recorded for a stage (`{}` for `code` and for unknown shapes)."""
    for file, values in (entry.get("params") or {}).items():
        if file.startswith(f"{CODE}/"):
            return dict(values)
    return {}
