"""What is stale, why, and what stands below it: DVC's verdict in the words of the graph."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.parameters import load_parameters
from pipelines.bridge import PATIENCE, read_lock, status, update_code, without_hints
from pipelines.brought import check_brought, missing
from pipelines.generate import recorded_parameters, write_pipeline
from pipelines.graph import Node, build_graph
from pipelines.locking import check_no_run
from pipelines.project import PARAMETERS


def stale_assets(root: Path) -> dict[str, Any]:
    """`{"stale": {asset: [reasons]}, "downstream": [assets]}` after the digests were brought up to date.

    An asset is stale where its own code, parameters, inputs or output changed; the assets below it are listed
    apart, since they run again only if what they read comes out different. BusyError, at once, while a `cairn run` is
    at work, and where another process holds DVC's lock or a path for longer than PATIENCE.
    """
    import contextlib
    import sys

    check_no_run(root)
    parameters = load_parameters(root / PARAMETERS)
    check_brought(root, parameters, ())
    without_hints()
    with contextlib.redirect_stdout(sys.stderr):
        write_pipeline(root, parameters)
        update_code(root, PATIENCE)
        found = status(root)
    nodes = build_graph(parameters)
    lock = read_lock(root)
    stale = {
        asset_name(nodes[stage]) if stage in nodes else stage: _reasons(
            root, nodes.get(stage), changes, lock.get(stage)
        )
        for stage, changes in sorted(found.items())
    }
    reached = _below(nodes, [stage for stage in found if stage in nodes])
    return {"stale": stale, "downstream": [asset_name(nodes[stage]) for stage in reached]}


def asset_name(node: Node) -> str:
    """`toytown/rootsift-vlad/descriptors`, as on Dagster's page."""
    return "/".join(node.asset)


def _below(nodes: Mapping[str, Node], stages: list[str]) -> list[str]:
    reached = set(stages)
    for stage, node in nodes.items():  # upstream first, so one pass reaches everything
        if any(up in reached for ups in node.upstream.values() for up in ups):
            reached.add(stage)
    return [stage for stage in nodes if stage in reached and stage not in stages]


def _reasons(root: Path, node: Node | None, changes: list[Any], entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return ["never made", *(missing(root, node) if node is not None else [])]
    reasons: list[str] = []
    for change in changes:
        if isinstance(change, str):
            reasons.append(change)
            continue
        for kind, what in change.items():
            for path, state in what.items() if isinstance(what, Mapping) else []:
                reasons.extend(_explained(root, node, kind, path, state, entry))
    return reasons


def _explained(
    root: Path, node: Node | None, kind: str, path: str, state: Any, entry: Mapping[str, Any]
) -> list[str]:
    if isinstance(state, Mapping):  # our digest file: which of its keys changed
        if node is None:
            return [f"{key} in {path}: {value}" for key, value in state.items()]
        recorded = recorded_parameters(entry)
        current = json.loads((root / node.code).read_text("utf-8"))
        reasons = ["its code changed" for key in state if key == "digest"]
        if "parameters" in state:
            old, new = recorded.get("parameters") or {}, current["parameters"]
            reasons += [f"parameter {line}" for line in _differences(old, new)]
        return reasons
    subject = "output" if kind == "changed outs" else "input"
    return [f"{subject} {path}: {state}"]


def _differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """`vocabulary.words: 64 → 128` for every leaf that differs."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        lines = []
        for key in sorted({*old, *new}, key=str):
            lines += _differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
        return lines
    return [] if old == new else [f"{prefix}: {json.dumps(old)} → {json.dumps(new)}"]
