"""Runs one step: the command that DVC and, through DVC, Dagster execute."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.step import Job
from cairn.errors import ArtifactError, UsageError
from cairn.files import atomic_directory, remove_leftovers, write_json
from cairn.parameters import load_parameters
from pipelines.digests import unchanged
from pipelines.graph import Node, build_graph
from pipelines.project import PARAMETERS

PACKAGES_FILE = "packages.json"


def run_step(root: Path, name: str, key: str) -> None:
    """Execute step `name` of run or benchmark `key` and put its output in place, whole or not at all.

    Raises `UsageError` for an unknown step or key, `ArtifactError` for a missing input, or where the code on
    disk is no longer the code that the `code` stage recorded (its digest would stand for other code).
    """
    os.chdir(root)
    node = find_node(root, name, key)
    record = read_record(root, node)
    changed = unchanged(root, record)
    if changed:
        raise ArtifactError(
            f"{changed[0]} changed after the code stage recorded it; run `dvc repro code` first (or `cairn run`)"
        )
    for what, path in {**node.inputs, **node.externals}.items():
        if not Path(path).exists():
            raise ArtifactError(f"{node.stage}: its input {what} is missing at {path}; `dvc repro` makes it")
    output = root / node.output
    remove_leftovers(output.parent)
    if node.step.fan_in:  # DVC takes the hash of that folder as it is once the step has ended
        for folder in (root / node.inputs[node.step.fan_in]).iterdir():
            remove_leftovers(folder)
    with atomic_directory(output) as temporary:
        job = job_of(node, record, root, temporary)
        node.step.function(job)
        write_json(temporary / PACKAGES_FILE, record["packages"])


def job_of(node: Node, record: dict[str, Any], root: Path, output: Path) -> Job:
    """What the step of `node` gets, with the digest and the parameters that the `code` stage recorded for it."""
    return Job(
        root=root,
        benchmark=node.benchmark,
        system=node.system,
        inputs={what: Path(path) for what, path in node.inputs.items()},
        output=output,
        parameters=record["parameters"],
        digest=record["digest"],
        features=record["features"],
        head=node.head,
    )


def rescore(root: Path, stage: str, folder: Path) -> None:
    """Run the stage once more from its inputs as they lie there, into `folder`; nothing of the project changes.

    Raises `UsageError` where `params.yaml` no longer lists what the stage is for, and what the step itself raises.
    """
    nodes = build_graph(load_parameters(root / PARAMETERS))
    if stage not in nodes:
        raise UsageError(f"{PARAMETERS} no longer lists what {stage} is for")
    node = nodes[stage]
    job = job_of(node, read_record(root, node), root, folder)
    node.step.function(replace(job, inputs={what: root / path for what, path in job.inputs.items()}))


def find_node(root: Path, name: str, key: str) -> Node:
    """The node of a step name and a run or benchmark name."""
    nodes = build_graph(load_parameters(root / PARAMETERS))
    for node in nodes.values():
        if node.step.name == name and node.key == key:
            return node
    names = sorted({node.step.name for node in nodes.values()})
    keys = [node.key for node in nodes.values() if node.step.name == name]
    if not keys:
        raise UsageError(f"no step {name!r}; there are: {', '.join(names)}")
    raise UsageError(f"step {name} has no {key!r}; there are: {', '.join(keys)}")


def read_record(root: Path, node: Node) -> dict[str, Any]:
    """What the `code` stage wrote for the node."""
    try:
        return json.loads((root / node.code).read_text("utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{node.code} is missing; run `dvc repro code` first (or `cairn run`)") from None
    except ValueError:
        raise ArtifactError(f"{node.code} is damaged; run `dvc repro --force code`") from None
