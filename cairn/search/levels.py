"""The judged images of the queries as levels that other images stand above or not (see `cairn.search.counting`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Judged:
    """All (query, judged image) pairs, sorted by gallery row, and where they came from."""

    query: np.ndarray  # int64 [pairs]
    row: np.ndarray  # int64 [pairs], ascending
    scores: np.ndarray  # float32 [pairs]
    origin: list[np.ndarray]  # per query: for each judged image its position among the pairs

    @classmethod
    def of(cls, judged: Sequence[np.ndarray]) -> "Judged":
        """The pairs of `judged` (per query gallery rows), without scores yet."""
        counts = [len(rows) for rows in judged]
        query = np.repeat(np.arange(len(judged)), counts)
        row = np.concatenate([np.zeros(0, np.int64), *[np.asarray(rows, np.int64) for rows in judged]])
        order = np.argsort(row, kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        splits = np.split(position, np.cumsum(counts)[:-1]) if counts else []
        return cls(query[order], row[order], np.zeros(len(order), np.float32), splits)


@dataclass(frozen=True, eq=False)
class Levels:
    """Every query's judged images from worst to best, and the bins that `counting` sorts scores into."""

    pairs: np.ndarray  # int64 [pairs]: which pair each level is
    levels: tuple[np.ndarray, np.ndarray, np.ndarray]  # start [queries + 1], scores and manifest rows [pairs]
    bins: tuple[np.ndarray, ...]  # start [queries + 1], low and scale [queries], before and occupied [bins]

    @classmethod
    def of(cls, pairs: Judged, manifest_rows: np.ndarray) -> "Levels":
        """The levels of pairs whose scores are known."""
        from cairn.search import counting

        rows = manifest_rows[pairs.row]
        order = np.lexsort((-rows, pairs.scores, pairs.query))
        counts = np.bincount(pairs.query, minlength=len(pairs.origin))
        start = np.concatenate([[0], np.cumsum(counts)])
        scores = pairs.scores[order]
        wanted = np.where(counts, np.clip(counts * counting.BINS_PER_LEVEL, counting.LEAST_BINS, None), 0)
        number = np.minimum(wanted, counting.MOST_BINS)
        bin_start = np.concatenate([[0], np.cumsum(number)])
        low, scale = np.zeros(len(counts), np.float32), np.zeros(len(counts), np.float32)
        for query in np.flatnonzero(counts):
            first, last = float(scores[start[query]]), float(scores[start[query + 1] - 1])
            # Where all levels are equal, any width does. The bounds keep the scale a finite number above 0.
            span = max(last - first, 1e-3 * abs(last), 1e-30)
            low[query], scale[query] = first, (number[query] - 4) / span
        before = np.zeros(bin_start[-1], np.int32)
        occupied = np.zeros(bin_start[-1], np.bool_)
        counting.fill_bins(start, scores, bin_start, low, scale, before, occupied)
        return cls(order, (start, scores, rows[order]), (bin_start, low, scale, before, occupied))
