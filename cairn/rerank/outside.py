"""The out-of-distribution gallery of FORB: what a second stage makes of the list that a query has there.

The thresholds of t-mAP are each query's best score in a gallery without any positive (Wu et al., NeurIPS 2023
Datasets and Benchmarks). Where that gallery is a part of the whole one, the first stage's list there is the whole list
without all other images; its shortlist holds other images than the whole list's, so a second stage has to see it, too.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cairn.benchmarks.structure import OUTSIDE, GroundTruth
from cairn.errors import ArtifactError
from cairn.images.manifest import Manifest
from cairn.metrics.forb import NOTHING
from cairn.rerank.chains import after_earlier
from cairn.rerank.parameters import RerankParameters
from cairn.rerank.two_stage import RankedQuery, RerankedQuery
from cairn.store.tables import read_table, write_table

OUTSIDE_FILE = "outside.parquet"
"""Per stage and query the best score in the out-of-distribution gallery; beside `reranked.parquet`."""


def outside_lists(
    queries: Sequence[RankedQuery], truth: GroundTruth, manifest: Manifest, k: int
) -> tuple[RankedQuery, ...]:
    """The first stage's list of every query in the out-of-distribution gallery; none where the truth marks none.

    `queries` are those of the whole gallery. Images without a descriptor are on no list. ArtifactError, naming the
    query, where these hold fewer than `k` of the gallery's images.
    """
    inside = {image for image, of in truth.image_attributes.items() if of.get(OUTSIDE) == "no"}
    inside &= set(manifest.image_id[: manifest.gallery_size])
    if not inside:
        return ()
    size = manifest.gallery_size - len(inside)
    lists = []
    for query in queries:
        # The rows without a gap: behind them only judged images stand.
        whole = query.rank == np.arange(len(query.rank))
        outside = np.array([image not in inside for image in query.image_ids], bool)
        at = np.flatnonzero(whole & outside & query.present)
        # Missing images come last: where the rows reach them, all others are there.
        everything = whole.sum() >= query.gallery_size - query.missing
        known = len(at) if everything else size
        if len(at) < min(k, known):
            raise ArtifactError(
                f"query {query.query_id}: {len(at):,} of its first {int(whole.sum()):,} images are out of "
                f"distribution; a shortlist of {k:,} for t-mAP needs more: raise search.top"
            )
        images = tuple(query.image_ids[i] for i in at)
        lists.append(
            RankedQuery(
                query.query_id, images, query.image_row[at], np.arange(len(at)), query.score[at], known
            )
        )
    return tuple(lists)


def deepest(parameters: RerankParameters) -> int:
    """How many of each query's images the stages see."""
    return max(parameters.k, parameters.after.shortlist if parameters.after else 0)


def before_last(
    lists: tuple[RankedQuery, ...], descriptors: Path | None, manifest: Manifest, parameters: RerankParameters
) -> tuple[tuple[RankedQuery, ...], list[RerankedQuery] | None]:
    """The lists that the last stage sees, and what the stage before it made of them (None where there is none)."""
    if parameters.after is None or not lists:
        return lists, None
    assert descriptors is not None
    changed, after, _ = after_earlier(lists, descriptors, manifest, parameters.after)
    return tuple(after), list(changed)


def write_outside(
    path: Path, lists: Sequence[RankedQuery], stages: dict[str, Sequence[RerankedQuery]]
) -> None:
    """Write `outside.parquet`: stage, query_id, score (the best one in the query's re-ranked list).

    Of an empty list, `cairn.metrics.forb.NOTHING`.
    """
    import pyarrow as pa

    rows = [
        (stage, query.query_id, float(new.score.max()) if len(new.score) else NOTHING)
        for stage, changed in stages.items()
        for query, new in zip(lists, changed, strict=True)
    ]
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    write_table(
        pa.table([pa.array(c, kind.type) for c, kind in zip(columns, _schema(), strict=True)], _schema()),
        path,
    )


def read_outside(folder: Path, stage: str) -> dict[str, float]:
    """Best score by query of a stage; empty where the folder has none for it."""
    path = folder / OUTSIDE_FILE
    if not path.is_file():
        return {}
    rows = read_table(path, _schema()).to_pylist()
    return {row["query_id"]: row["score"] for row in rows if row["stage"] == stage}


def _schema():
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("stage", pa.string(), nullable=False),
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("score", pa.float64(), nullable=False),
        ]
    )
