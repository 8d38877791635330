"""Query expansion, database augmentation and score normalisation over exact search (see `cairn.search.options`)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cairn.encoders.vlad import unit
from cairn.errors import ParameterError
from cairn.metrics.normalization import nth_neighbor_norms
from cairn.search.exact import Found, Gallery
from cairn.search.missing import search_with_missing
from cairn.search.options import Augmentation, Expansion, Normalisation
from cairn.store.descriptors import DescriptorStore, open_shard, open_shards, write_shard
from cairn.store.missing import Present

NONE = np.zeros(0, np.int64)
AT_ONCE = 4096
"""Gallery images that are searched as queries at once."""


def joined(
    own: np.ndarray, neighbours: np.ndarray, present: np.ndarray, method: str, alpha: float
) -> np.ndarray:
    """Descriptors float32 [n, dim], L2-normalised, joined with their `neighbours` [n, k, dim].

    `present` bool [n, k]: which of the neighbours there are. Weights: 1 (`average`), or max(0, similarity)^alpha
    (`alpha`; a negative similarity counts nothing, also for alpha 0); a descriptor's own weight is 1. A zero
    descriptor (no features) has no neighbours to speak of and stays zero.
    """
    if method == "average":
        weights = present.astype(np.float32)
    else:
        similarity = np.einsum("nd,nkd->nk", own, neighbours, dtype=np.float32)
        weights = np.where(present & (similarity > 0), np.maximum(similarity, 0) ** np.float32(alpha), 0)
    whole = own + np.einsum("nk,nkd->nd", weights.astype(np.float32), neighbours, dtype=np.float32)
    return unit(whole * own.any(axis=1, keepdims=True))


def expanded(
    queries: np.ndarray,
    gallery: Gallery,
    manifest_rows: np.ndarray,
    options: Expansion,
    missing: np.ndarray = NONE,
    **search: Any,
) -> np.ndarray:
    """The expanded queries, float32 [n, dim], L2-normalised: what is searched instead of `queries`.

    `manifest_rows` as in `exact_search`, which finds the neighbours with `search`'s keywords. The images `missing`
    (gallery rows) come behind all others, and their zeros add nothing.
    """
    own = np.asarray(queries, np.float32)
    nothing = [np.zeros(0, np.int64)] * len(own)
    found = search_with_missing(own, gallery, manifest_rows, options.neighbours, nothing, missing, **search)
    rows = _gallery_rows(manifest_rows, np.stack([one.rows for one in found])) if found else np.zeros((0, 0))
    return _joined_rows(own, rows, np.ones(rows.shape, bool), gallery, options)


def augmented(
    gallery: DescriptorStore,
    manifest_rows: np.ndarray,
    options: Augmentation,
    source: Path,
    folder: Path,
    **search: Any,
) -> DescriptorStore:
    """The gallery with every image joined with its nearest others, written shard by shard into `folder`.

    `source` is the folder of `gallery`; `folder` exists. An image is not its own neighbour, its exact duplicates
    are, missing ones are not. A missing image stays zero. What is stored has the dtype of `gallery`. Ties between
    neighbours: score, then manifest row.
    """
    missing, wanted = gallery.missing_rows(), options.neighbours + 1
    for path in sorted(Path(source).glob("[0-9]*.parquet")):
        shard = open_shard(path)
        own_rows = gallery.rows_of(shard.ids)
        parts = [np.zeros((0, gallery.dim), np.float32)]
        for start in range(0, len(shard), AT_ONCE):
            rows = own_rows[start : start + AT_ONCE]
            own = gallery.take(rows).astype(np.float32)
            nothing = [np.zeros(0, np.int64)] * len(own)
            found = search_with_missing(own, gallery, manifest_rows, wanted, nothing, missing, **search)
            near = _gallery_rows(manifest_rows, np.stack([one.rows for one in found]))
            others = near != rows[:, None]
            # The last one goes where the image itself is not among them (its duplicates came first).
            others[others.all(axis=1), -1] = False
            parts.append(_joined_rows(own, near, others, gallery, options))
        array = np.concatenate(parts).astype(gallery.dtype)
        about = {**shard.metadata, "augmentation": options.slug, **shard.shard_metadata[0]}
        write_shard(folder / path.name, shard.ids, array, about)
    return open_shards(folder)


def normalised(
    found: list[Found],
    queries: np.ndarray,
    training: DescriptorStore | Present,
    transform: Callable[[np.ndarray], np.ndarray],
    options: Normalisation,
) -> list[Found]:
    """`found` with DISC21's normalised scores; ranks within a query stay as they are.

    `queries` [n, dim] as they were searched; `training` are descriptors of training images before the read-out
    that `transform` is, without those that could not be decoded. ParameterError where there are fewer than
    `neighbours` of them.
    """
    if options.neighbours > len(training):
        raise ParameterError(
            f"search.normalisation.neighbours = {options.neighbours}: there are {len(training)} training images; "
            "at most so many are allowed"
        )
    background = np.concatenate([transform(block) for block in training.blocks()])
    norms = nth_neighbor_norms(
        np.asarray(queries, np.float32), background, options.neighbours, options.factor
    )
    return [
        replace(one, scores=one.scores + norm, judged_scores=one.judged_scores + norm)
        for one, norm in zip(found, norms, strict=True)
    ]


def _joined_rows(
    own: np.ndarray,
    rows: np.ndarray,
    present: np.ndarray,
    gallery: Gallery,
    options: Expansion | Augmentation,
) -> np.ndarray:
    """`joined` in blocks, so that the neighbours of few images are held at once."""
    result = np.empty(own.shape, np.float32)
    step = max(1, (1 << 24) // max(1, rows.shape[1] * own.shape[1]))
    for start in range(0, len(own), step):
        part = slice(start, start + step)
        near = gallery.take(rows[part].reshape(-1)).astype(np.float32).reshape(*rows[part].shape, -1)
        result[part] = joined(own[part], near, present[part], options.method, options.alpha)
    return result


def _gallery_rows(manifest_rows: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of the gallery's store of manifest rows."""
    of = np.empty(int(manifest_rows.max()) + 1, np.int64)
    of[manifest_rows] = np.arange(len(manifest_rows))
    return of[rows]
