"""The bench's synthetic pools: their exact metric must be exact, or the bench measures nothing."""

import numpy as np
import pytest

from bench.tail_worlds import HELD_OUT, TUNING, ClusteredPool, proxy_world, world


@pytest.mark.parametrize("shape", HELD_OUT + TUNING)
def test_realised_metric_scatters_around_its_law(shape):
    here = world(shape, 1, gallery=10**6, fraction=0.05, queries=150, kept=400, cutoff=100)
    assert here.full == pytest.approx(here.law, abs=0.05)
    assert (here.counts >= here.scores.counts).all()
    # Within the kept list, what is counted in the sample fits the truth it was drawn from.
    seen = (here.scores.counts > 30) & (here.scores.counts < 300)
    ratio = here.scores.counts[seen].sum() / (here.x[seen].sum() * here.scores.sample_size)
    assert ratio == pytest.approx(1, abs=0.1)


def test_clustered_pool_is_sampled_from_itself():
    pool = ClusteredPool(1, 200_000, 20, 30_000)
    here = pool.draw(1, 0.05, kept=400)
    assert here.scores.top.shape == (20, 400)
    assert (np.diff(here.scores.top, axis=1) <= 0).all()
    assert np.isin(here.scores.top[0], pool.best[0]).all()
    seen = (here.scores.counts > 20) & (here.scores.counts < 400)
    assert here.scores.counts[seen].sum() / here.counts[seen].sum() == pytest.approx(0.05, rel=0.15)
    other = pool.draw(2, 0.05, kept=400)
    assert other.full == here.full and not np.array_equal(other.scores.top, here.scores.top)


def test_a_perfect_proxy_leaves_nothing_near_the_top():
    here, hard = proxy_world(1, 0.05, 0.9999999, queries=20)
    assert (here.scores.top[:, 0] <= hard.min(axis=1, where=hard > -49, initial=99) + 0.01).all()
