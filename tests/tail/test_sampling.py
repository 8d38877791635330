"""Drawing the sample and collecting scores from descriptor blocks."""

import numpy as np
import pytest

from cairn.errors import InputError
from cairn.tail.sampling import sample_rows, sampled_scores, top_scores


def unit(rng, *shape):
    vectors = rng.normal(size=shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_sample_is_seeded_uniform_and_without_repeats():
    rows = sample_rows(1000, 200, 5)
    assert len(np.unique(rows)) == 200 and (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, sample_rows(1000, 200, 5))
    assert (rows != sample_rows(1000, 200, 6)).any()
    hits = np.zeros(50)
    for seed in range(400):
        hits[sample_rows(50, 10, seed)] += 1
    assert abs(hits - 80).max() < 5 * np.sqrt(400 * 0.2 * 0.8)
    for size in (0, 51):
        with pytest.raises(InputError, match="cannot be drawn"):
            sample_rows(50, size, 0)


@pytest.mark.parametrize("block", [1, 17, 300])
def test_top_scores_do_not_depend_on_blocks(block):
    rng = np.random.default_rng(0)
    queries, pool = unit(rng, 5, 16), unit(rng, 300, 16).astype(np.float16)
    blocks = [pool[i : i + block] for i in range(0, 300, block)]
    rows = sample_rows(300, 120, 1)
    expected = -np.sort(-(queries @ pool[rows].astype(np.float32).T), axis=1)[:, :40]
    np.testing.assert_allclose(top_scores(queries, iter(blocks), rows, 40), expected, atol=1e-6)
    whole = top_scores(queries, iter(blocks), None, 1000)
    assert whole.shape == (5, 300)


def test_scores_of_positives_are_of_the_same_kind():
    rng = np.random.default_rng(1)
    queries, pool = unit(rng, 4, 8), unit(rng, 200, 8)
    rows = sample_rows(200, 100, 0)
    pos_q = np.array([0, 1, 2, 3])
    # A positive that is a copy of a sampled distractor ties with it, and the tie counts.
    scores = sampled_scores(queries, [pool], rows, pos_q, pool[rows[:4]], keep=100)
    assert scores.sample_size == 100 and (scores.counts >= 1).all()


def test_errors():
    with pytest.raises(InputError, match="dimensions"):
        top_scores(np.zeros((2, 4)), [np.zeros((3, 5))])
    with pytest.raises(InputError, match="the pool has 3"):
        top_scores(np.zeros((2, 4)), [np.zeros((3, 4))], np.array([7]))
