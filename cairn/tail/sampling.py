"""A seeded uniform sample of distractors and each query's best scores among it, streamed over descriptor
blocks."""

from collections.abc import Iterable

import numpy as np

from cairn.errors import InputError
from cairn.tail.scores import SampleScores, sample_scores

_QUERIES = 512  # rows of one score matrix


def sample_rows(pool: int, size: int, seed: int) -> np.ndarray:
    """`size` of the `pool` rows, uniformly without replacement, ascending int64. The same seed gives the
    same rows."""
    if not 1 <= size <= pool:
        raise InputError(f"a sample of {size} cannot be drawn from {pool} distractors")
    rows = np.random.default_rng(seed).choice(pool, size=size, replace=False, shuffle=False)
    return np.sort(rows.astype(np.int64))


def top_scores(
    queries: np.ndarray, blocks: Iterable[np.ndarray], rows: np.ndarray | None = None, keep: int = 4000
) -> np.ndarray:
    """The `keep` best dot products of each query with the pool (or its `rows`): float32 [Q, T], descending.

    `queries` [Q, D]; `blocks` of descriptors [n, D] in pool order, any float type; `rows` ascending int64. T
    is the number of distractors where that is less than `keep`. One block is in memory at a time.
    """
    queries = np.ascontiguousarray(queries, np.float32)
    best = np.empty((len(queries), 0), np.float32)
    start = 0
    for block in blocks:
        if rows is None:
            part = block
        else:
            low, high = np.searchsorted(rows, [start, start + len(block)])
            part = block[rows[low:high] - start]
        start += len(block)
        if len(part) == 0:
            continue
        part = np.asarray(part, np.float32)
        if part.shape[1] != queries.shape[1]:
            raise InputError(
                f"queries have {queries.shape[1]} dimensions, a block of distractors has {part.shape[1]}"
            )
        merged = np.empty((len(queries), min(keep, best.shape[1] + len(part))), np.float32)
        for first in range(0, len(queries), _QUERIES):
            chunk = slice(first, first + _QUERIES)
            both = np.concatenate([best[chunk], queries[chunk] @ part.T], axis=1)
            if both.shape[1] > keep:
                both = np.partition(both, both.shape[1] - keep, axis=1)[:, -keep:]
            merged[chunk] = both
        best = merged
    if rows is not None and len(rows) and rows[-1] >= start:
        raise InputError(f"the sample names row {rows[-1]}, but the pool has {start} distractors")
    return -np.sort(-best, axis=1)


def sampled_scores(
    queries: np.ndarray,
    blocks: Iterable[np.ndarray],
    rows: np.ndarray,
    pos_q: np.ndarray,
    positives: np.ndarray,
    keep: int = 4000,
) -> SampleScores:
    """Scores of queries [Q, D] before the sampled `rows` of a pool, and of their `positives` [P, D] (`pos_q`
    [P])."""
    queries = np.ascontiguousarray(queries, np.float32)
    top = top_scores(queries, blocks, rows, keep)
    score = np.einsum("pd,pd->p", queries[pos_q], np.asarray(positives, np.float32))
    return sample_scores(top, pos_q, score, len(rows), "sampled scores")
