"""AMES on a ranking: logits per pair once, from which `cairn.rerank.pairs` gets every mix without the network."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cairn.cache import Cache
from cairn.rerank.ames import Ames
from cairn.rerank.ames_pairs import LocalSource, PairOptions, Shortlist, pair_logits
from cairn.rerank.checkpoints import state_digest
from cairn.rerank.pairs import Logits, Relevance, united
from cairn.rerank.two_stage import RankedQuery


def score_pairs(
    network: Ames,
    ranked: Sequence[RankedQuery],
    relevance: Relevance | None,
    local_queries: LocalSource,
    local_gallery: LocalSource,
    k: int,
    options: PairOptions | None = None,
    scratch: Cache | None = None,
    key: str = "",
    contents: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    workspace: Path | None = None,
) -> list[Logits]:
    """Logits per query for the united shortlists of size `k` of every junk-aware setting and the unaware.

    Without `relevance` the unaware alone. `contents` are digests of the local descriptors of queries and images
    by name: with them, what `scratch` holds of a query stays valid where other images came or went. See
    `pair_logits` for the rest.
    """
    positions = united(ranked, relevance, k)
    shortlists = [
        Shortlist(query.query_id, tuple(query.image_ids[i] for i in chosen))
        for query, chosen in zip(ranked, positions, strict=True)
    ]
    keys = [key] * len(shortlists) if contents is None else [_key(key, s, *contents) for s in shortlists]
    logits = pair_logits(network, local_queries, local_gallery, shortlists, options, scratch, keys, workspace)
    return list(zip(positions, logits, strict=True))


def _key(key: str, shortlist: Shortlist, queries: Mapping[str, str], images: Mapping[str, str]) -> str:
    digest = hashlib.sha256(f"{key} {queries.get(shortlist.query_id, '')}".encode())
    for image in shortlist.image_ids:
        digest.update(images.get(image, "").encode() + b"\n")
    return digest.hexdigest()


def network_facts(network: Ames, options: PairOptions) -> dict[str, Any]:
    """What a file of logits says of how they came about (no device: results belong to a device kind)."""
    return {
        "network": asdict(network.shape),
        "weights_sha256": state_digest(network),
        "query_length": options.query_length,
        "gallery_length": options.gallery_length,
        "dtype": options.dtype,
    }
