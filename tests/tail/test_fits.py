"""The batched fits against SciPy and against known parameters, with no reference data."""

import numpy as np
import pytest
from scipy import stats

from cairn.errors import InputError
from cairn.tail import gpd, hardness
from cairn.tail.posterior import SHAPES, default_exceedances, fit_posterior


def exceedances(shape, rows=6, k=300, seed=0, scale=0.05):
    rng = np.random.default_rng(seed)
    y = stats.genpareto.rvs(shape, scale=scale, size=(rows, k), random_state=rng)
    return -np.sort(-y, axis=1)


@pytest.mark.parametrize("shape", [-0.5, -0.2, -0.05, 0.1, 0.4])
def test_maximum_likelihood_is_scipys(shape):
    y = exceedances(shape)
    got = gpd.fit_likelihood(y, cap=None)
    for row, xi, sigma in zip(y, got.shape, got.scale, strict=True):
        theirs = stats.genpareto.fit(row, floc=0)
        ours = stats.genpareto.logpdf(row, xi, 0, sigma).sum()
        best = stats.genpareto.logpdf(row, theirs[0], 0, theirs[2]).sum()
        assert ours >= best - 1e-4
        # The score vanishes at a maximum.
        for step in (1e-4, -1e-4):
            assert stats.genpareto.logpdf(row, xi + step, 0, sigma).sum() <= ours + 1e-6
    np.testing.assert_array_equal(got.heavy, (y**2).mean(1) > 2 * y.mean(1) ** 2)


def test_scores_near_the_exponential_do_not_cancel():
    # Exceedances whose second moment is 2 to within 1e-9: the maximum is at a shape of about 1e-9.
    y = exceedances(0.0, rows=1, k=400)
    for _ in range(200):
        z = y / y.mean()
        y = z ** (1 + 0.2 * (2 - (z**2).mean()))
    got = gpd.fit_likelihood(y, cap=None)
    assert abs(got.shape[0]) < 1e-5
    assert got.scale[0] == pytest.approx(y.mean(), rel=1e-5)


def test_cap_makes_heavy_rows_exponential():
    y = exceedances(0.4)
    got = gpd.fit_likelihood(y)
    assert got.heavy.all()
    np.testing.assert_array_equal(got.shape, 0)
    np.testing.assert_allclose(got.scale, y.mean(axis=1))


@pytest.mark.parametrize("fit", [gpd.fit_moments, gpd.fit_quasi_bayes])
def test_other_fits_find_the_shape(fit):
    got = fit(exceedances(-0.2, rows=40, k=1000))
    assert np.median(got.shape) == pytest.approx(-0.2, abs=0.03)
    assert np.median(got.scale) == pytest.approx(0.05, rel=0.05)


def test_rows_do_not_influence_each_other_and_threads_do_not_matter():
    import numba

    y = exceedances(-0.1, rows=9)
    together = gpd.fit_likelihood(y)
    for row in range(9):
        assert gpd.fit_likelihood(y[row : row + 1]).shape[0] == together.shape[row]
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        alone = gpd.fit_likelihood(y)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(alone.shape, together.shape)


def test_scale_for_a_given_shape():
    y = exceedances(-0.2)
    got = gpd.fit_scale(y, np.full(6, -0.2))
    for row, sigma in zip(y, got, strict=True):
        here = stats.genpareto.logpdf(row, -0.2, 0, sigma).sum()
        for factor in (0.999, 1.001):
            assert stats.genpareto.logpdf(row, -0.2, 0, sigma * factor).sum() <= here
    likelihood, scale = gpd.profile(y, np.array([-0.2, 0.0]))
    np.testing.assert_allclose(scale[:, 0], got, rtol=1e-9)
    np.testing.assert_allclose(scale[:, 1], y.mean(axis=1), rtol=1e-9)
    best = [
        stats.genpareto.logpdf(r, -0.2, 0, s).sum() + len(r) * np.log(r.mean())
        for r, s in zip(y, got, strict=True)
    ]
    np.testing.assert_allclose(likelihood[:, 0], best, rtol=1e-9)


def test_survival_is_scipys_and_ends():
    y = np.linspace(0, 1, 7)
    for shape in (-0.3, 0.0, 0.2):
        got = gpd.log_survival(y, np.full(7, shape), np.full(7, 0.25))
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(np.exp(got), stats.genpareto.sf(y, shape, 0, 0.25), atol=1e-12)


def test_exceedance_count():
    assert hardness.exceedance_count(4000, 0.95) == 200
    assert hardness.exceedance_count(1000, 0.95) == 50
    for kept, quantile in ((50, 0.95), (100, 1.5), (10, 0.01)):
        with pytest.raises(InputError):
            hardness.exceedance_count(kept, quantile)


def test_rows_whose_best_scores_tie_have_no_tail():
    top = np.tile(np.linspace(1, 0, 100, dtype=np.float32), (3, 1))
    top[1, :30] = top[1, 0]
    tail = hardness.fit_tail(top, 20)
    assert tail.usable.tolist() == [True, False, True]
    assert np.isfinite(tail.shape).all()


def test_unknown_fit_is_named():
    with pytest.raises(InputError, match="likelihood, moments, quasi-bayes"):
        hardness.fit_tail(np.linspace(1, 0, 100)[None], 20, fit="magic")


@pytest.mark.parametrize("shape", [-0.2, 0.0, 0.15])
def test_posterior_finds_the_shared_shape(shape):
    y = exceedances(shape, rows=200, k=101, seed=4)
    tail = fit_posterior(y.astype(np.float64), 100)
    assert tail.shape_mean == pytest.approx(shape, abs=0.03)
    assert tail.shape_spread < 0.06
    np.testing.assert_allclose(tail.weight.sum(axis=(1, 2)), 1)
    assert tail.weight.shape[1] == len(SHAPES)
    assert tail.lump_share < 0.01 and not tail.lump_size.any()


def test_posterior_sets_a_lump_aside():
    y = exceedances(0.0, rows=100, k=140, seed=5)
    clean = fit_posterior(y, 120)
    lump = y[:20, :1] + 0.2 + np.linspace(0.002, 0, 7)
    crowded = y.copy()
    crowded[:20] = np.concatenate([lump, y[:20, :-7]], axis=1)
    tail = fit_posterior(crowded, 120)
    assert (tail.lump_size[:20] > 0).mean() > 0.9
    assert (tail.lump_size[20:] > 0).mean() < 0.05
    kept_in = np.mean(gpd.fit_likelihood(crowded[:, :120] - crowded[:, 120:121], cap=None).shape)
    assert kept_in > clean.shape_mean + 0.04
    assert tail.shape_mean == pytest.approx(clean.shape_mean, abs=0.02)


def test_default_exceedances():
    assert [default_exceedances(t) for t in (4000, 1000, 100, 15)] == [250, 62, 20, 14]


def test_the_free_fit_reaches_the_maximum_where_the_tail_has_no_mean():
    """Cauchy and heavier: the sample's mean is many times sigma, so t = xi*mean/sigma is far from 1."""
    rng = np.random.default_rng(4)
    for shape in (1.0, 1.6):
        values = rng.random((40, 60)) ** -shape - 1
        fit = gpd.fit_likelihood(values, cap=None)
        z = values / values.mean(axis=1, keepdims=True)
        t = np.geomspace(1e-3, 1e5, 4000)
        xi = np.log1p(t[:, None, None] * z).mean(axis=2)
        best = (-np.log(xi / t[:, None]) - 1 - xi).max(axis=0)
        scaled = fit.scale / values.mean(axis=1)
        got = -np.log(scaled) - (1 + 1 / fit.shape) * np.log1p((fit.shape / scaled)[:, None] * z).mean(axis=1)
        assert (got >= best - 1e-9).all()
