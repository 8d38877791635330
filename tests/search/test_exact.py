"""Exact search against a full sort, its ties, and its independence from tiles, threads and order."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError
from cairn.search import exact, tiles
from cairn.search.exact import exact_search
from cairn.search.tiles import LEAST_TILE, MOST_TILE, QUERY_BLOCK, tile_rows


@dataclass
class Matrix:
    """A gallery in memory, in blocks of given sizes."""

    rows: np.ndarray
    block: int = 100

    @property
    def dim(self) -> int:
        return self.rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[np.ndarray]:
        for start in range(0, len(self.rows), self.block):
            yield self.rows[start : start + self.block]

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.rows[rows]


def whole_numbers(generator: np.random.Generator, count: int, dim: int, most: int = 2) -> np.ndarray:
    """Descriptors of small whole numbers: every product is exact, and there are many ties."""
    return generator.integers(-most, most + 1, (count, dim)).astype(np.float16)


def full_sort(queries: np.ndarray, rows: np.ndarray, manifest_rows: np.ndarray):
    """Per query the manifest rows by falling score, then manifest row, and the scores."""
    scores = queries.astype(np.float64) @ rows.astype(np.float64).T
    return [(manifest_rows[np.lexsort((manifest_rows, -line))], line) for line in scores]


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 300),
    dim=st.integers(1, 9),
    block=st.integers(1, 130),
    top=st.integers(1, 320),
    number=st.integers(1, 70),
    seed=st.integers(0, 1 << 30),
)
def test_equals_a_full_sort_with_ties(count, dim, block, top, number, seed):
    generator = np.random.default_rng(seed)
    rows, queries = whole_numbers(generator, count, dim), whole_numbers(generator, number, dim)
    manifest_rows = generator.permutation(count) + 5
    judged = [
        generator.permutation(count)[: generator.integers(0, min(count, 12) + 1)] for _ in range(number)
    ]
    found = exact_search(queries, Matrix(rows, block), manifest_rows, top, judged, threads=2)
    assert len(found) == number
    for one, (order, line), wanted in zip(
        found, full_sort(queries, rows, manifest_rows), judged, strict=True
    ):
        assert one.rows.tolist() == order[:top].tolist()
        assert one.scores.tolist() == sorted(line.tolist(), reverse=True)[:top]
        rank_of = {row: rank for rank, row in enumerate(order)}
        assert one.judged_ranks.tolist() == [rank_of[row] for row in manifest_rows[wanted]]
        assert one.judged_scores.tolist() == line[wanted].tolist()


def real_numbers(count: int, dim: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


def same(one, other) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("rows", "scores", "judged_ranks", "judged_scores")
    )


def test_neither_threads_nor_blocks_nor_the_order_of_rows_change_anything():
    rows, queries = real_numbers(700, 96), real_numbers(70, 96, 1)
    manifest_rows = np.arange(700)
    judged = [np.arange(query, 700, 71) for query in range(70)]
    first = exact_search(queries, Matrix(rows, 512), manifest_rows, 100, judged, threads=1)
    assert same(first, exact_search(queries, Matrix(rows, 512), manifest_rows, 100, judged, threads=5))
    assert same(first, exact_search(queries, Matrix(rows, 7), manifest_rows, 100, judged, threads=2))
    shuffled = np.random.default_rng(2).permutation(700)
    place = np.argsort(shuffled)
    moved = exact_search(
        queries, Matrix(rows[shuffled], 64), shuffled, 100, [place[wanted] for wanted in judged], threads=2
    )
    assert same(first, moved)


@pytest.mark.parametrize("dim", [1, 3, 17, 128, 300, 577, 2048])
def test_exact_duplicates_tie_exactly_wherever_they_stand(dim: int):
    # The same row everywhere: one score that differs would show that its place in a tile matters.
    row = real_numbers(1, dim)
    rows = np.repeat(row, 2 * LEAST_TILE + 3, axis=0)
    queries = real_numbers(QUERY_BLOCK + 3, dim, 1)
    found = exact_search(queries, Matrix(rows, 70), np.arange(len(rows)), len(rows), [[]] * len(queries))
    for one in found:
        assert len(set(one.scores.tolist())) == 1
        assert one.rows.tolist() == list(range(len(rows)))


def test_equal_queries_get_equal_results_wherever_they_stand():
    queries = np.repeat(real_numbers(1, 33), 2 * QUERY_BLOCK + 1, axis=0)
    found = exact_search(
        queries, Matrix(real_numbers(200, 33, 1)), np.arange(200), 50, [np.arange(3)] * len(queries)
    )
    assert all(same([found[0]], [one]) for one in found)


def test_scores_that_depend_on_the_place_are_counted_again(monkeypatch: pytest.MonkeyPatch):
    # Judged scores that the first look got wrong: the pass must notice, and count with the right ones.
    right = exact._pair_scores
    monkeypatch.setattr(exact, "_pair_scores", lambda *parts: right(*parts) + np.float32(1e-3))
    rows, queries = real_numbers(300, 20), real_numbers(5, 20, 1)
    judged = [np.arange(0, 300, 7)] * 5
    found = exact_search(queries, Matrix(rows), np.arange(300), 300, judged)
    monkeypatch.undo()
    assert same(found, exact_search(queries, Matrix(rows), np.arange(300), 300, judged))
    for one in found:
        assert one.rows[one.judged_ranks].tolist() == judged[0].tolist()


def test_zero_descriptors_tie_by_row():
    found = exact_search(
        np.zeros((1, 4), np.float16), Matrix(real_numbers(9, 4)), np.arange(9)[::-1], 4, [[0]]
    )
    assert found[0].rows.tolist() == [0, 1, 2, 3] and found[0].judged_ranks.tolist() == [8]


@pytest.mark.parametrize("dim", [1, 64, 512, 513, 1024, 16_384, 1_000_000])
def test_tiles_are_whole_multiples_within_limits(dim: int):
    assert tile_rows(dim) % LEAST_TILE == 0 and LEAST_TILE <= tile_rows(dim) <= MOST_TILE
    assert tile_rows(dim) * dim <= tiles.TILE_NUMBERS or tile_rows(dim) == LEAST_TILE


def test_workers_that_never_agree_are_told_of_and_not_waited_for_for_ever():
    @dataclass
    class Changing(Matrix):
        """Rounds otherwise at every reading, as parts do that wander between processors of two kinds."""

        times: int = 0

        def blocks(self) -> Iterator[np.ndarray]:
            self.times += 1
            yield self.rows * np.float32(1 + self.times / 1000)

    gallery = Changing(np.eye(4, dtype=np.float32))
    with pytest.raises(ArtifactError, match="search on workers of one kind"):
        exact_search(np.eye(4, dtype=np.float32), gallery, np.arange(4), 2, [np.array([1])] * 4)
    assert gallery.times == exact.ROUNDS
