"""Exact search in a gallery some of whose images have no descriptor, since they could not be decoded.

Such an image is stored as zeros, and zeros score 0: more than every image whose cosine is negative, which a read-out
that subtracts a mean makes common. Nothing is known of it, so it has no claim to any rank before the last ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cairn.search.exact import Found, Gallery, exact_search

LEAST = np.float32(-1)
"""What a missing image scores: the least that a cosine can be, or what the last image of the query has if less."""


def search_with_missing(
    queries: np.ndarray,
    gallery: Gallery,
    manifest_rows: np.ndarray,
    top: int,
    judged: Sequence[np.ndarray],
    missing: np.ndarray,
    **search: Any,
) -> list[Found]:
    """As `exact_search` (with its keywords in `search`), with the images `missing` (gallery rows) ranked last.

    Among themselves they are ordered by manifest row.
    """
    if not len(missing):
        return exact_search(queries, gallery, manifest_rows, top, judged, **search)
    size = len(gallery)
    missing = np.asarray(missing)[np.argsort(manifest_rows[missing])]
    asked = [np.concatenate([np.asarray(rows, np.int64), missing]) for rows in judged]
    found = exact_search(queries, gallery, manifest_rows, top + len(missing), asked, **search)
    return [
        _last(one, np.asarray(rows, np.int64), missing, manifest_rows, min(top, size), size)
        for one, rows in zip(found, judged, strict=True)
    ]


def _last(
    found: Found, judged: np.ndarray, missing: np.ndarray, manifest_rows: np.ndarray, top: int, size: int
) -> Found:
    """`found`, in which the missing ones stand among the others and behind the judged ones, put right."""
    judged_ranks, taken = found.judged_ranks[: len(judged)], np.sort(found.judged_ranks[len(judged) :])
    judged_scores = found.judged_scores[: len(judged)]
    absent = np.isin(judged, missing)
    place = np.zeros(size, np.int64)
    place[missing] = size - len(missing) + np.arange(len(missing))
    ranks = np.where(absent, place[judged], judged_ranks - np.searchsorted(taken, judged_ranks))
    names = manifest_rows[missing].astype(np.int64)
    present = ~np.isin(found.rows, names)
    rows, scores = found.rows[present][:top], found.scores[present][:top]
    least = min([LEAST, *scores[-1:], *judged_scores[~absent]])
    behind = names[: top - len(rows)]
    return replace(
        found,
        rows=np.concatenate([rows, behind]),
        scores=np.concatenate([scores, np.full(len(behind), least, np.float32)]),
        judged_ranks=ranks,
        judged_scores=np.where(absent, least, judged_scores).astype(np.float32),
    )
