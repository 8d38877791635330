"""Exact search: the top images of each query, and the exact rank of its judged images, in one streamed pass.

Similarity is the inner product of descriptors as stored, widened to float32, over one fixed tile plan
(`cairn.search.tiles`): exact duplicates tie exactly, and the result is the same for any number of threads and of
machines of one kind. Ties are ranked by manifest row. Nothing is sorted and no row of scores is held: a rank is a
count (`cairn.search.counting`), and while one thread counts another multiplies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.errors import ArtifactError
from cairn.executor import Executor, LocalExecutor
from cairn.search.levels import Judged, Levels
from cairn.search.products import multiply
from cairn.search.scanning import Answers, Part, Questions, first, room, scan
from cairn.search.tiles import (
    QUERY_BLOCK,
    Gallery,
    NotFiniteError,
    Tile,
    fill,
    query_blocks,
    tile_rows,
)

__all__ = ["Found", "Gallery", "NotFiniteError", "exact_search"]

ROUNDS = 4
"""Searches after which the scores of the judged images must agree: the first tells where they stand, one repeats it."""
KEPT_BYTES = 1 << 26
"""What each thread may hold of candidates: more queries than fit are searched in several passes."""


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


def exact_search(
    queries: np.ndarray,
    gallery: Gallery,
    manifest_rows: np.ndarray,
    top: int,
    judged: Sequence[np.ndarray],
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    device: str = "cpu",
) -> list[Found]:
    """Search `queries` (float16 or float32 [queries, dim]) in `gallery`.

    `manifest_rows` int [len(gallery)], below 2^31, gives the manifest row of each row of the gallery; `judged[q]`
    the gallery rows whose rank is wanted for query q; `top` may be 0. The result depends neither on `threads`
    nor on `executor`, over whose workers the gallery is divided where it can be. On another `device` (`cpu`, or
    a torch device such as `cuda`) scores may differ in the last bits. NotFiniteError for a score that is infinite
    or not a number; ArtifactError where workers of different kinds never agree on a score.
    """
    queries = np.asarray(queries, np.float32)
    finite = np.isfinite(queries).all(axis=1)
    if not finite.all():
        raise NotFiniteError(int(np.argmin(finite)), None)
    top = min(top, len(gallery))
    rows = np.asarray(manifest_rows, np.int32)
    at_once = max(QUERY_BLOCK, KEPT_BYTES // (8 * room(max(1, top))) // QUERY_BLOCK * QUERY_BLOCK)
    found: list[Found] = []
    for start in range(0, len(queries), at_once):
        group = slice(start, start + at_once)
        search = _Search(queries[group], gallery, rows, top, judged[group], device)
        try:
            found += search.run(threads, executor or LocalExecutor())
        except NotFiniteError as error:
            query = None if error.query is None else start + error.query
            raise NotFiniteError(query, error.row) from None
    return found


class _Search:
    """The search of a group of queries: passes until the judged images score as they do where they stand."""

    def __init__(
        self,
        queries: np.ndarray,
        gallery: Gallery,
        manifest_rows: np.ndarray,
        top: int,
        judged: Sequence[np.ndarray],
        device: str,
    ) -> None:
        self.gallery, self.manifest_rows, self.top, self.device = gallery, manifest_rows, top, device
        self.count, self.blocks, self.pairs = len(queries), query_blocks(queries), Judged.of(judged)

    def run(self, threads: int | None, executor: Executor) -> list[Found]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            self.pairs.scores[:] = _pair_scores(self.blocks, self.gallery, self.pairs, self.device)
        for _ in range(ROUNDS):
            levels = Levels.of(self.pairs, self.manifest_rows)
            asked = Questions(self.blocks, self.count, self.top, levels, self.device, threads)
            answers = list(executor.stream(scan, asked, self._parts(executor.parts)))
            if errors := [answer.error for answer in answers if answer.error is not None]:
                raise NotFiniteError(*errors[0])  # parts are in order, so this is the first
            seen = np.concatenate([answer.pair_scores for answer in answers])
            if np.array_equal(seen, self.pairs.scores):
                return self._merged(answers, levels)
            # Another machine than this one has scanned the judged images, one whose products round otherwise: count
            # again, with the scores that the images have where they are.
            self.pairs.scores[:] = seen
        raise ArtifactError(
            f"the same images got other scores in each of {ROUNDS} searches: the workers are processors of different "
            "kinds, whose products round differently; search on workers of one kind"
        )

    def _parts(self, wanted: int) -> Iterator[Part]:
        """The gallery in up to `wanted` parts of whole tiles, where it can be divided."""
        divide = getattr(self.gallery, "part", None)
        size = _tile_rows(self.gallery.dim, self.device)
        count = max(1, -(-len(self.gallery) // size))
        edges = np.linspace(0, count, min(wanted, count) + 1 if divide else 2).astype(np.int64) * size
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            rows = divide(start, stop) if divide and len(edges) > 2 else self.gallery
            here = slice(*np.searchsorted(self.pairs.row, (start, stop)))
            yield Part(
                rows,
                start,
                self.manifest_rows[start:stop],
                self.pairs.query[here],
                self.pairs.row[here],
            )

    def _merged(self, answers: list[Answers], levels: Levels) -> list[Found]:
        from cairn.search import counting

        counted = np.sum([answer.counted for answer in answers], axis=0, dtype=np.int64)
        above = np.sum([answer.above for answer in answers], axis=0, dtype=np.int64)
        ranks = np.empty(len(self.pairs.row), np.int64)
        ranks[levels.pairs] = counting.ranks(levels.levels[0], levels.bins, counted, above)
        found = []
        for query in range(self.count):
            scores, rows = first(
                np.concatenate([answer.scores[query] for answer in answers]),
                np.concatenate([answer.rows[query] for answer in answers]),
                self.top,
            )
            of_query = self.pairs.origin[query]
            found.append(Found(rows.astype(np.int64), scores, ranks[of_query], self.pairs.scores[of_query]))
        return found


def _tile_rows(dim: int, device: str) -> int:
    if device == "cpu":
        return tile_rows(dim)
    from cairn.search.device import device_tile_rows

    return device_tile_rows(dim)


def _pair_scores(blocks: list[np.ndarray], gallery: Gallery, pairs: Judged, device: str) -> np.ndarray:
    """Scores of the judged pairs, by products of the same shape as those of the pass.

    Only the judged images are read, gathered into tiles; the pass checks that they score the same in place.
    """
    from cairn.search import counting

    if device == "cpu":
        product = multiply
    else:
        from cairn.search.device import multiply_on

        product = multiply_on(device)
    size, scores = _tile_rows(gallery.dim, device), np.zeros(len(pairs.row), np.float32)
    unique, place = np.unique(pairs.row, return_inverse=True)
    images = np.zeros((size, gallery.dim), np.float32)
    products = np.zeros((size, QUERY_BLOCK), np.float32)
    for start in range(0, len(unique), size):
        rows = unique[start : start + size]
        try:
            fill(images, Tile(0, len(rows), [gallery.take(rows)]))
        except NotFiniteError as error:
            raise NotFiniteError(None, int(rows[error.row or 0])) from None
        here = slice(*np.searchsorted(place, (start, start + len(rows))))
        for number, block in enumerate(blocks):
            product(images, block, products)
            begin = number * QUERY_BLOCK
            counting.gather(products.T, begin, start, pairs.query[here], place[here], scores[here])
    if not np.isfinite(scores).all():
        bad = int(np.argmin(np.isfinite(scores)))
        raise NotFiniteError(int(pairs.query[bad]), int(pairs.row[bad]))
    return scores
