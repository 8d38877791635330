"""The graph: every step of every benchmark and run that `params.yaml` lists, with its paths and its names."""

from collections.abc import Mapping
from dataclasses import dataclass

from assets.step import Step, steps
from cairn.parameters import Parameters
from pipelines.brought import plain_path
from pipelines.project import CODE


@dataclass(frozen=True)
class Node:
    """One step of one benchmark or run.

    `head` is the protocol of a step made for each. `stage` is its address in DVC, `asset` its key in Dagster,
    `output` the path it writes; `inputs` maps the step's input names to paths, `upstream` to the
    nodes' stages; `externals` are the user's own paths;
    `code` is the file in which the `code` stage records its digest and effective parameters.
    """

    step: Step
    key: str
    benchmark: str
    system: str
    head: str
    stage: str
    asset: tuple[str, ...]
    output: str
    inputs: Mapping[str, str]
    upstream: Mapping[str, tuple[str, ...]]
    externals: Mapping[str, str]
    code: str


def build_graph(parameters: Parameters) -> dict[str, Node]:
    """All nodes by DVC stage address, upstream first."""
    nodes: dict[str, Node] = {}
    for step in steps().values():
        for key, place in instances(step, parameters).items():
            node = _node(step, key, place, parameters, nodes)
            nodes[node.stage] = node
    return nodes


def instances(step: Step, parameters: Parameters) -> dict[str, dict[str, str]]:
    """Key → `benchmark`, `system`, `training`, `head`, `selection` (as they apply) of each time the step is made."""
    if step.scope == "benchmark":
        return {name: {"benchmark": name} for name in parameters.benchmarks}
    if step.scope == "run":
        return {name: dict(run) for name, run in parameters.runs.items()}
    headed = {
        name: {**run, "training": parameters.benchmarks[run["benchmark"]]["training"]}
        for name, run in parameters.runs.items()
        if parameters.systems[run["system"]]["heads"]
    }
    if step.scope == "headed":
        return headed
    if step.scope == "head":
        return {
            f"{name}-{protocol}": {**run, "head": protocol, "selection": _selection(run, parameters)}
            for name, run in headed.items()
            for protocol in parameters.systems[run["system"]]["heads"]["protocols"]
        }
    return {"all": {}} if headed or not step.of_heads else {}


def _selection(run: Mapping[str, str], parameters: Parameters) -> str:
    chosen = parameters.systems[run["system"]]["heads"]["selection"] or {}
    return chosen.get("benchmark") or run["benchmark"]


def _node(
    step: Step, key: str, place: Mapping[str, str], parameters: Parameters, nodes: Mapping[str, Node]
) -> Node:
    benchmark, system, head = (place.get(part, "") for part in ("benchmark", "system", "head"))
    inputs: dict[str, str] = {}
    upstream: dict[str, tuple[str, ...]] = {}
    by_output = {node.output: node.stage for node in nodes.values()}
    for name, reference in step.inputs.items():
        source = benchmark
        if reference.startswith("training:"):
            source, reference = (
                parameters.benchmarks[benchmark]["training"],
                reference.removeprefix("training:"),
            )
        elif reference.startswith("selection:"):
            source, reference = place["selection"], reference.removeprefix("selection:")
        template = steps()[reference].output
        path = template.format(benchmark=source, system=system, head=head)
        inputs[name] = path
        upstream[name] = (by_output[path],)
    if step.fan_in:
        folder = steps()[step.fan_in].output.split("/{", 1)[0]
        inputs[step.fan_in] = folder
        upstream[step.fan_in] = tuple(n.stage for n in nodes.values() if n.output.startswith(f"{folder}/"))
    for node in nodes.values():
        if node.step.name in step.gathers:
            inputs[node.output], upstream[node.output] = node.output, (node.stage,)
    return Node(
        step=step,
        key=key,
        benchmark=benchmark,
        system=system,
        head=head,
        stage=stage_address(step, key, parameters),
        asset=tuple(part for part in (benchmark, system, head, step.name) if part),
        output=step.output.format(benchmark=benchmark, system=system, head=head),
        inputs=inputs,
        upstream=upstream,
        externals=external_paths(step, benchmark, system, parameters),
        code=f"{CODE}/{step.name}/{key}.json",
    )


def stage_address(step: Step, key: str, parameters: Parameters) -> str:
    """`manifest@toytown`, `descriptors@toytown-vlad`, `descriptors-precomputed@toytown-mine`, `results`.

    What reads the user's own files has a name that says of which kind: only then do its dependencies differ.
    """
    if step.scope == "all":
        return step.name
    if step.name == "sources":
        return f"sources-{parameters.benchmarks[key]['adapter']}@{key}"
    if step.scope == "run":
        run = parameters.runs[key]
        if external_paths(step, run["benchmark"], run["system"], parameters):
            return f"{step.name}-{parameters.systems[run['system']]['encoder']}@{key}"
    return f"{step.name}@{key}"


def external_paths(step: Step, benchmark: str, system: str, parameters: Parameters) -> dict[str, str]:
    """The user's own files that a step reads: setting name → path (see `pipelines.brought.plain_path`).

    Those of the benchmark for `sources`; for the steps that write descriptors, those of an encoder whose
    descriptors are files that the user brings.
    """
    if step.name in ("descriptors", "training_descriptors"):
        entry = parameters.systems[system]
        if step.name == "training_descriptors" and not entry["training_descriptors"]:
            return {}
        from cairn.encoders import external_paths as brought

        paths = brought(entry["encoder"], entry["settings"], benchmark)
        return {name: plain_path(path, f"systems.{system}.{name}") for name, path in paths.items()}
    if step.name != "sources":
        return {}
    from cairn.benchmarks.adapters import load_adapter

    entry = parameters.benchmarks[benchmark]
    adapter = load_adapter(entry["adapter"], f"benchmarks.{benchmark}.adapter")
    return {
        name: plain_path(entry["settings"][name], f"benchmarks.{benchmark}.{name}")
        for name in adapter.EXTERNAL
    }


def _learning(run: Mapping[str, str], parameters: Parameters) -> dict[str, object]:
    """`heads` (their protocols) and `training_set` of a run; nothing for one without heads that learns from all."""
    system = parameters.systems[run["system"]]
    heads, training_set = system["heads"], system["training_set"]
    found: dict[str, object] = {"heads": list(heads["protocols"])} if heads else {}
    return found if training_set == "all" else {**found, "training_set": training_set}


def effective_parameters(node: Node, parameters: Parameters) -> dict[str, object]:
    """The values of the step's declared dotted keys for this node, defaults filled in."""
    scopes = {
        "benchmark": parameters.benchmarks.get(node.benchmark, {}),
        "system": parameters.systems.get(node.system, {}),
        "runs": {name: {**run, **_learning(run, parameters)} for name, run in parameters.runs.items()},
    }
    result: dict[str, object] = {}
    for dotted in node.step.parameters:
        value: object = scopes
        for part in dotted.split("."):
            assert isinstance(value, Mapping), f"{node.step.name} declares {dotted}"
            value = value[part]
        result[dotted.split(".", 1)[-1].replace(".", "_")] = value
    return result
