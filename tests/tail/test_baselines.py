"""The paper's rule and the baselines against a plain loop, with no reference data."""

import numpy as np
import pytest
from scipy import stats
from small import exponential_world

from cairn.tail import baselines, hardness


@pytest.fixture(scope="module")
def world():
    return exponential_world(3, queries=60)


def test_hardness_follows_the_rule_positive_by_positive(world):
    scores = world[0]
    tail = hardness.fit_tail(scores.top, 30)
    got = hardness.evt_hardness(scores, tail)
    seen = {"counted": 0, "tail": 0, "immune": 0}
    for p, (query, score) in enumerate(zip(scores.query, scores.score, strict=True)):
        row = scores.top[query].astype(float)
        count = int((row >= score).sum())
        threshold = np.sort(row)[::-1][30]
        if count >= 1 or score <= threshold:
            expected, kind = count / scores.sample_size, "counted"
        else:
            sf = stats.genpareto.sf(score - threshold, tail.shape[query], 0, tail.scale[query])
            expected, kind = 30 / scores.sample_size * sf, "tail" if sf > 0 else "immune"
        seen[kind] += 1
        assert got[p] == pytest.approx(expected, rel=1e-6, abs=1e-18)
        assert scores.counts[p] == count
    assert min(seen.values()) > 0
    assert (tail.shape <= 0).all()
    np.testing.assert_allclose(tail.endpoint[tail.shape == 0], np.inf)


def test_naive_is_average_precision_on_the_sample(world):
    scores, _, cutoff, _ = world
    got = baselines.naive(scores, cutoff)
    for query in range(len(scores.top)):
        ranks = scores.index[scores.query == query] + scores.counts[scores.query == query]
        value = sum(i / r for i, r in enumerate(sorted(ranks), 1) if r <= cutoff)
        assert got[query] == pytest.approx(value / min(cutoff, len(ranks)))


def test_count_and_curve_agree_at_the_sample(world):
    scores, gallery, cutoff, _ = world
    curve = baselines.sample_curve(scores, cutoff)
    assert curve.sizes[0] == scores.sample_size // 100 and curve.sizes[-1] == scores.sample_size
    assert curve.values[-1] == pytest.approx(baselines.count(scores, scores.sample_size, cutoff).mean())
    assert (np.diff(curve.values) < 0).all()
    assert baselines.count(scores, gallery, cutoff).mean() < curve.values[-1]


def test_curves_recover_what_they_model():
    sizes = np.unique(np.geomspace(1e4, 1e6, 12).round().astype(np.int64))
    lines = {
        "log-linear": 0.9 - 0.04 * np.log(sizes),
        "log-quadratic": 0.9 - 0.04 * np.log(sizes) + 0.0005 * np.log(sizes) ** 2,
        "power-law": 2 * sizes**-0.1,
    }
    wanted = {
        "log-linear": 0.9 - 0.04 * np.log(2e7),
        "log-quadratic": 0.9 - 0.04 * np.log(2e7) + 0.0005 * np.log(2e7) ** 2,
        "power-law": 2 * 2e7**-0.1,
    }
    for name, values in lines.items():
        got = baselines.extrapolate(baselines.Curve(sizes, values), 2e7, 1000)[name]
        assert got == pytest.approx(wanted[name], abs=1e-9)


def test_log_uniform_recovers_a_log_uniform_population():
    rng = np.random.default_rng(0)
    log_x = rng.uniform(np.log(1e-9), np.log(1e-2), 200_000)
    one = np.ones(len(log_x), np.int64)
    sizes = np.unique(np.geomspace(1e4, 1e6, 12).round().astype(np.int64))
    law = [baselines.expected_precision(np.exp(log_x), one, n, 100).mean() for n in sizes]
    curve = baselines.Curve(sizes, np.array(law))
    truth = baselines.expected_precision(np.exp(log_x), one, 2e7, 100).mean()
    assert baselines.extrapolate(curve, 2e7, 100)["log-uniform"] == pytest.approx(truth, abs=0.003)
