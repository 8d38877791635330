"""One pass over some rows of a gallery: what each process of an exact search does, and what it reports."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cairn.search.levels import Levels
from cairn.search.products import multiply
from cairn.search.tiles import (
    QUERY_BLOCK,
    NotFiniteError,
    Rows,
    Tile,
    check_finite,
    fill,
    tile_rows,
    tiles,
)


@dataclass(frozen=True, eq=False)
class Questions:
    """What is asked of every part: the `blocks` of `count` queries, their best `top`, the ranks of their `levels`."""

    blocks: list[np.ndarray]
    count: int
    top: int
    levels: Levels
    device: str
    threads: int | None
    """Threads of each process; None for as many as it has processors."""


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows of the gallery, from `start`, and the judged pairs among them (rows of the gallery)."""

    rows: Rows
    start: int
    manifest_rows: np.ndarray  # int32 [rows]
    pair_query: np.ndarray
    pair_row: np.ndarray  # ascending


@dataclass(frozen=True, eq=False)
class Answers:
    """What a part says: counts (see `counting`), its best images per query, and the scores of its judged pairs.

    `error` takes the place of it all where a score is not finite: query and gallery row, as in NotFiniteError.
    """

    counted: np.ndarray  # int64 [bins]
    above: np.ndarray  # int64 [levels + queries]
    scores: list[np.ndarray]  # per query float32 [up to top]
    rows: list[np.ndarray]  # per query int32, manifest rows
    pair_scores: np.ndarray  # float32 [pairs of the part]
    error: tuple[int | None, int | None] | None = None

    @classmethod
    def failed(cls, error: NotFiniteError) -> "Answers":
        """Of a part that holds a number that is not finite."""
        nothing = np.zeros(0)
        return cls(nothing, nothing, [], [], nothing, (error.query, error.row))


def scan(questions: Questions, parts: Iterable[Part]) -> Iterator[Answers]:
    """The answers of each part in order; the same whatever the number of threads."""
    for part in parts:
        try:
            if questions.device == "cpu":
                yield _scan_on_cpu(questions, part)
            else:
                from cairn.search.device import scan_on_device

                yield scan_on_device(questions, part)
        except NotFiniteError as error:
            yield Answers.failed(error)


class _State:
    """What one thread has seen: counts, and the best images so far."""

    def __init__(self, questions: Questions, size: int, dim: int) -> None:
        queries, top, levels = questions.count, questions.top, questions.levels
        self.images = np.zeros((size, dim), np.float32)
        self.products = np.zeros((size, QUERY_BLOCK), np.float32)
        # Rows that are not a power of two apart do not push each other out of the cache.
        self.lines = np.zeros((QUERY_BLOCK, size + 16), np.float32)
        self.counted = np.zeros(len(levels.bins[3]), np.uint32)
        self.above = np.zeros(len(levels.pairs) + queries, np.int64)
        self.kept = np.zeros(queries, np.int64)
        self.kept_scores = np.empty((queries, room(top)), np.float32)
        self.kept_rows = np.empty((queries, room(top)), np.int32)
        self.least = np.full(queries, -np.inf, np.float32)


def _scan_on_cpu(questions: Questions, part: Part) -> Answers:
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_limits

    from cairn.parallel import workers

    dim = part.rows.dim
    size = tile_rows(dim)
    threads = max(1, min(questions.threads or workers(), -(-len(part.rows) // size)))
    waiting, lock = tiles(part.rows.blocks(), size), threading.Lock()
    pair_scores = np.zeros(len(part.pair_row), np.float32)

    def work() -> _State | NotFiniteError:
        state = _State(questions, size, dim)
        while True:
            with lock:
                tile = next(waiting, None)
            if tile is None:
                return state
            try:
                _add(questions, part, tile, state, pair_scores)
            except NotFiniteError as error:
                return error

    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        ended = [each.result() for each in [pool.submit(work) for _ in range(threads)]]
    # Tiles are handed out in order, so the first bad one has been found, whoever had it.
    if errors := [each for each in ended if isinstance(each, NotFiniteError)]:
        raise min(errors, key=lambda error: error.row or 0)
    states = [each for each in ended if isinstance(each, _State)]
    best = [
        first(
            np.concatenate([state.kept_scores[query, : state.kept[query]] for state in states]),
            np.concatenate([state.kept_rows[query, : state.kept[query]] for state in states]),
            questions.top,
        )
        for query in range(questions.count)
    ]
    return Answers(
        np.stack([state.counted for state in states]).sum(axis=0, dtype=np.int64),
        np.stack([state.above for state in states]).sum(axis=0),
        [scores for scores, _ in best],
        [rows for _, rows in best],
        pair_scores,
    )


def _add(questions: Questions, part: Part, tile: Tile, state: _State, pair_scores: np.ndarray) -> None:
    from cairn.search import counting

    start = part.start + tile.start
    fill(state.images, Tile(start, tile.count, tile.pieces))
    rows = part.manifest_rows[tile.start : tile.start + tile.count]
    here = slice(*np.searchsorted(part.pair_row, (start, start + tile.count)))
    pair_query, pair_row, seen = part.pair_query[here], part.pair_row[here], pair_scores[here]
    levels, bins = questions.levels.levels, questions.levels.bins
    for number, block in enumerate(questions.blocks):
        begin = number * QUERY_BLOCK
        queries = min(QUERY_BLOCK, questions.count - begin)
        multiply(state.images, block, state.products)
        check_finite(state.products, queries, begin, start)
        lines = state.lines
        counting.turn(state.products, lines)
        counting.gather(lines, begin, start, pair_query, pair_row, seen)
        counting.count(lines, begin, rows, queries, levels, bins, state.counted, state.above)
        if questions.top:
            kept = state.kept, state.kept_scores, state.kept_rows, state.least
            counting.keep(lines, begin, rows, queries, questions.top, *kept)


def room(top: int) -> int:
    """Candidates that a thread holds per query before it throws out all but the best `top`."""
    return top + max(1024, top // 4) if top else 0


def first(scores: np.ndarray, rows: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The `top` of scores and manifest rows, by falling score, then row."""
    if len(scores) > top > 0:
        # All that tie with the last one stay in, so that their rows can decide.
        kept = scores >= np.partition(scores, len(scores) - top)[len(scores) - top]
        scores, rows = scores[kept], rows[kept]
    order = np.lexsort((rows, -scores))[:top]
    return scores[order], rows[order]
