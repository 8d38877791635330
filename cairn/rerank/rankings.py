"""Ranking files in and re-ranked files out, query by query."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ArtifactError
from cairn.rerank.two_stage import RankedQuery, RerankedQuery
from cairn.store.missing import absence, read_absence
from cairn.store.tables import read_table, write_table

RERANKED_FILE = "reranked.parquet"
EARLIER_FILE = "earlier.parquet"
FACTS_FILE = "reranking.json"
RANKING_FACTS_FILE = "ranking.json"
"""A second stage's list, the list of a stage before it, and what it says of itself."""


def first_stage(ranking: Path) -> str:
    """The stage that `ranking.json` in a folder names. ArtifactError where it is missing or damaged."""
    path = Path(ranking) / RANKING_FACTS_FILE
    try:
        return str(json.loads(path.read_text("utf-8"))["stage"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{path}: missing or damaged; run the step ranking") from None


def read_ranking(path: Path, gallery_size: int) -> tuple[RankedQuery, ...]:
    """The queries of a `ranking.parquet` (or of an earlier stage's `reranked.parquet`), in the file's order.

    Columns query_id, rank, image_row, image_id, score; each query's rows by ascending rank. `gallery_size`:
    the number of gallery images, from which ranks of images moved behind all others follow; how many of them have
    no descriptor, and which queries have none, says the file's metadata (`cairn.store.missing.absence`). Raises
    ArtifactError, naming file and query, where ranks do not ascend or leave the gallery.
    """
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("rank", pa.int64(), nullable=False),
            pa.field("image_row", pa.int64(), nullable=False),
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("score", pa.float32(), nullable=False),
        ]
    )
    table = read_table(path, schema)
    names = np.array(table.column("query_id").to_pylist(), dtype=object)
    rank, row, score = (table.column(name).to_numpy() for name in ("rank", "image_row", "score"))
    images = table.column("image_id").to_pylist()
    missing, unseen = read_absence(table.schema.metadata)
    starts = (
        np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.empty(0, int)
    )
    queries = []
    for start, stop in zip(starts, [*starts[1:], len(names)], strict=True):
        ranks = rank[start:stop]
        if np.any(np.diff(ranks) <= 0) or ranks[0] < 0 or ranks[-1] >= gallery_size:
            raise ArtifactError(
                f"{path}: ranks of query {names[start]} do not ascend within {gallery_size} gallery images"
            )
        queries.append(
            RankedQuery(
                str(names[start]),
                tuple(images[start:stop]),
                row[start:stop].astype(np.int64),
                ranks.astype(np.int64),
                score[start:stop].astype(np.float32),
                gallery_size,
                gallery_size if str(names[start]) in unseen else missing,
            )
        )
    if len({query.query_id for query in queries}) != len(queries):
        raise ArtifactError(f"{path}: the rows of a query are not together")
    return tuple(queries)


def write_reranked(
    path: Path,
    queries: Sequence[RankedQuery],
    reranked: Iterable[RerankedQuery],
    stage: str,
    extra: Mapping[str, Sequence[NDArray[Any]]] | None = None,
    **facts: Any,
) -> None:
    """Write `reranked.parquet`: the ranking's columns and `global_score`, each query's rows by new rank.

    `extra` {column: one array [n] per query, in the order of the query's old rows} is carried along. The
    file's metadata names the `stage` and holds the JSON of `facts`.
    """
    import pyarrow as pa

    changed = tuple(reranked)
    pairs = list(zip(queries, changed, strict=True))
    columns: dict[str, Any] = {
        "query_id": [query.query_id for query, new in pairs for _ in new.order],
        "rank": pa.array(_flat([new.rank for _, new in pairs], np.int32)),
        "image_row": pa.array(_flat([query.image_row[new.order] for query, new in pairs], np.int32)),
        "image_id": [query.image_ids[i] for query, new in pairs for i in new.order],
        "score": pa.array(_flat([new.score for _, new in pairs], np.float32)),
        "global_score": pa.array(_flat([query.score[new.order] for query, new in pairs], np.float32)),
    }
    for name, arrays in (extra or {}).items():
        columns[name] = pa.array(
            np.concatenate([a[new.order] for a, (_, new) in zip(arrays, pairs, strict=True)])
            if pairs
            else np.empty(0, np.float32)
        )
    columns["query_id"] = pa.array(columns["query_id"], pa.string())
    columns["image_id"] = pa.array(columns["image_id"], pa.string())
    unseen = [query.query_id for query in queries if query.missing == query.gallery_size]
    missing = max((query.missing for query in queries if query.missing < query.gallery_size), default=0)
    metadata = {"stage": stage, "facts": json.dumps(facts, sort_keys=True)} | absence(missing, unseen)
    write_table(pa.table(columns).replace_schema_metadata(metadata), path)


def _flat(arrays: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(arrays).astype(dtype) if arrays else np.empty(0, dtype)
