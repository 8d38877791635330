"""A grid of read-outs, measured from stored descriptors: all cells, and which of them are the extremes.

Every cell is measured on the test queries, so the strongest is a selection: its value says how well the best of so
many settings did on these queries, not what that setting is worth on others. Cells of controls (uncropped queries,
say) lie outside the protocol and never count among the extremes.
"""

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import InputError, ParameterError
from cairn.images.manifest import Manifest
from cairn.metrics.evaluate import score_ranking
from cairn.metrics.result import Row
from cairn.readout import ReadoutParameters
from cairn.readout.transform import Transform, learn_transform
from cairn.search.missing import search_with_missing
from cairn.search.warming import tell_first_use
from cairn.store.descriptors import DescriptorStore, open_queries, open_shards
from cairn.store.missing import absence, present
from cairn.store.sparse import is_sparse
from cairn.systems.ranking import gallery_rows, write_ranking
from cairn.systems.readout import training_store
from cairn.systems.search_options import STAGE

SELECTION = (
    "these cells were compared on the test queries: the strongest is a selection among them, and its value no "
    "estimate of what that setting would give on other queries"
)


@dataclass(frozen=True)
class Cell:
    """One cell: a system's stored descriptors with a read-out. `control`: outside the protocol."""

    system: str
    readout: ReadoutParameters
    control: bool = False

    @property
    def name(self) -> str:
        """`qwen-query/dim1024-centred.gallery`."""
        return f"{self.system}/{self.readout.slug}"


@dataclass(frozen=True)
class Measured:
    """A cell and its numbers, by slice and metric."""

    cell: Cell
    rows: Mapping[tuple[str, str], Row]


def grid_cells(
    systems: Sequence[str],
    controls: Sequence[str],
    dimensions: Sequence[int | None],
    centres: Sequence[str],
    whitenings: Sequence[Mapping[str, Any] | None],
) -> list[Cell]:
    """Every combination, in the order given: systems, then controls; None: all dimensions, no whitening.

    Centring and whitening exclude one another: with a whitening, only the cell without centring is there.
    ParameterError for a repeated cell or a system that is also a control.
    """
    both = sorted(set(systems) & set(controls))
    if both:
        raise ParameterError(f"{both[0]} is named as a system and as a control; it is one or the other")
    cells = []
    for system, dimension, whiten, centre in itertools.product(
        [*systems, *controls], dimensions, whitenings, centres
    ):
        if whiten is not None and centre != centres[0]:
            continue
        settings = {
            "dimension": dimension,
            "whiten": whiten,
            "centre": "none" if whiten is not None else centre,
        }
        readout = ReadoutParameters.model_validate(settings)
        cells.append(Cell(system, readout, system in controls))
    names = [cell.name for cell in cells]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ParameterError(f"the cell {repeated} is asked for twice")
    return cells


def measure(
    cell: Cell,
    descriptors: Path,
    training: Path | None,
    manifest: Manifest,
    truth: GroundTruth,
    metric: str,
    top: int,
    *,
    threads: int | None = None,
) -> Measured:
    """The cell's numbers, exactly those that a run with this read-out would have at its first stage.

    `descriptors` and `training` are artifacts of the cell's system, `top` is `search.top`. InputError where its
    descriptors are sparse; otherwise as `learn_transform` and `score_ranking`.
    """
    import pyarrow.parquet as pq

    if is_sparse(descriptors):
        raise InputError(
            f"{cell.system}: a read-out needs dense descriptors; those of this system are sparse"
        )
    gallery, queries = open_shards(descriptors), open_queries(descriptors)
    transform = learn_transform(cell.readout, gallery.dim, training_store(training), present(gallery))
    asked = queries.take(queries.rows_of([query.query_id for query in truth.queries]))
    rows = manifest.rows(gallery=True)
    order = gallery.rows_of([manifest.image_id[row] for row in rows])
    manifest_rows = np.empty(len(gallery), np.int64)
    manifest_rows[order] = rows
    judged_ids = [sorted(truth.relevance.get(query.query_id, {})) for query in truth.queries]
    judged = [
        gallery_rows(query.query_id, ids, manifest, order)
        for query, ids in zip(truth.queries, judged_ids, strict=True)
    ]
    missing, unseen = gallery.missing_rows(), queries.missing
    tell_first_use()
    found = search_with_missing(
        _applied(transform, asked),
        _ReadOut(gallery, transform),
        manifest_rows,
        top,
        judged,
        missing,
        threads=threads,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranking.parquet"
        gone = [query.query_id for query in truth.queries if query.query_id in unseen]
        absent = absence(len(missing), gone)
        write_ranking(path, manifest, truth, found, judged_ids, STAGE, absent)
        table = pq.ParquetFile(path).read()
    scored = score_ranking(table, truth, metric, manifest.gallery_size, where=cell.name)
    return Measured(cell, {(row.slice, row.metric): row for row in scored.rows if row.value is not None})


def extremes(measured: Sequence[Measured]) -> dict[tuple[str, str], tuple[str, str]]:
    """For each number, the names of the strongest and the weakest cell of the protocol; the first among equals."""
    cells = [one for one in measured if not one.cell.control]
    found = {}
    for key in dict.fromkeys(key for one in cells for key in one.rows):
        values = {one.cell.name: _value(one.rows[key]) for one in cells if key in one.rows}
        names = list(values)
        found[key] = (max(names, key=lambda n: values[n]), min(names, key=lambda n: values[n]))
    return found


def record(measured: Sequence[Measured]) -> dict[str, Any]:
    """Everything as JSON: all cells, per number the strongest and the weakest, and that it is a selection."""
    best = extremes(measured)
    values = {one.cell.name: one for one in measured}

    def end(key: tuple[str, str], name: str) -> dict[str, Any]:
        return {"cell": name, "value": _value(values[name].rows[key])}

    controls = [one for one in measured if one.cell.control]
    return {
        "selection": True,
        "note": SELECTION,
        "cells": sum(not one.cell.control for one in measured),
        "extremes": [
            {
                "slice": key[0],
                "metric": key[1],
                "strongest": end(key, strongest),
                "weakest": end(key, weakest),
                "control": _best_control(controls, key),
            }
            for key, (strongest, weakest) in best.items()
        ],
        "measured": [
            {
                "cell": one.cell.name,
                "system": one.cell.system,
                "readout": one.cell.readout.model_dump(mode="json"),
                "learned_from": one.cell.readout.source,
                "in_protocol": not one.cell.control,
                "numbers": [
                    {
                        "slice": row.slice,
                        "metric": row.metric,
                        "value": row.value,
                        "low": row.low,
                        "high": row.high,
                        "queries": row.n_queries,
                    }
                    for row in one.rows.values()
                ],
            }
            for one in measured
        ],
    }


class _ReadOut:
    """A store with a read-out applied block by block, rounded as the step `readout` stores it."""

    def __init__(self, store: DescriptorStore, transform: Transform) -> None:
        self._store, self._transform = store, transform
        self.dim = _applied(transform, store.take([0])).shape[1]

    def __len__(self) -> int:
        return len(self._store)

    def blocks(self) -> Iterator[np.ndarray]:
        """Blocks of the store, read out."""
        return (_applied(self._transform, block) for block in self._store.blocks())

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, read out."""
        return _applied(self._transform, self._store.take(rows))


def _applied(transform: Transform, rows: np.ndarray) -> np.ndarray:
    return transform(rows).astype(rows.dtype)


def _best_control(controls: Sequence[Measured], key: tuple[str, str]) -> dict[str, Any] | None:
    having = [one for one in controls if key in one.rows]
    if not having:
        return None
    best = max(having, key=lambda one: _value(one.rows[key]))
    return {"cell": best.cell.name, "value": _value(best.rows[key])}


def _value(row: Row) -> float:
    assert row.value is not None
    return row.value
