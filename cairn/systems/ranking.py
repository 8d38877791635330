"""The step `ranking`: exact search, ranks of all judged images, and a FAISS index measured against it."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ArtifactError, InputError
from cairn.executor import Executor
from cairn.files import write_json
from cairn.images.manifest import Manifest
from cairn.progress import say
from cairn.search import SearchParameters
from cairn.search.exact import Found, NotFiniteError
from cairn.search.missing import search_with_missing
from cairn.search.warming import warm_up
from cairn.store.descriptors import open_queries, open_shards
from cairn.store.missing import absence
from cairn.store.sparse import is_sparse
from cairn.store.tables import write_table
from cairn.systems.disk import tells_full_disk
from cairn.systems.readout import searched
from cairn.systems.search_options import SCRATCH, finished, first_stage_slug, prepared
from cairn.validation import validated

RANKING_FILE = "ranking.parquet"
INDEX_FILE = "index.faiss"
FACTS_FILE = "ranking.json"


@tells_full_disk
def search(
    descriptors: Path,
    manifest: Manifest,
    truth: GroundTruth,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    readout: Path | None = None,
    training: Path | None = None,
    uncropped: bool = False,
    threads: int | None = None,
    executor: Executor | None = None,
    device: str = "cpu",
    measurements: Path | None = None,
) -> None:
    """Write `ranking.parquet`, `ranking.json` and, unless its kind is `none`, `index.faiss` into `output`.

    `descriptors` is what `extract_descriptors` wrote; `parameters` as in SearchParameters. The ranking holds,
    per query in the order of `truth`, its top images and, behind them, every judged image with its exact
    rank. Images that could not be decoded rank behind all others. `readout` is what `make_readout` wrote (its
    descriptors are searched where it has any), `training` what the step `training_descriptors` wrote, for the
    score normalisation; `uncropped` marks the stage of a control whose queries were not cropped. `threads`,
    `executor` and `device` as in `exact_search`. What differs from run to run (seconds, sizes, queries per second)
    is printed, and written as JSON to `measurements` where given.
    InputError where a judged image is not in the gallery, ArtifactError where descriptors are missing.
    """
    checked = validated(SearchParameters, parameters, "search")
    if is_sparse(descriptors):
        from cairn.systems.sparse_ranking import search_sparse

        search_sparse(descriptors, manifest, truth, checked, output, uncropped=uncropped)
        return
    descriptors = descriptors if readout is None else searched(descriptors, readout)
    gallery, stored = open_shards(descriptors), open_queries(descriptors)
    if gallery.dim != stored.dim:
        raise ArtifactError(
            f"{descriptors}: images have {gallery.dim} dimensions, queries {stored.dim}; extract again"
        )
    rows = manifest.rows(gallery=True)
    order = gallery.rows_of([manifest.image_id[row] for row in rows])  # gallery row of each manifest row
    if len(gallery) != len(rows):
        raise ArtifactError(f"{descriptors}: {len(gallery)} descriptors for {len(rows)} gallery images")
    manifest_rows = np.empty(len(gallery), np.int64)
    manifest_rows[order] = rows
    queries = stored.take(stored.rows_of([query.query_id for query in truth.queries]))
    judged_ids = [sorted(truth.relevance.get(query.query_id, {})) for query in truth.queries]
    judged = [
        gallery_rows(query.query_id, ids, manifest, order)
        for query, ids in zip(truth.queries, judged_ids, strict=True)
    ]
    ways: dict[str, Any] = {"threads": threads, "executor": executor, "device": device}
    warm_up(queries, gallery, manifest_rows, device)
    started = time.perf_counter()
    gallery, queries = prepared(
        checked, descriptors, gallery, queries, manifest_rows, output / SCRATCH, **ways
    )
    try:
        missing = gallery.missing_rows()
        found = search_with_missing(queries, gallery, manifest_rows, checked.top, judged, missing, **ways)
    except NotFiniteError as error:
        names = [f"query {truth.queries[error.query].query_id}"] if error.query is not None else []
        names += [f"image {gallery.ids[error.row]}"] if error.row is not None else []
        raise ArtifactError(
            f"{descriptors}: {', '.join(names)}: the score is not finite; extract again"
        ) from None
    seconds = time.perf_counter() - started
    measured: dict[str, Any] = {
        "exact": {"seconds": seconds, "queries_per_second": len(found) / max(seconds, 1e-9)}
    }
    found = finished(checked, found, queries, training, readout)
    stage = first_stage_slug(checked, readout, uncropped)
    gone = stored.missing
    unseen = [query.query_id for query in truth.queries if query.query_id in gone]
    absent = absence(len(missing), unseen)
    write_ranking(output / RANKING_FILE, manifest, truth, found, judged_ids, stage, absent)
    facts: dict[str, Any] = {
        "stage": stage,
        "queries": len(found),
        "gallery": len(gallery),
        "dim": gallery.dim,
        "top": min(checked.top, len(gallery)),
        "index": None,
    } | ({"device": device} if device != "cpu" else {})
    if len(missing):
        facts["missing"] = len(missing)
    if unseen:
        facts["missing_queries"] = len(unseen)
    if checked.index.kind != "none":
        from cairn.search.index import build_index, index_facts, write_index

        own: dict[str, Any] = {}
        started = time.perf_counter()
        index = build_index(gallery, order, checked.index, missing)
        own["build_seconds"] = time.perf_counter() - started
        write_index(index, output / INDEX_FILE)
        own["bytes"] = (output / INDEX_FILE).stat().st_size
        # What has no descriptor is not in the index, and a query without one has no neighbours to find.
        seen = [n for n, query in enumerate(truth.queries) if query.query_id not in gone]
        exact = [found[n].rows[~np.isin(found[n].rows, manifest_rows[missing])] for n in seen]
        facts["index"] = index_facts(index, checked.index, queries[seen], exact, own)
        measured[checked.index.kind] = own
    shutil.rmtree(output / SCRATCH, ignore_errors=True)
    write_json(output / FACTS_FILE, facts)
    _tell(measured, facts)
    if measurements is not None:
        write_json(measurements, measured)


def _tell(measured: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """One line for the exact search, one for the index."""
    exact = measured["exact"]
    say(
        f"exact: {facts['queries']} queries in {facts['gallery']:,} images, {exact['seconds']:.2f} s, "
        f"{exact['queries_per_second']:,.0f} queries/s"
    )
    if facts["index"] is not None:
        kind = facts["index"]["kind"]
        own, recall = measured[kind], facts["index"]["recall"]
        shown = ", ".join(f"@{k} {value:.4f}" for k, value in recall.items()) or "nothing to compare"
        speed = own.get("queries_per_second", 0)
        say(
            f"{kind}: recall against exact {shown}; built in {own['build_seconds']:.2f} s, "
            f"{own['bytes'] / 2**20:,.1f} MiB, {speed:,.0f} queries/s on one thread"
        )


def gallery_rows(query_id: str, ids: Sequence[str], manifest: Manifest, order: np.ndarray) -> np.ndarray:
    """Gallery rows of a query's judged images."""
    size = manifest.gallery_size
    rows = [manifest.row_of.get(image_id, size) for image_id in ids]
    for image_id, row in zip(ids, rows, strict=True):
        if row >= size:
            raise InputError(f"query {query_id}: judged image {image_id} is not in the gallery")
    return order[np.array(rows, np.int64)]


def write_ranking(
    path: Path,
    manifest: Manifest,
    truth: GroundTruth,
    found: list[Found],
    judged_ids: list[list[str]],
    stage: str,
    absent: Mapping[str, str] | None = None,
) -> None:
    """Write a ranking: per query its top images and, behind them, the judged ones with their exact ranks.

    `absent` says what has no descriptor (`cairn.store.missing.absence`).
    """
    import pyarrow as pa

    counts, ranks, rows, scores = [], [], [], []
    for one, ids in zip(found, judged_ids, strict=True):
        behind = np.flatnonzero(one.judged_ranks >= len(one.rows))
        behind = behind[np.argsort(one.judged_ranks[behind], kind="stable")]
        judged_rows = np.array([manifest.row_of[image_id] for image_id in ids], np.int64)
        ranks += [np.arange(len(one.rows)), one.judged_ranks[behind]]
        rows += [one.rows, judged_rows[behind]]
        scores += [one.scores, one.judged_scores[behind]]
        counts.append(len(one.rows) + len(behind))
    image_rows = np.concatenate(rows)
    names = [query.query_id for query in truth.queries]
    table = {
        "query_id": pa.array(np.repeat(np.array(names, object), counts), pa.string()),
        "rank": pa.array(np.concatenate(ranks).astype(np.int32)),
        "image_row": pa.array(image_rows.astype(np.int32)),
        "image_id": pa.array([manifest.image_id[row] for row in image_rows], pa.string()),
        "score": pa.array(np.concatenate(scores).astype(np.float32)),
    }
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in table.items()])
    write_table(pa.table(table, schema=schema.with_metadata({"stage": stage, **(absent or {})})), path)
