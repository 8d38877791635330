"""The bootstrap interval: its draws, its width, and values that are left out."""

import numpy as np
import pytest

from cairn.metrics.interval import RESAMPLES, draw_counts, mean_interval, percentiles, resampled_sums


@pytest.mark.parametrize("n", [2, 70, 5000])
def test_every_resample_draws_n(n):
    counts = draw_counts(n, 0)
    assert counts.shape == (RESAMPLES, n)
    assert (counts.sum(axis=1, dtype=int) == n).all()
    assert counts.mean() == pytest.approx(1)
    values = np.random.default_rng(1).random(n)
    np.testing.assert_allclose(resampled_sums(values, 0), counts.astype(float) @ values)


def test_width_is_that_of_the_normal_interval():
    values = np.random.default_rng(0).random(400)
    low, high = mean_interval(values, 5)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.2 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.2 * half)


def test_left_out_values_are_not_drawn():
    values = np.array([0.2, 0.4, 0.9, 0.1])
    holes = np.array([0.2, np.nan, 0.4, 0.9, np.nan, 0.1])
    assert mean_interval(values, 3) == mean_interval(holes, 3)
    assert mean_interval(values, 3) != mean_interval(values, 4)


@pytest.mark.parametrize("values", [[], [0.5], [np.nan, np.nan], [0.5, np.nan]])
def test_fewer_than_two_values_have_no_interval(values):
    assert mean_interval(np.array(values, float), 0) == (None, None)
    assert percentiles(np.full(3, np.nan)) == (None, None)
