"""The `code` stage: one small file per step and run with its digest, modules and effective parameters."""

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.files import atomic_directory, remove_leftovers, write_json
from cairn.parameters import Parameters, load_parameters
from cairn.results.table import read_json_object
from pipelines.brought import plain_path
from pipelines.digests import CodeGraph
from pipelines.generate import check_pipeline
from pipelines.graph import Node, build_graph, effective_parameters
from pipelines.project import ARTIFACTS, CODE, PARAMETERS, SCORES

if TYPE_CHECKING:
    from cairn.rerank import RerankerCode


def write_code(root: Path) -> None:
    """Write `artifacts/code/<step>/<key>.json` for every node of the graph."""
    parameters = load_parameters(root / PARAMETERS)
    check_pipeline(root, parameters)
    clean(root, parameters)
    with atomic_directory(root / CODE) as output:
        for node, record in code_records(root, parameters).items():
            write_json(output / node.removeprefix(f"{CODE}/"), record)


def clean(root: Path, parameters: Parameters) -> None:
    """Remove what killed runs left, and the scores of runs that `params.yaml` no longer lists.

    `results` depends on the folder of all scores: with either in it, its hash would tell the history of this
    machine. The scores of a run that comes back are restored from DVC's cache.
    """
    nodes = build_graph(parameters).values()
    for folder in {root / ARTIFACTS, *((root / node.output).parent for node in nodes)}:
        remove_leftovers(folder)
    listed = {root / node.output for node in nodes}
    for folder in (root / SCORES).glob("*/*"):
        if folder not in listed:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()


def code_records(root: Path, parameters: Parameters) -> dict[str, dict[str, Any]]:
    """Path below the project → record, for every node (also what Dagster's code versions come from)."""
    graph = CodeGraph(root)
    described: dict[tuple[Any, ...], dict[str, Any]] = {}
    records: dict[str, dict[str, Any]] = {}
    for node in build_graph(parameters).values():
        roots, picked, files = code_of(node, parameters)
        known = (tuple(roots), repr(sorted(picked.items())), tuple(files))
        if known not in described:
            described[known] = graph.describe(roots, picked, files)
        record = dict(described[known])
        record["features"] = _features_digest(graph, node, parameters, described)
        record["parameters"] = effective_parameters(node, parameters)
        records[node.code] = record
    return records


def code_of(node: Node, parameters: Parameters) -> tuple[list[str], dict[str, Any], list[str]]:
    """Root modules, picked registry entries, and the user's own files that make up a node's code."""
    from cairn.benchmarks import adapters
    from cairn.contamination.parameters import VERIFIER
    from cairn.encoders import encoder_code

    roots, picked, files = [node.step.module], {}, []
    for kind in node.step.picks:
        if kind in ("adapter", "training_adapter"):
            name = parameters.benchmarks[node.benchmark][kind]
            entry = adapters.adapter_entry(name)
            roots.append(entry["module"])
            picked[kind] = {name: entry}
        elif kind == "encoder":
            code = encoder_code(parameters.systems[node.system]["encoder"])
            roots.extend(code.modules)
            picked["encoder"] = code.entry
            files.extend(code.files)
        elif kind == "landmarks":
            from cairn.contamination.landmarks import DATA

            # Lists are chosen by name when the step runs: all of them, and the words, are its data.
            code_root = Path(__file__).resolve().parents[1]
            files.extend(path.relative_to(code_root).as_posix() for path in sorted(DATA.glob("*.yaml")))
        elif kind == "verifier":
            code = encoder_code(VERIFIER)
            roots.extend(code.modules)
            picked["verifier"] = code.entry
        elif kind == "reranker":
            code = _reranker_code(node, parameters)
            roots.extend(code.modules)
            picked["reranker"] = code.entry
            files.extend(code.files)
        else:
            raise AssertionError(f"{node.step.name} picks {kind!r}")
    return roots, picked, files


def _reranker_code(node: Node, parameters: Parameters) -> "RerankerCode":
    from cairn.rerank import reranker_code

    part = {"local": "local", "reranker_training": "reranker_training"}.get(node.step.name, "rerank")
    values = parameters.systems[node.system][part] or {"method": "none"}
    code = reranker_code(values, node.step.name)
    key = f"systems.{node.system}.rerank.{values['method']}"
    return replace(code, files=tuple(plain_path(path, key) for path in code.files))


def _features_digest(
    graph: CodeGraph, node: Node, parameters: Parameters, described: dict[tuple[Any, ...], dict[str, Any]]
) -> str:
    """Digest of the code that turns pixels into local features alone, so that steps share cached features."""
    from cairn.contamination.parameters import VERIFIER
    from cairn.encoders import encoder_code

    if node.step.name == "local":
        other = _reranker_code(node, parameters)
        if other.features:
            known = ("features", other.features, other.files)
            if known not in described:
                described[known] = graph.describe(other.features, {}, other.files)
            return described[known]["digest"]
    if "encoder" in node.step.picks:
        code = encoder_code(parameters.systems[node.system]["encoder"])
    elif "verifier" in node.step.picks:
        code = encoder_code(VERIFIER)
    else:
        return ""
    # A user's encoder is one piece: any change of its files makes its features anew.
    modules, files = (code.modules, code.files) if code.files else (code.features, ())
    if not modules and not files:
        return ""
    known = ("features", tuple(modules), tuple(files))
    if known not in described:
        described[known] = graph.describe(modules, {}, files)
    return described[known]["digest"]


def code_version(record: Mapping[str, Any]) -> str:
    """What Dagster compares: the digest and the effective parameters, exactly what DVC records for the stage."""
    import hashlib
    import json

    values = [record.get("digest"), record.get("parameters") or None]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def all_code_version(records: Iterable[Mapping[str, Any]]) -> str:
    """The version of the `code` stage as a whole: it changes where that of any step does."""
    import hashlib

    versions = sorted(code_version(record) for record in records)
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]


def recorded_code_version(root: Path, md5: str) -> str | None:
    """`all_code_version` of the code files on disk, None where they are not those that have the hash `md5`."""
    from cairn.files import dvc_digest

    folder = root / CODE
    if not folder.is_dir() or dvc_digest(folder) != md5:
        return None
    return all_code_version(read_json_object(file) or {} for file in sorted(folder.rglob("*.json")))
