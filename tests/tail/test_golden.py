"""The reference cases beside the checkout, to the tolerances of their README."""

import json

import numpy as np
import pytest

from cairn.tail import baselines, gpd, hardness
from cairn.tail.intervals import query_interval
from cairn.tail.law import expected_precision
from cairn.tail.scores import sample_scores

WORLDS = ("gauss", "bounded", "gld", "vec", "vec_fp16")


@pytest.fixture(scope="module")
def golden(shared):
    folder = shared / "golden" / "tail"
    return {path.stem: np.load(path) for path in folder.glob("*.npz")}


def load(world):
    scores = sample_scores(world["top"], world["pos_q"], world["pos_s"], int(world["S"]))
    k = hardness.exceedance_count(int(world["T"]), float(world["q"]))
    return scores, k, hardness.fit_tail(scores.top, k)


def test_law(golden):
    law = golden["law"]
    for gallery in np.unique(law["N"]):
        for cutoff in np.unique(law["K"]):
            rows = (law["N"] == gallery) & (law["K"] == cutoff)
            got = expected_precision(law["x"][rows], law["i"][rows], gallery, cutoff)
            np.testing.assert_allclose(got, law["expected"][rows], atol=1e-9, rtol=0)


def test_fits(golden):
    fit = golden["fit"]
    for name, got in {
        "mle": gpd.fit_likelihood(fit["Y"], cap=None),
        "cap": gpd.fit_likelihood(fit["Y"], cap=0.0),
    }.items():
        np.testing.assert_allclose(got.shape, fit[f"{name}_xi"], atol=1e-5, rtol=0)
        np.testing.assert_allclose(got.scale, fit[f"{name}_sigma"], rtol=1e-5)
        np.testing.assert_array_equal(got.heavy, fit["wants_pos"])
    for name, got in {"pwm": gpd.fit_moments(fit["Y"]), "zs": gpd.fit_quasi_bayes(fit["Y"])}.items():
        np.testing.assert_allclose(got.shape, fit[f"{name}_xi"], atol=1e-6, rtol=0)
        np.testing.assert_allclose(got.scale, fit[f"{name}_sigma"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", WORLDS)
def test_tail_of_a_world(golden, name):
    world = golden[name]
    scores, k, tail = load(world)
    ok = world["fit_ok"]
    np.testing.assert_array_equal(scores.counts, world["ref_c"])
    np.testing.assert_array_equal(scores.index, world["pos_i"])
    assert k == int(world["ref_k"])
    np.testing.assert_allclose(tail.threshold, world["ref_u"], atol=1e-7, rtol=0)
    np.testing.assert_array_equal(tail.heavy, world["ref_wants_pos"])
    np.testing.assert_allclose(tail.shape[ok], world["ref_xi"][ok], atol=1e-5, rtol=0)
    np.testing.assert_allclose(tail.scale[ok], world["ref_sigma"][ok], rtol=1e-5)
    free = hardness.fit_tail(scores.top, k, cap=None)
    np.testing.assert_allclose(free.shape[ok], world["ref_xi_uncon"][ok], atol=1e-5, rtol=0)
    np.testing.assert_allclose(free.scale[ok], world["ref_sigma_uncon"][ok], rtol=1e-5)
    bounded = ok & (world["ref_xi"] < -0.005)
    np.testing.assert_allclose(tail.endpoint[bounded], world["ref_endpoint"][bounded], rtol=1e-3)
    np.testing.assert_array_equal(np.isinf(tail.endpoint), np.isinf(world["ref_endpoint"]))
    edge = np.abs(scores.score - tail.endpoint[scores.query]) < 1e-6 * tail.scale[scores.query]
    for resolved, reference in ((1, "ref_x"), (1 << 60, "ref_x_evt_only")):
        x, expected = hardness.evt_hardness(scores, tail, resolved), world[reference]
        rows = ok[scores.query] & (expected > 1e-14)
        np.testing.assert_allclose(x[rows], expected[rows], rtol=1e-3)
        rows = ok[scores.query] & ~edge
        np.testing.assert_array_equal((x == 0)[rows], (expected == 0)[rows])


@pytest.mark.parametrize("name", WORLDS)
def test_metric_of_a_world(golden, name):
    world = golden[name]
    scores, _, tail = load(world)
    gallery, cutoff, ok = int(world["N"]), int(world["K"]), world["fit_ok"]
    x = hardness.evt_hardness(scores, tail)
    got = {
        "evt": baselines.per_query(scores, x, gallery, cutoff),
        "count": baselines.count(scores, gallery, cutoff),
        "naive": baselines.naive(scores, cutoff),
    }
    np.testing.assert_allclose(got["naive"], world["ref_ap_naive"], atol=1e-9, rtol=0)
    np.testing.assert_allclose(got["count"], world["ref_ap_count"], atol=1e-9, rtol=0)
    np.testing.assert_allclose(got["evt"][ok], world["ref_ap_evt"][ok], atol=1e-5, rtol=0)
    reference = json.loads(str(world["ref_map"]))
    for key, values in got.items():
        assert values.mean() == pytest.approx(reference[key], abs=1e-5)
    curve = baselines.sample_curve(scores, cutoff)
    np.testing.assert_array_equal(curve.sizes, world["ref_curve_n"])
    np.testing.assert_allclose(curve.values, world["ref_curve"], atol=1e-5, rtol=0)
    for key, value in baselines.extrapolate(curve, gallery, cutoff).items():
        assert value == pytest.approx(reference[key], abs=3e-3 if key == "log-uniform" else 1e-4)
    for size, expected in zip(world["ref_law_n"], world["ref_law_map"], strict=True):
        assert baselines.per_query(scores, x, size, cutoff).mean() == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(query_interval(got["evt"]), world["ref_ci95"], atol=0.003, rtol=0)
    truth = float(world["full_map"])
    means = {key: values.mean() for key, values in got.items()}
    assert means["naive"] > truth and means["count"] > truth
    assert abs(means["evt"] - truth) <= min(0.05, abs(means["naive"] - truth))
