"""The compiled loops of exact search, each against one line of numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.search import counting, exact, levels
from cairn.search.exact import NotFiniteError, exact_search
from tests.search.test_exact import Matrix, full_sort, real_numbers, same, whole_numbers


def test_every_float16_is_widened_exactly_or_reported():
    half = np.arange(1 << 16, dtype=np.uint16)
    single = np.empty(1 << 16, np.uint32)
    assert not counting.widen(half, single)
    wanted = half.view(np.float16).astype(np.float32)
    finite = np.isfinite(wanted)
    assert np.array_equal(single[finite], wanted.view(np.uint32)[finite])
    assert counting.widen(half[finite], single[: finite.sum()])
    for bad in half[~finite][::97]:
        assert not counting.widen(np.array([1, bad], np.uint16), single[:2])


@pytest.mark.parametrize(
    ("value", "finite"), [(3e38, True), (np.inf, False), (-np.inf, False), (np.nan, False)]
)
def test_finite(value: float, finite: bool):
    assert counting.all_finite(np.array([0, -1e-45, value, 1], np.float32).view(np.uint32)) == finite


ANY_SCORE = st.one_of(
    st.floats(-1, 1, width=32),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from([0.0, -0.0, 0.5, 1e-45, -1e-45, 3.4e38, -3.4e38]),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(ANY_SCORE, min_size=1, max_size=150), st.data())
def test_ranks_of_any_scores(scores: list[float], data: st.DataObject):
    line = np.array(scores, np.float32)
    count = len(line)
    judged = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=40)), np.int64)
    rows = np.array(data.draw(st.permutations(range(count))), np.int32)
    pairs = levels.Judged.of([judged, judged[:1]])
    pairs.scores[:] = line[pairs.row]
    found = levels.Levels.of(pairs, rows)
    counted, above = np.zeros(len(found.bins[3]), np.uint32), np.zeros(len(pairs.row) + 2, np.int64)
    lines = np.stack([line, line])
    for part in (slice(0, count // 3), slice(count // 3, count)):
        counting.count(lines[:, part], 0, rows[part], 2, found.levels, found.bins, counted, above)
    ranks = np.empty(len(pairs.row), np.int64)
    ranks[found.pairs] = counting.ranks(found.levels[0], found.bins, counted, above)
    rank_of = np.empty(count, np.int64)
    rank_of[np.lexsort((rows, -line))] = np.arange(count)
    assert ranks[pairs.origin[0]].tolist() == rank_of[judged].tolist()
    assert ranks[pairs.origin[1]].tolist() == rank_of[judged[:1]].tolist()


@pytest.mark.parametrize("most", [0, 1, 30])
@pytest.mark.parametrize("top", [1, 10, 1500])
def test_the_best_of_many_with_ties(most: int, top: int):
    # More candidates than a thread holds, so that all but the best are thrown out again and again.
    generator = np.random.default_rng(most)
    rows = np.sort(whole_numbers(generator, 9000, 1, most), axis=0)  # the best come last
    queries = np.ones((2, 1), np.float16)
    numbers = generator.permutation(9000)
    found = exact_search(queries, Matrix(rows, 4000), numbers, top, [[], [0]], threads=2)
    for one, (order, line) in zip(found, full_sort(queries, rows, numbers), strict=True):
        assert one.rows.tolist() == order[:top].tolist()
        assert one.scores.tolist() == sorted(line.tolist(), reverse=True)[:top]


def test_many_queries_are_searched_in_groups(monkeypatch: pytest.MonkeyPatch):
    rows, queries = real_numbers(300, 8), real_numbers(200, 8, 1)
    judged = [np.arange(query % 3) for query in range(200)]
    whole = exact_search(queries, Matrix(rows), np.arange(300), 20, judged)
    monkeypatch.setattr(exact, "KEPT_BYTES", 1)
    assert same(whole, exact_search(queries, Matrix(rows), np.arange(300), 20, judged))
    alone = exact_search(queries[150:151], Matrix(rows), np.arange(300), 20, judged[150:151])
    assert same(whole[150:151], alone)


def test_ranks_alone_need_no_best():
    rows, queries = real_numbers(300, 8), real_numbers(2, 8, 1)
    found = exact_search(queries, Matrix(rows), np.arange(300), 0, [np.arange(9)] * 2)
    whole = exact_search(queries, Matrix(rows), np.arange(300), 300, [np.arange(9)] * 2)
    for one, other in zip(found, whole, strict=True):
        assert len(one.rows) == 0 and one.judged_ranks.tolist() == other.judged_ranks.tolist()


def test_float32_descriptors_and_float16_ones_of_the_same_values_agree():
    rows, queries = real_numbers(300, 8), real_numbers(3, 8, 1)
    judged = [np.arange(5)] * 3
    half = exact_search(queries, Matrix(rows), np.arange(300), 9, judged)
    assert same(half, exact_search(queries, Matrix(rows.astype(np.float32)), np.arange(300), 9, judged))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("judged", [[], [150]])
def test_descriptors_that_are_not_finite_are_named(kind: type, value: float, judged: list[int]):
    rows = np.ones((40_000, 4), kind)
    rows[150, 2] = rows[31_000, 1] = value
    with pytest.raises(NotFiniteError, match="gallery row 150: the score is not finite") as caught:
        exact_search(np.ones((1, 4), kind), Matrix(rows), np.arange(40_000), 5, [judged], threads=3)
    assert (caught.value.query, caught.value.row) == (None, 150)
    with pytest.raises(NotFiniteError, match="query 1: the score"):
        exact_search(np.array([[1.0] * 4, [value] * 4]), Matrix(rows[:9]), np.arange(9), 5, [[], []])


@pytest.mark.parametrize("judged", [[], [7]])
def test_products_that_overflow_are_named(judged: list[int]):
    rows = np.ones((20, 4), np.float32)
    rows[7] = 3e38
    queries = np.zeros((80, 4), np.float32)
    queries[75] = 2
    with pytest.raises(NotFiniteError, match="query 75, gallery row 7"):
        exact_search(queries, Matrix(rows), np.arange(20), 5, [judged] * 80)
