"""Ranks by counting equal the places in a stable sort, ties and exact duplicates included."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cairn.metrics.ranks import ranks_by_counting, ranks_in_order


@given(
    st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.25, 0.5, 3.0]), min_size=1, max_size=30),
    st.data(),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_as_a_stable_sort(values, data, kind):
    scores = np.array(values, kind)
    images = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), unique=True)), int)
    order = np.argsort(-scores, kind="stable")
    place = np.empty(len(scores), int)
    place[order] = np.arange(len(scores))
    assert ranks_by_counting(scores, images).tolist() == place[images].tolist()
    images = np.sort(images)
    assert ranks_in_order(order, images).tolist() == place[images].tolist()
    cut = ranks_in_order(order[:3], images)
    assert cut.tolist() == [rank if rank < 3 else -1 for rank in place[images]]


def test_integers_and_a_long_row():
    generator = np.random.default_rng(0)
    scores = generator.integers(1000, size=50_000)
    images = np.sort(generator.choice(50_000, 300, replace=False))
    place = np.empty(50_000, int)
    place[np.argsort(-scores, kind="stable")] = np.arange(50_000)
    assert np.array_equal(ranks_by_counting(scores, images), place[images])


def test_a_long_row_of_which_some_scores_tie():
    generator = np.random.default_rng(1)
    scores = generator.standard_normal(20_000).astype(np.float32)
    scores[::3] = np.round(scores[::3], 2)
    images = generator.choice(20_000, 200, replace=False)
    place = np.empty(20_000, int)
    place[np.argsort(-scores, kind="stable")] = np.arange(20_000)
    assert np.array_equal(ranks_by_counting(scores, images), place[images])
