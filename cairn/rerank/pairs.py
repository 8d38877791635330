"""Evidence per pair: which pairs a second stage scores, and its logits in a file, so that mixing needs no network.

`pairs.parquet` holds query_id, image_row, image_id, rank and global_score (of the stage before), and logit: one
row per pair, by query and rank. From it every mix, temperature, smaller shortlist and junk rule follows.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ArtifactError
from cairn.rerank.two_stage import (
    UNAWARE,
    Cell,
    RankedQuery,
    RerankedQuery,
    rerank_query,
    settings_of,
    united_shortlist,
)
from cairn.store.tables import read_table, write_table

PAIRS_FILE = "pairs.parquet"

Relevance = Mapping[str, Mapping[str, str]]
Logits = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Positions in a RankedQuery, and the logits of these pairs."""


def united(ranked: Sequence[RankedQuery], relevance: Relevance | None, k: int) -> list[NDArray[np.int64]]:
    """Positions, per query, of the images in the shortlist of any setting, and of the one that knows no junk.

    Each pair is listed once. Without `relevance` the latter alone. ArtifactError where a ranking is too short.
    """
    settings = (UNAWARE,) if relevance is None else (*settings_of(relevance), UNAWARE)
    of = relevance or {}
    return [united_shortlist(query, of.get(query.query_id, {}), settings, k) for query in ranked]


def rerank_all(
    ranked: Sequence[RankedQuery], relevance: Relevance, logits: Sequence[Logits], cell: Cell, setting: str
) -> list[RerankedQuery]:
    """Every query in one setting ("easy", "medium", "hard", "all" or "unaware") of one cell."""
    return [
        rerank_query(query, query.ignored(relevance.get(query.query_id, {}), setting), values, cell)
        for query, values in zip(ranked, logits, strict=True)
    ]


def write_pairs(path: Path, ranked: Sequence[RankedQuery], logits: Sequence[Logits], **facts: Any) -> None:
    """Write one row per scored pair, by query and rank; `facts` stand as JSON in the file's metadata."""
    import pyarrow as pa

    rows = list(zip(ranked, logits, strict=True))
    table = pa.table(
        {
            "query_id": pa.array([q.query_id for q, (chosen, _) in rows for _ in chosen], pa.string()),
            "image_row": _column([q.image_row[chosen] for q, (chosen, _) in rows], np.int32),
            "image_id": pa.array([q.image_ids[i] for q, (chosen, _) in rows for i in chosen], pa.string()),
            "rank": _column([q.rank[chosen] for q, (chosen, _) in rows], np.int32),
            "global_score": _column([q.score[chosen] for q, (chosen, _) in rows], np.float32),
            "logit": _column([values for _, (_, values) in rows], np.float32),
        }
    )
    write_table(table.replace_schema_metadata({"facts": json.dumps(facts, sort_keys=True)}), path)


def read_pairs(path: Path, ranked: Sequence[RankedQuery]) -> list[Logits]:
    """The logits of `write_pairs`, fitted to the same ranking; ArtifactError where they belong to another."""
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("logit", pa.float32(), nullable=False),
        ]
    )
    table = read_table(path, schema)
    pairs: dict[str, tuple[list[str], list[float]]] = {}
    for query_id, image, logit in zip(
        *(table.column(name).to_pylist() for name in schema.names), strict=True
    ):
        images, values = pairs.setdefault(query_id, ([], []))
        images.append(image)
        values.append(logit)
    found = []
    for query in ranked:
        images, values = pairs.pop(query.query_id, ([], []))
        place = {image: position for position, image in enumerate(query.image_ids)}
        if strangers := [image for image in images if image not in place]:
            raise ArtifactError(
                f"{path}: query {query.query_id}: image {strangers[0]} is not in the ranking; "
                "the pairs were scored for another one"
            )
        positions = np.array([place[image] for image in images], np.int64)
        found.append((positions, np.array(values, np.float32)))
    if pairs:
        raise ArtifactError(f"{path}: query {next(iter(pairs))} is not in the ranking")
    return found


def _column(arrays: list[NDArray[Any]], dtype: Any) -> Any:
    import pyarrow as pa

    return pa.array(np.concatenate(arrays).astype(dtype) if arrays else np.empty(0, dtype))
