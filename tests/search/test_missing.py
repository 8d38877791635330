"""Images without a descriptor rank last, whatever the others score; all else is as exact search has it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.search.exact import exact_search
from cairn.search.missing import LEAST, search_with_missing
from tests.search.test_exact import Matrix, whole_numbers


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(2, 200),
    absent=st.integers(1, 20),
    top=st.integers(0, 210),
    seed=st.integers(0, 1 << 30),
)
def test_missing_images_come_behind_a_full_sort_of_the_others(count: int, absent: int, top: int, seed: int):
    generator = np.random.default_rng(seed)
    rows, queries = whole_numbers(generator, count, 4), whole_numbers(generator, 5, 4)
    missing = generator.permutation(count)[: min(absent, count - 1)]
    rows[missing] = 0
    manifest_rows = generator.permutation(count)
    judged = [generator.permutation(count)[: generator.integers(0, 9)] for _ in queries]
    found = search_with_missing(queries, Matrix(rows), manifest_rows, top, judged, missing, threads=2)
    present = np.setdiff1d(np.arange(count), missing)
    for query, one, wanted in zip(queries, found, judged, strict=True):
        scores = rows.astype(np.float64) @ query.astype(np.float64)
        seen = present[np.lexsort((manifest_rows[present], -scores[present]))]
        order = np.concatenate([seen, missing[np.argsort(manifest_rows[missing])]])
        assert one.rows.tolist() == manifest_rows[order][:top].tolist()
        assert one.judged_ranks.tolist() == [order.tolist().index(row) for row in wanted]
        real = np.isin(order[:top], present)
        assert one.scores[real].tolist() == scores[order[:top]][real].tolist()
        assert (np.diff(one.scores) <= 0).all() and (one.scores[~real] <= LEAST).all()
        gone = np.isin(wanted, missing)
        assert one.judged_scores[~gone].tolist() == scores[wanted][~gone].tolist()
        both = np.concatenate([one.scores[real], one.judged_scores[~gone]])
        assert (one.judged_scores[gone] <= min(both, default=0)).all()


@pytest.mark.parametrize("top", [3, 30])
def test_without_a_missing_image_it_is_exact_search(top: int):
    generator = np.random.default_rng(0)
    gallery, queries = Matrix(whole_numbers(generator, 30, 4)), whole_numbers(generator, 3, 4)
    judged = [np.array([4, 9]), np.zeros(0, np.int64), np.array([0])]
    plain = exact_search(queries, gallery, np.arange(30), top, judged)
    for one, other in zip(
        plain,
        search_with_missing(queries, gallery, np.arange(30), top, judged, np.zeros(0, np.int64)),
        strict=True,
    ):
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in vars(one))
