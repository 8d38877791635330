"""Copies `dvc.lock` into Dagster's event log, so that a `dvc repro` in a terminal shows on the page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from pipelines.bridge import read_lock
from pipelines.code_stage import recorded_code_version
from pipelines.graph import Node
from pipelines.project import CODE
from pipelines.versions import (
    Externals,
    data_version,
    external_versions,
    fingerprint,
    input_versions,
    locked_code_version,
)

FINGERPRINT_TAG = "cairn/lock"
CODE_KEY = dg.AssetKey("code")
MOST_VALUES = 12
SHORTEST = 1000
"""Dagster's page shows Markdown below this many characters in place, longer one behind a link."""
_externals = Externals()


def external_key(node: Node, name: str) -> dg.AssetKey:
    """The Dagster key of a path that the user brings: `places/images`, `places/mine/features`."""
    return dg.AssetKey([part for part in (node.benchmark, node.system, name) if part])


def sync(root: Path, instance: dg.DagsterInstance, nodes: Mapping[str, Node]) -> list[str]:
    """Report every materialisation that `dvc.lock` knows and Dagster does not; the stages reported.

    Works through Dagster's public event reporting; the tags are those in which Dagster keeps data versions and
    provenance (its own executor writes the same). Running it twice reports nothing new.
    """
    lock, reported = read_lock(root), []
    if (entry := lock.get("code")) and _report_code(root, instance, entry):
        reported.append("code")
    for node in nodes.values():
        entry = lock.get(node.stage)
        if entry is None:
            continue
        mark = fingerprint(entry)
        latest = _latest(instance, dg.AssetKey(node.asset))
        tags = dict(latest.tags or {}) if latest else {}
        if (
            tags.get(FINGERPRINT_TAG) == mark
            and tags.get(DATA_VERSION_TAG) == data_version(node, entry)
            and tags.get(CODE_VERSION_TAG) == locked_code_version(entry)
        ):
            continue
        _report(root, instance, node, nodes, entry, mark)
        reported.append(node.stage)
    for node in nodes.values():
        for name, path in node.externals.items():
            _observe(instance, external_key(node, name), _externals.version(root / path))
    return reported


def _report(
    root: Path,
    instance: dg.DagsterInstance,
    node: Node,
    nodes: Mapping[str, Node],
    entry: Mapping[str, Any],
    mark: str,
) -> None:
    tags = {
        DATA_VERSION_TAG: data_version(node, entry),
        DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        CODE_VERSION_TAG: locked_code_version(entry),
        FINGERPRINT_TAG: mark,
    }
    versions = {
        dg.AssetKey(nodes[s].asset): v
        for s, v in input_versions(root, node, nodes, entry).items()
        if s in nodes
    }
    for name, path in node.externals.items():
        key, version = external_key(node, name), external_versions(node, entry)[path]
        _observe(instance, key, version)
        versions[key] = version
    for key, version in versions.items():
        tags[get_input_data_version_tag(key)] = version
        # Dagster wants the event that carried the version; unpartitioned assets are compared by version alone.
        tags[get_input_event_pointer_tag(key)] = "NULL"
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            dg.AssetKey(node.asset),
            description="from dvc.lock",
            tags=tags,
            metadata=lock_metadata(root, node, entry),
        )
    )


def _report_code(root: Path, instance: dg.DagsterInstance, entry: Mapping[str, Any]) -> bool:
    """Report what `dvc.lock` says of the `code` stage; whether that was news."""
    md5 = entry["outs"][0]["md5"]
    latest = _latest(instance, CODE_KEY)
    tags = dict(latest.tags or {}) if latest else {}
    mark = fingerprint(entry)
    if tags.get(FINGERPRINT_TAG) == mark and tags.get(DATA_VERSION_TAG) == md5:
        return False
    version = recorded_code_version(root, md5)
    if version is None:
        return False  # the files are being written, or are not here: nothing true can be said yet
    tags = {
        DATA_VERSION_TAG: md5,
        DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        CODE_VERSION_TAG: version,
        FINGERPRINT_TAG: mark,
    }
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            CODE_KEY, description="from dvc.lock", tags=tags, metadata=code_metadata(root, entry)
        )
    )
    return True


def code_metadata(root: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows beside the `code` stage."""
    files = len(list((root / CODE).rglob("*.json")))
    return {
        "path": dg.MetadataValue.path(str(root / CODE)),
        "dvc_hash": entry["outs"][0]["md5"],
        "code_files": files,
    }


def lock_metadata(root: Path, node: Node, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows beside a materialisation, all of it from `dvc.lock`, and the picture if there is one."""
    from pipelines.generate import recorded_parameters

    recorded = recorded_parameters(entry)
    values: dict[str, Any] = {}
    metadata: dict[str, Any] = {}  # the page keeps this order: what people look for comes first
    if (table := root / node.output / "scores.parquet").is_file():
        values = _score_metadata(table)
        metadata["numbers"] = values.pop("numbers")
    if (table := root / node.output / "results.parquet").is_file():
        import pyarrow.parquet as pq

        metadata["numbers"] = pq.ParquetFile(table).metadata.num_rows
    picture = root / node.output / "gallery.png"
    if picture.is_file():
        metadata["gallery"] = dg.MetadataValue.md(_embedded(picture))
    metadata |= {
        "path": dg.MetadataValue.path(str(root / node.output)),
        "dvc_hash": data_version(node, entry),
        "code_digest": recorded.get("digest", ""),
        "parameters": dg.MetadataValue.json(recorded.get("parameters") or {}),
        "inputs": dg.MetadataValue.json({d["path"]: d.get("md5", "") for d in entry.get("deps") or []}),
    }
    if measured := measurements(root, node):
        metadata["measured"] = dg.MetadataValue.json(measured)
    return metadata | values


def _score_metadata(path: Path) -> dict[str, Any]:
    """The headline metric as a table, and each of its values as a number, which Dagster plots over time."""
    from cairn.errors import CairnError
    from cairn.report.words import TAIL, headline, metric_title, stage_words
    from cairn.results import read_results
    from cairn.results.names import is_first
    from cairn.results.show import format_interval, format_value, slice_key

    try:
        rows = [row for row in read_results(path) if not row.name.stage.startswith(TAIL)]
    except CairnError as error:
        return {"numbers": str(error)}
    if not rows:
        return {"numbers": "none"}
    metric = headline({row.name.metric for row in rows})
    own = [row for row in rows if row.name.metric == metric]
    own.sort(key=lambda row: (not is_first(row.name.stage), row.name.stage, slice_key(row.name.slice)))
    values = {
        f"{metric} {row.name.slice} {row.name.stage}": dg.MetadataValue.float(row.value)
        for row in own[:MOST_VALUES]
    }
    head = f"| stage | slice | {metric_title(metric)} | 95% |\n|---|---|---:|---:|"
    lines = [
        f"| {stage_words(row.name.stage)} | {row.name.slice} | {format_value(row)} | {format_interval(row) or '–'} |"
        for row in own
    ]
    while lines and len("\n".join([head, *lines])) >= SHORTEST:
        lines.pop()
    return {"numbers": dg.MetadataValue.md("\n".join([head, *lines])), **values}


def measurements(root: Path, node: Node) -> dict[str, Any]:
    """Times and speeds of the step's last run here, which no artifact holds; empty where none were written."""
    path = root / ".cairn" / "measurements" / node.step.name / node.benchmark / f"{node.system}.json"
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _embedded(picture: Path, width: int = 1000, quality: int = 80) -> str:
    """The picture as Markdown with its bytes inside, small enough for the event log."""
    import base64

    import cv2

    image = cv2.imread(str(picture))
    if image is None:
        return f"{picture} cannot be shown"
    if image.shape[1] > width:
        height = round(image.shape[0] * width / image.shape[1])
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
    return f"![queries with their top results](data:image/jpeg;base64,{base64.b64encode(data).decode()})"


def _latest(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.AssetMaterialization | None:
    event = instance.get_latest_materialization_event(key)
    return event.asset_materialization if event else None


def _observe(instance: dg.DagsterInstance, key: dg.AssetKey, version: str) -> None:
    """Record the version of a user's own path. Dagster reads that of an external asset off materialisations."""
    latest = _latest(instance, key)
    if latest is None or (latest.tags or {}).get(DATA_VERSION_TAG) != version:
        tags = {DATA_VERSION_TAG: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}
        instance.report_runless_asset_event(
            dg.AssetMaterialization(key, tags=tags, description="as it lies there")
        )
