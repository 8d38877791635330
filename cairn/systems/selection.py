"""The value that a head's epochs are selected on: one number of one benchmark, exactly as it is scored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import InputError
from cairn.heads.parameters import Selection
from cairn.heads.projection import through_head
from cairn.images.manifest import Manifest
from cairn.metrics.evaluate import score_ranking
from cairn.search.missing import search_with_missing
from cairn.search.warming import tell_first_use
from cairn.store.descriptors import DescriptorStore

if TYPE_CHECKING:
    from torch import nn

    from cairn.heads.training import Evaluate

TOP = 100
"""Images ranked per query beside the judged ones."""


def head_value(
    gallery: DescriptorStore,
    queries: DescriptorStore,
    manifest: Manifest,
    truth: GroundTruth,
    selection: Selection,
) -> "Evaluate":
    """A function from a head to its value on `selection`'s slice, with the gallery searched exactly.

    The gallery goes through the head anew each time, block by block: take a benchmark without distractors.
    The function raises InputError where the protocol gives no such number.
    """
    rows = gallery_rows(gallery, manifest)
    asked = queries.take(queries.rows_of([query.query_id for query in truth.queries]))
    judged_ids = [sorted(truth.relevance.get(query.query_id, {})) for query in truth.queries]
    judged = [gallery.rows_of(ids) for ids in judged_ids]
    missing, unseen = gallery.missing_rows(), queries.missing
    last = len(rows) - len(missing)
    tell_first_use()

    def value(head: "nn.Module") -> float:
        found = search_with_missing(
            through_head(head, asked), _Projected(gallery, head), rows, TOP, judged, missing, threads=1
        )
        table: dict[str, list] = {"query_id": [], "rank": [], "image_id": [], "score": [], "absent": []}
        for query, one, ids in zip(truth.queries, found, judged_ids, strict=True):
            behind = np.flatnonzero(one.judged_ranks >= len(one.rows)).tolist()
            table["query_id"] += [query.query_id] * (len(one.rows) + len(behind))
            ranks = [*range(len(one.rows)), *one.judged_ranks[behind].tolist()]
            table["rank"] += ranks
            table["absent"] += [query.query_id in unseen or rank >= last for rank in ranks]
            table["image_id"] += [*(manifest.image_id[row] for row in one.rows), *(ids[n] for n in behind)]
            table["score"] += [*one.scores.tolist(), *one.judged_scores[behind].tolist()]
        scored = score_ranking(table, truth, selection.protocol, len(rows))
        for row in scored.rows:
            if (row.slice, row.metric) == (selection.slice, selection.metric) and row.value is not None:
                return row.value
        there = ", ".join(sorted(f"{row.slice}/{row.metric}" for row in scored.rows if row.value is not None))
        raise InputError(
            f"heads.selection: {selection.protocol} gives no {selection.slice}/{selection.metric}; there are: {there}"
        )

    return value


def gallery_rows(gallery: DescriptorStore, manifest: Manifest) -> np.ndarray:
    """The manifest row, int64, of each descriptor of the gallery."""
    return np.array([manifest.row_of[image] for image in gallery.ids], np.int64)


@dataclass(frozen=True)
class _Projected:
    """A gallery seen through a head; it looks to the search like a store."""

    gallery: DescriptorStore
    head: "nn.Module"

    def __len__(self) -> int:
        return len(self.gallery)

    @property
    def dim(self) -> int:
        return self.head.second.out_features  # type: ignore[union-attr,return-value]

    def take(self, rows: np.ndarray) -> np.ndarray:
        return through_head(self.head, self.gallery.take(rows))

    def blocks(self) -> Iterator[np.ndarray]:
        for block in self.gallery.blocks():
            yield through_head(self.head, block)
