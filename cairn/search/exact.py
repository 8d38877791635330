"""Exact search: the top images of each query, and the exact rank of its judged images, in one streamed pass.

Similarity is the inner product of descriptors as stored, widened to float32. The pass follows one fixed tile
plan: each block of the store is cut into tiles of `tile_rows` images, the last one padded with zeros, and
queries into blocks of QUERY_BLOCK, padded likewise; every product is one matrix product of that one shape, on
one thread. So a pair's score depends neither on the number of threads nor on where in the gallery the image
stands, and exact duplicates tie exactly. Ties are ranked by manifest row.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

QUERY_BLOCK = 64
TILE_NUMBERS = 1 << 22
"""Numbers in a tile: 16 MiB in float32."""
LEAST_TILE, MOST_TILE = 64, 8192


class Gallery(Protocol):
    """What is searched: `cairn.store.descriptors.DescriptorStore` is one."""

    @property
    def dim(self) -> int:
        """Numbers of a descriptor."""
        ...

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[np.ndarray]:
        """float16 or float32 [rows, dim] views of the whole matrix, in order."""
        ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Copies of some rows."""
        ...


@dataclass(frozen=True, eq=False)
class Found:
    """One query's result. Ranks count from 0 in the whole gallery, by falling score, then manifest row.

    `rows` int64 and `scores` float32 [top]: manifest rows of the top images in order. `judged_ranks` int64 and
    `judged_scores` float32 [judged], in the order in which the judged images were given.
    """

    rows: np.ndarray
    scores: np.ndarray
    judged_ranks: np.ndarray
    judged_scores: np.ndarray


def tile_rows(dim: int) -> int:
    """Images in a tile: a multiple of 64 from 64 to 8,192, so that a tile has about TILE_NUMBERS numbers."""
    return min(MOST_TILE, max(LEAST_TILE, TILE_NUMBERS // dim // LEAST_TILE * LEAST_TILE))


def exact_search(
    queries: np.ndarray,
    gallery: Gallery,
    manifest_rows: np.ndarray,
    top: int,
    judged: Sequence[np.ndarray],
    *,
    threads: int | None = None,
) -> list[Found]:
    """Search `queries` (float16 or float32 [queries, dim]) in `gallery`.

    `manifest_rows` int64 [len(gallery)] gives the manifest row of each row of the gallery; `judged[q]` the
    gallery rows whose rank is wanted for query q. The result does not depend on `threads`.
    """
    from threadpoolctl import threadpool_limits

    from cairn.parallel import workers

    widened = _padded(np.asarray(queries, np.float32), _up(len(queries), QUERY_BLOCK))
    top = min(top, len(gallery))
    pairs = _Judged.of(judged)
    with threadpool_limits(1):
        pairs.scores[:] = _pair_scores(widened, gallery, pairs)
        while True:
            search = _Pass(widened, len(queries), gallery, manifest_rows, top, pairs)
            results = search.run(threads or workers())
            if np.array_equal(search.seen, pairs.scores):
                return results
            # A product whose result depends on where a row stands in its tile (no library that was tried does
            # that): count again, with the scores that the images have where they are.
            pairs.scores[:] = search.seen


@dataclass(frozen=True, eq=False)
class _Judged:
    """All (query, judged image) pairs, sorted by gallery row, and where they came from."""

    query: np.ndarray  # int64 [pairs]
    row: np.ndarray  # int64 [pairs], ascending
    scores: np.ndarray  # float32 [pairs]
    origin: list[np.ndarray]  # per query: for each judged image its position among the pairs

    @classmethod
    def of(cls, judged: Sequence[np.ndarray]) -> "_Judged":
        counts = [len(rows) for rows in judged]
        query = np.repeat(np.arange(len(judged)), counts)
        row = np.concatenate([np.zeros(0, np.int64), *[np.asarray(rows, np.int64) for rows in judged]])
        order = np.argsort(row, kind="stable")
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        splits = np.split(position, np.cumsum(counts)[:-1]) if counts else []
        return cls(query[order], row[order], np.zeros(len(order), np.float32), splits)


@dataclass(frozen=True, eq=False)
class _Tile:
    start: int  # gallery row of its first image
    block: np.ndarray


@dataclass(eq=False)
class _Part:
    """What one tile contributes: candidates per query, counts per judged image, scores of judged pairs."""

    candidates: list[tuple[np.ndarray, np.ndarray]]
    above: np.ndarray
    pairs: slice
    seen: np.ndarray


class _Pass:
    """One pass over the gallery with given scores of the judged pairs."""

    def __init__(
        self,
        queries: np.ndarray,
        count: int,
        gallery: Gallery,
        manifest_rows: np.ndarray,
        top: int,
        pairs: _Judged,
    ) -> None:
        self.queries, self.count, self.gallery, self.top, self.pairs = queries, count, gallery, top, pairs
        self.manifest_rows = np.asarray(manifest_rows, np.int64)
        self.size = tile_rows(gallery.dim)
        self.seen = np.zeros(len(pairs.row), np.float32)
        self.above = np.zeros(len(pairs.row), np.int64)
        none = (np.zeros(0, np.float32), np.zeros(0, np.int64))
        self.best = [none] * count
        self.least = np.full(count, -np.inf, np.float32)  # score that a candidate must have
        self.levels = [_levels(pairs, query, self.manifest_rows) for query in range(count)]

    def run(self, threads: int) -> list[Found]:
        from concurrent.futures import Future, ThreadPoolExecutor

        with ThreadPoolExecutor(threads) as pool:
            waiting: deque[Future[_Part]] = deque()
            for tile in self._tiles():
                waiting.append(pool.submit(self._search, tile))
                if len(waiting) > 2 * threads:
                    self._merge(waiting.popleft().result())
            while waiting:
                self._merge(waiting.popleft().result())
        found = []
        for query in range(self.count):
            scores, rows = _first(*self.best[query], self.top)
            of_query = self.pairs.origin[query]
            found.append(Found(rows, scores, self.above[of_query], self.pairs.scores[of_query]))
        return found

    def _tiles(self) -> Iterator[_Tile]:
        start = 0
        for block in self.gallery.blocks():
            for first in range(0, len(block), self.size):
                yield _Tile(start + first, block[first : first + self.size])
            start += len(block)

    def _search(self, tile: _Tile) -> _Part:
        count, rows = len(tile.block), self.manifest_rows[tile.start : tile.start + len(tile.block)]
        images = _padded(tile.block, self.size)
        first, last = np.searchsorted(self.pairs.row, (tile.start, tile.start + count))
        part = _Part(
            [],
            np.zeros(len(self.pairs.row), np.int64),
            slice(first, last),
            np.zeros(last - first, np.float32),
        )
        inside = self.pairs.query[first:last], self.pairs.row[first:last] - tile.start
        for begin in range(0, len(self.queries), QUERY_BLOCK):
            scores = self.queries[begin : begin + QUERY_BLOCK] @ images.T
            here = (inside[0] >= begin) & (inside[0] < begin + QUERY_BLOCK)
            part.seen[here] = scores[inside[0][here] - begin, inside[1][here]]
            for query in range(begin, min(begin + QUERY_BLOCK, self.count)):
                line = scores[query - begin, :count]
                likely = np.flatnonzero(line >= self.least[query])
                part.candidates.append(_first(line[likely], rows[likely], self.top))
                _count_above(line, rows, self.levels[query], part.above)
        return part

    def _merge(self, part: _Part) -> None:
        self.above += part.above
        self.seen[part.pairs] = part.seen
        for query, (scores, rows) in enumerate(part.candidates):
            if len(scores):
                old = self.best[query]
                self.best[query] = _first(
                    np.concatenate([old[0], scores]), np.concatenate([old[1], rows]), self.top
                )
                if len(self.best[query][0]) == self.top:
                    self.least[query] = self.best[query][0][-1]


@dataclass(frozen=True, eq=False)
class _Levels:
    """A query's judged images by ascending score."""

    scores: np.ndarray  # float32 [judged], ascending
    rows: np.ndarray  # manifest rows
    pairs: np.ndarray  # positions among all pairs


def _levels(pairs: _Judged, query: int, manifest_rows: np.ndarray) -> _Levels:
    of_query = pairs.origin[query]
    order = of_query[np.argsort(pairs.scores[of_query], kind="stable")]
    return _Levels(pairs.scores[order], manifest_rows[pairs.row[order]], order)


def _count_above(line: np.ndarray, rows: np.ndarray, levels: _Levels, above: np.ndarray) -> None:
    """Add to `above`, for each judged image, how many of the images with scores `line` are ranked before it."""
    if not len(levels.scores):
        return
    below = np.searchsorted(
        levels.scores, line, side="left"
    )  # judged images with a lower score than this one
    counts = np.bincount(below, minlength=len(levels.scores) + 1)
    above[levels.pairs] += np.cumsum(counts[::-1])[::-1][1:]
    tied = np.flatnonzero(np.searchsorted(levels.scores, line, side="right") > below)
    for image in tied:  # judged images themselves, and what ties with them: the manifest row decides
        equal = levels.scores == line[image]
        above[levels.pairs[equal & (levels.rows > rows[image])]] += 1


def _first(scores: np.ndarray, rows: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The `top` of scores and manifest rows, by falling score, then row."""
    if len(scores) > top:
        # All that tie with the last one stay in, so that their rows can decide.
        kept = scores >= np.partition(scores, len(scores) - top)[len(scores) - top]
        scores, rows = scores[kept], rows[kept]
    order = np.lexsort((rows, -scores))[:top]
    return scores[order], rows[order]


def _pair_scores(queries: np.ndarray, gallery: Gallery, pairs: _Judged) -> np.ndarray:
    """Scores of the judged pairs, by products of the same shape as those of the pass."""
    size, scores = tile_rows(gallery.dim), np.zeros(len(pairs.row), np.float32)
    unique, inverse = np.unique(pairs.row, return_inverse=True)
    for start in range(0, len(unique), size):
        images = _padded(gallery.take(unique[start : start + size]), size)
        for begin in range(0, len(queries), QUERY_BLOCK):
            here = np.flatnonzero(
                (inverse >= start)
                & (inverse < start + size)
                & (pairs.query >= begin)
                & (pairs.query < begin + QUERY_BLOCK)
            )
            if len(here):
                product = queries[begin : begin + QUERY_BLOCK] @ images.T
                scores[here] = product[pairs.query[here] - begin, inverse[here] - start]
    return scores


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    """float32 [count, dim]: the rows, then zeros."""
    padded = np.zeros((count, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
