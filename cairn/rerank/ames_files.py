"""AMES re-ranking from files to files: logits per pair once, every mix recomputed without the network.

`pairs.parquet` holds query_id, image_row, image_id, rank (of the first stage), global_score and logit, one
row per pair of the united shortlists. `reranked.parquet` is the ranking without junk-awareness, what a
deployed system would return; `reranked-<setting>.parquet` the junk-aware ones, each to be scored in its
setting only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ArtifactError
from cairn.rerank.ames import Ames
from cairn.rerank.ames_pairs import LocalSource, PairOptions, Shortlist, pair_logits
from cairn.rerank.checkpoints import state_digest
from cairn.rerank.rankings import write_reranked
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

Relevance = Mapping[str, Mapping[str, str]]
Logits = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Positions in a RankedQuery, and the logits of these pairs."""


def score_pairs(
    network: Ames,
    ranked: Sequence[RankedQuery],
    relevance: Relevance,
    local_queries: LocalSource,
    local_gallery: LocalSource,
    k: int,
    options: PairOptions | None = None,
    scratch: Path | None = None,
    key: str = "",
) -> list[Logits]:
    """Logits per query for the united shortlists of size `k` of every junk-aware setting and the unaware."""
    settings = (*settings_of(relevance), UNAWARE)
    positions = [united_shortlist(query, relevance.get(query.query_id, {}), settings, k) for query in ranked]
    shortlists = [
        Shortlist(query.query_id, tuple(query.image_ids[i] for i in chosen))
        for query, chosen in zip(ranked, positions, strict=True)
    ]
    logits = pair_logits(network, local_queries, local_gallery, shortlists, options, scratch, key)
    return list(zip(positions, logits, strict=True))


def rerank_all(
    ranked: Sequence[RankedQuery], relevance: Relevance, logits: Sequence[Logits], cell: Cell, setting: str
) -> list[RerankedQuery]:
    """Every query in one setting ("easy", "medium", "hard", "all" or "unaware") of one cell."""
    return [
        rerank_query(query, query.ignored(relevance.get(query.query_id, {}), setting), values, cell)
        for query, values in zip(ranked, logits, strict=True)
    ]


def write_ames(
    directory: Path,
    ranked: Sequence[RankedQuery],
    relevance: Relevance,
    logits: Sequence[Logits],
    cell: Cell,
    earlier: str | None = None,
    **facts: Any,
) -> None:
    """Write the pairs and one re-ranked file per setting into `directory`.

    `earlier`: the slug of the stage whose list was re-ranked, where it was not the global search. `facts`
    (the checkpoint's digest, lengths and the like) stand in each file's metadata.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_pairs(directory / "pairs.parquet", ranked, logits, **facts)
    for setting in (*settings_of(relevance), UNAWARE):
        chosen = Cell(cell.name, cell.shortlist, cell.mix, cell.temperature, setting != UNAWARE)
        stage = chosen.slug if earlier is None else f"{earlier}~{chosen.slug}"
        name = "reranked.parquet" if setting == UNAWARE else f"reranked-{setting}.parquet"
        extra = {"logit": [_spread(query, values) for query, values in zip(ranked, logits, strict=True)]}
        reranked = rerank_all(ranked, relevance, logits, chosen, setting)
        write_reranked(directory / name, ranked, reranked, stage, extra, setting=setting, **facts)


def network_facts(network: Ames, options: PairOptions) -> dict[str, Any]:
    """What a file of logits says of how they came about (no device: results belong to a device kind)."""
    return {
        "network": asdict(network.shape),
        "weights_sha256": state_digest(network),
        "query_length": options.query_length,
        "gallery_length": options.gallery_length,
        "dtype": options.dtype,
    }


def write_pairs(path: Path, ranked: Sequence[RankedQuery], logits: Sequence[Logits], **facts: Any) -> None:
    """Write one row per scored pair, by query and first-stage rank."""
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


def _spread(query: RankedQuery, logits: Logits) -> NDArray[np.float32]:
    """[n] logits by position, NaN where a pair was not scored."""
    full = np.full(len(query.rank), np.nan, np.float32)
    full[logits[0]] = logits[1]
    return full


def _column(arrays: list[NDArray[Any]], dtype: Any) -> Any:
    import pyarrow as pa

    return pa.array(np.concatenate(arrays).astype(dtype) if arrays else np.empty(0, dtype))
