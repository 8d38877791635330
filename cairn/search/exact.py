"""Exact search: the top images of each query, and the exact rank of its judged images, in one streamed pass.

Similarity is the inner product of descriptors as stored, widened to float32. The pass follows one fixed tile
plan: the gallery is cut into tiles of `tile_rows` images, the last one padded with zeros, and queries into
blocks of QUERY_BLOCK, padded likewise; every product is one matrix product of that one shape, on one thread. So
a pair's score depends neither on the number of threads nor on where in the gallery the image stands, and exact
duplicates tie exactly. Ties are ranked by manifest row. Nothing is sorted and no row of scores is held: a rank
is a count (`cairn.search.counting`), and while one thread counts another multiplies.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cairn.errors import ArtifactError

QUERY_BLOCK = 72
"""Queries in a product: the 70 of the revisited benchmarks with little padding, and a multiple of 8."""
TILE_NUMBERS = 1 << 19
"""Numbers in a tile: 2 MiB in float32, so that it is multiplied while it is in the cache."""
LEAST_TILE, MOST_TILE = 64, 8192
KEPT_BYTES = 1 << 26
"""What each thread may hold of candidates: more queries than fit are searched in several passes."""


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


class NotFiniteError(ArtifactError):
    """A score is infinite or not a number. `query` and `row` (of the gallery) count from 0; None for any."""

    def __init__(self, query: int | None, row: int | None) -> None:
        self.query, self.row = query, row
        where = [f"query {query}"] if query is not None else []
        where += [f"gallery row {row}"] if row is not None else []
        super().__init__(f"{', '.join(where)}: the score is not finite; descriptors must be finite numbers")


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

    `manifest_rows` int [len(gallery)], below 2^31, gives the manifest row of each row of the gallery; `judged[q]`
    the gallery rows whose rank is wanted for query q; `top` may be 0. The result does not depend on `threads`.
    NotFiniteError for a score that is infinite or not a number.
    """
    from threadpoolctl import threadpool_limits

    from cairn.parallel import workers

    queries = np.asarray(queries, np.float32)
    finite = np.isfinite(queries).all(axis=1)
    if not finite.all():
        raise NotFiniteError(int(np.argmin(finite)), None)
    top = min(top, len(gallery))
    rows = np.asarray(manifest_rows, np.int32)
    at_once = max(QUERY_BLOCK, KEPT_BYTES // (8 * _room(max(1, top))) // QUERY_BLOCK * QUERY_BLOCK)
    found: list[Found] = []
    with threadpool_limits(1):
        for start in range(0, len(queries), at_once):
            part = slice(start, start + at_once)
            try:
                found += _search(queries[part], gallery, rows, top, judged[part], threads or workers())
            except NotFiniteError as error:
                raise NotFiniteError(
                    None if error.query is None else start + error.query, error.row
                ) from None
    return found


def _search(
    queries: np.ndarray,
    gallery: Gallery,
    manifest_rows: np.ndarray,
    top: int,
    judged: Sequence[np.ndarray],
    threads: int,
) -> list[Found]:
    pairs = _Judged.of(judged)
    blocks = _query_blocks(queries)
    pairs.scores[:] = _pair_scores(blocks, gallery, pairs)
    while True:
        search = _Pass(blocks, len(queries), gallery, manifest_rows, top, pairs)
        results = search.run(threads)
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
class _Levels:
    """Every query's judged images from worst to best, and the bins that `counting` sorts scores into."""

    pairs: np.ndarray  # int64 [pairs]: which pair each level is
    levels: tuple[np.ndarray, np.ndarray, np.ndarray]  # start [queries + 1], scores and manifest rows [pairs]
    bins: tuple[np.ndarray, ...]  # start [queries + 1], low and scale [queries], before and occupied [bins]

    @classmethod
    def of(cls, pairs: _Judged, manifest_rows: np.ndarray) -> "_Levels":
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


@dataclass(frozen=True, eq=False)
class _Tile:
    start: int  # gallery row of its first image
    count: int
    pieces: list[np.ndarray]  # of the gallery's blocks, in order


class _State:
    """What one thread has seen: counts, and the best images so far."""

    def __init__(self, queries: int, levels: _Levels, top: int, size: int, dim: int) -> None:
        self.images = np.zeros((size, dim), np.float32)
        self.products = np.zeros((size, QUERY_BLOCK), np.float32)
        # Rows that are not a power of two apart do not push each other out of the cache.
        self.lines = np.zeros((QUERY_BLOCK, size + 16), np.float32)
        self.counted = np.zeros(len(levels.bins[3]), np.uint32)
        self.above = np.zeros(len(levels.pairs) + queries, np.int64)
        self.kept = np.zeros(queries, np.int64)
        self.kept_scores = np.empty((queries, _room(top)), np.float32)
        self.kept_rows = np.empty((queries, _room(top)), np.int32)
        self.least = np.full(queries, -np.inf, np.float32)


class _Pass:
    """One pass over the gallery with given scores of the judged pairs."""

    def __init__(
        self,
        blocks: list[np.ndarray],
        count: int,
        gallery: Gallery,
        manifest_rows: np.ndarray,
        top: int,
        pairs: _Judged,
    ) -> None:
        self.blocks, self.count, self.gallery, self.top, self.pairs = blocks, count, gallery, top, pairs
        self.manifest_rows = manifest_rows
        self.size = tile_rows(gallery.dim)
        self.seen = np.zeros(len(pairs.row), np.float32)
        self.levels = _Levels.of(pairs, manifest_rows)

    def run(self, threads: int) -> list[Found]:
        from concurrent.futures import ThreadPoolExecutor

        threads = max(1, min(threads, -(-len(self.gallery) // self.size)))
        tiles, lock = _tiles(self.gallery, self.size), threading.Lock()

        def work() -> _State | NotFiniteError:
            state = _State(self.count, self.levels, self.top, self.size, self.gallery.dim)
            while True:
                with lock:
                    tile = next(tiles, None)
                if tile is None:
                    return state
                try:
                    self._add(tile, state)
                except NotFiniteError as error:
                    return error

        with ThreadPoolExecutor(threads) as pool:
            ended = [each.result() for each in [pool.submit(work) for _ in range(threads)]]
        # Tiles are handed out in order, so the first bad one has been found, whoever had it.
        if errors := [each for each in ended if isinstance(each, NotFiniteError)]:
            raise min(errors, key=lambda error: error.row or 0)
        return self._results([each for each in ended if isinstance(each, _State)])

    def _add(self, tile: _Tile, state: _State) -> None:
        from cairn.search import counting

        _fill(state.images, tile)
        rows = self.manifest_rows[tile.start : tile.start + tile.count]
        here = slice(*np.searchsorted(self.pairs.row, (tile.start, tile.start + tile.count)))
        pair_query, pair_row, seen = self.pairs.query[here], self.pairs.row[here], self.seen[here]
        for number, block in enumerate(self.blocks):
            begin = number * QUERY_BLOCK
            queries = min(QUERY_BLOCK, self.count - begin)
            _multiply(state.images, block, state.products)
            _check_finite(state.products, queries, begin, tile.start)
            lines = state.lines
            counting.turn(state.products, lines)
            counting.gather(lines, begin, tile.start, pair_query, pair_row, seen)
            levels, bins = self.levels.levels, self.levels.bins
            counting.count(lines, begin, rows, queries, levels, bins, state.counted, state.above)
            if self.top:
                kept = state.kept, state.kept_scores, state.kept_rows, state.least
                counting.keep(lines, begin, rows, queries, self.top, *kept)

    def _results(self, states: list[_State]) -> list[Found]:
        from cairn.search import counting

        counted = np.sum([state.counted for state in states], axis=0, dtype=np.int64)
        above = np.sum([state.above for state in states], axis=0)
        ranks = np.empty(len(self.pairs.row), np.int64)
        ranks[self.levels.pairs] = counting.ranks(self.levels.levels[0], self.levels.bins, counted, above)
        found = []
        for query in range(self.count):
            scores = [state.kept_scores[query, : state.kept[query]] for state in states]
            rows = [state.kept_rows[query, : state.kept[query]] for state in states]
            scores, rows = _first(np.concatenate(scores), np.concatenate(rows), self.top)
            of_query = self.pairs.origin[query]
            found.append(Found(rows.astype(np.int64), scores, ranks[of_query], self.pairs.scores[of_query]))
        return found


def _tiles(gallery: Gallery, size: int) -> Iterator[_Tile]:
    """The gallery in tiles of `size` images, across its blocks; the last one may have fewer."""
    start, count, pieces = 0, 0, []
    for block in gallery.blocks():
        first = 0
        while first < len(block):
            piece = block[first : first + size - count]
            pieces.append(piece)
            first, count = first + len(piece), count + len(piece)
            if count == size:
                yield _Tile(start, count, pieces)
                start, count, pieces = start + count, 0, []
    if count:
        yield _Tile(start, count, pieces)


def _fill(images: np.ndarray, tile: _Tile) -> None:
    """Write a tile's descriptors to `images` (float32 [tile rows, dim]), then zeros."""
    from cairn.search import counting

    start, dim = 0, images.shape[1]
    for piece in tile.pieces:
        into = images[start : start + len(piece)]
        if piece.dtype == np.float16:
            bits = np.ascontiguousarray(piece).view(np.uint16).reshape(-1)
            finite = counting.widen(bits, into.reshape(-1).view(np.uint32))
        else:
            into[:] = piece
            finite = counting.all_finite(into.reshape(-1).view(np.uint32))
        if not finite:
            bad = np.flatnonzero(~np.isfinite(piece.reshape(-1)))[0] // dim
            raise NotFiniteError(None, tile.start + start + int(bad))
        start += len(piece)
    images[start:] = 0


def _multiply(images: np.ndarray, block: np.ndarray, products: np.ndarray) -> None:
    with np.errstate(over="ignore", invalid="ignore"):  # an error of our own names query and image
        np.matmul(images, block, out=products)


def _check_finite(products: np.ndarray, queries: int, begin: int, start: int) -> None:
    """NotFiniteError for the first of a tile's products that overflowed."""
    from cairn.search import counting

    if not counting.all_finite(products.reshape(-1).view(np.uint32)):
        image, query = np.argwhere(~np.isfinite(products[:, :queries]))[0]
        raise NotFiniteError(begin + int(query), start + int(image))


def _query_blocks(queries: np.ndarray) -> list[np.ndarray]:
    """Per QUERY_BLOCK queries a float32 [dim, QUERY_BLOCK], filled up with zeros."""
    blocks = []
    for start in range(0, len(queries), QUERY_BLOCK):
        part = queries[start : start + QUERY_BLOCK]
        blocks.append(np.zeros((queries.shape[1], QUERY_BLOCK), np.float32))
        blocks[-1][:, : len(part)] = part.T
    return blocks


def _room(top: int) -> int:
    """Candidates that a thread holds per query before it throws out all but the best `top`."""
    return top + max(1024, top // 4) if top else 0


def _first(scores: np.ndarray, rows: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The `top` of scores and manifest rows, by falling score, then row."""
    if len(scores) > top > 0:
        # All that tie with the last one stay in, so that their rows can decide.
        kept = scores >= np.partition(scores, len(scores) - top)[len(scores) - top]
        scores, rows = scores[kept], rows[kept]
    order = np.lexsort((rows, -scores))[:top]
    return scores[order], rows[order]


def _pair_scores(blocks: list[np.ndarray], gallery: Gallery, pairs: _Judged) -> np.ndarray:
    """Scores of the judged pairs, by products of the same shape as those of the pass.

    Only the judged images are read, gathered into tiles; the pass checks that they score the same in place.
    """
    from cairn.search import counting

    size, scores = tile_rows(gallery.dim), np.zeros(len(pairs.row), np.float32)
    unique, place = np.unique(pairs.row, return_inverse=True)
    images = np.zeros((size, gallery.dim), np.float32)
    products = np.zeros((size, QUERY_BLOCK), np.float32)
    for start in range(0, len(unique), size):
        rows = unique[start : start + size]
        try:
            _fill(images, _Tile(0, len(rows), [gallery.take(rows)]))
        except NotFiniteError as error:
            raise NotFiniteError(None, int(rows[error.row or 0])) from None
        here = slice(*np.searchsorted(place, (start, start + len(rows))))
        for number, block in enumerate(blocks):
            _multiply(images, block, products)
            begin = number * QUERY_BLOCK
            counting.gather(products.T, begin, start, pairs.query[here], place[here], scores[here])
    if not np.isfinite(scores).all():
        bad = int(np.argmin(np.isfinite(scores)))
        raise NotFiniteError(int(pairs.query[bad]), int(pairs.row[bad]))
    return scores
