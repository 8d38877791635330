"""Watches the files that users bring: new or changed ones start their benchmark's job."""

import json
from pathlib import Path

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from pipelines.bridge import read_lock
from pipelines.graph import Node
from pipelines.project import LOCK
from pipelines.versions import Externals, external_versions

WATCH_SECONDS = 30


def folder_sensor(root: Path, node: Node, job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """The sensor of one benchmark's own files; off until someone turns it on in the page: to watch is to run.

    A run is requested once for a state of the files, and only when two looks in a row saw the same state: while
    somebody is copying images, nothing starts.
    """
    seen = Externals()
    listed = ", ".join(node.externals.values())

    @dg.sensor(
        name=f"watch_{node.benchmark.replace('-', '_')}",
        job=job,
        minimum_interval_seconds=WATCH_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Runs {node.benchmark} when its own files change ({listed}).",
    )
    def watch(context: dg.SensorEvaluationContext):
        now = {path: seen.version(root / path) for path in node.externals.values()}
        wanted, cursor, reason = decide(now, recorded(root, node), context.cursor)
        context.update_cursor(cursor)
        if not wanted:
            return dg.SkipReason(reason)
        return dg.RunRequest(tags={"cairn/because": reason})

    return watch


def recorded(root: Path, node: Node) -> dict[str, str]:
    """The versions of the user's files that the last run of the node used; empty where there was none."""
    entry = read_lock(root).get(node.stage)
    return external_versions(node, entry) if entry else {}


def decide(now: dict[str, str], used: dict[str, str], cursor: str | None) -> tuple[bool, str, str]:
    """(whether to request a run, the new cursor, why), from the files' versions now, as used, and as last seen."""
    before = json.loads(cursor) if cursor else {}
    state = json.dumps(now, sort_keys=True)
    changed = sorted(path for path, version in now.items() if used.get(path) != version)
    requested = before.get("requested")
    if not changed:
        return False, json.dumps({"seen": state}), f"as in {LOCK}"
    if "missing" in now.values():
        gone = ", ".join(path for path, version in now.items() if version == "missing")
        return False, json.dumps({"seen": state, "requested": requested}), f"{gone} is not there"
    if requested == state:
        return False, cursor or "", f"a run was requested for this state of {', '.join(changed)}"
    if before.get("seen") != state:
        return False, json.dumps({"seen": state, "requested": requested}), f"{', '.join(changed)} is changing"
    return True, json.dumps({"seen": state, "requested": state}), f"changed: {', '.join(changed)}"
