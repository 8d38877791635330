"""The whole estimate on small worlds: accuracy, intervals, diagnostics, warnings, determinism."""

import json

import numpy as np
import pytest
from scipy.special import ndtr
from small import exponential_world

from cairn.errors import InputError, UsageError
from cairn.tail import baselines
from cairn.tail.calibration import calibrate, mean_variance, split
from cairn.tail.diagnostics import homogeneous, near_duplicates
from cairn.tail.estimate import (
    ESTIMATORS,
    _shift_mean,
    default_curve,
    estimate_arrays,
    estimate_tail,
    parse_metric,
)
from cairn.tail.hard_mined import hard_mined
from cairn.tail.hardness import fit_tail
from cairn.tail.intervals import fixed_interval, nested_interval, quantile_beside, query_interval
from cairn.tail.law import average_precision, realised_precision
from cairn.tail.posterior import CLUSTERED, choose_posterior, fit_posterior, predict
from cairn.tail.scores import sample_scores


@pytest.fixture(scope="module")
def world():
    return exponential_world(1)


@pytest.fixture(scope="module")
def result(world):
    scores, gallery, cutoff, _ = world
    return estimate_tail(scores, gallery, cutoff)


def test_default_is_near_the_truth_and_others_are_not(world, result):
    truth = world[3]
    error = {name: abs(value - truth) for name, value in result.estimates.items()}
    assert set(result.estimates) == set(ESTIMATORS)
    # 150 queries: the metric itself has a standard deviation of about 0.015 around its law.
    assert error["default"] < 0.03
    assert error["default"] < error["count"] < error["naive"]
    low, high = result.ci95["fixed_queries"]
    assert low <= truth <= high and high - low < 0.15
    wide = result.ci95["new_queries"]
    assert wide[1] - wide[0] > high - low
    assert abs(result.model_bias) < 0.05


def test_record_is_json_and_repeats_exactly(world, result):
    scores, gallery, cutoff, _ = world
    record = result.record(per_query=True)
    assert list(record) == ["estimates", "ci95", "model_bias", "diagnostics", "warnings", "per_query"]
    assert len(record["per_query"]["default"]) == len(scores.top)
    assert np.mean(record["per_query"]["default"]) == pytest.approx(record["estimates"]["default"])
    text = json.dumps(record, allow_nan=False, sort_keys=True)
    again = estimate_arrays(scores.top, scores.query, scores.score, scores.sample_size, gallery, cutoff)
    assert json.dumps(again.record(per_query=True), allow_nan=False, sort_keys=True) == text


def test_at_the_sample_itself_everything_is_known(world):
    scores, _, cutoff, _ = world
    got = estimate_tail(scores, scores.sample_size, cutoff, estimators=("default", "naive"))
    assert got.estimates["default"] == pytest.approx(got.estimates["naive"], abs=1e-12)
    assert got.model_bias is None
    low, high = got.ci95["fixed_queries"]
    assert high - low < 1e-6


def test_estimates_do_not_depend_on_score_units(world, result):
    scores, gallery, cutoff, _ = world
    other = sample_scores(
        scores.top.astype(float) * 250 - 7, scores.query, scores.score * 250 - 7, scores.sample_size
    )
    got = estimate_tail(other, gallery, cutoff, estimators=("default", "evt"))
    assert got.estimates["evt"] == pytest.approx(result.estimates["evt"], abs=1e-7)
    assert got.estimates["default"] == pytest.approx(result.estimates["default"], abs=1e-4)


def test_bad_arguments(world):
    scores, gallery, cutoff, _ = world
    with pytest.raises(UsageError, match="no estimator is called 'magic'"):
        estimate_tail(scores, gallery, cutoff, estimators=("magic",))
    with pytest.raises(InputError, match="larger than the gallery"):
        estimate_tail(scores, 10, cutoff)
    short = sample_scores(scores.top[:, :40], scores.query, scores.score, scores.sample_size)
    with pytest.raises(InputError, match="keep more scores per query"):
        estimate_tail(short, gallery, cutoff)
    assert parse_metric("mAP@100") == 100
    for text in ("recall@5", "map", "map@0", "map@-1", "map@1e3"):
        with pytest.raises(UsageError, match="map@K"):
            parse_metric(text)


def test_warnings_for_short_lists_and_quantised_scores(world):
    scores, gallery, cutoff, _ = world
    coarse = np.round(scores.top * 4) / 4
    short = sample_scores(coarse[:, :120], scores.query, scores.score, scores.sample_size)
    got = estimate_tail(short, gallery, 1000 * cutoff, estimators=("default",), keep_quantile=0.9)
    text = " ".join(got.warnings)
    for part in ("look quantised", "kept lists end early", "too few kept scores for self-calibration"):
        assert part in text, got.warnings
    assert got.model_bias is None
    assert 0 <= got.estimates["default"] <= 1


def test_queries_without_a_tail_are_counted(world):
    scores, gallery, cutoff, _ = world
    top = scores.top.copy()
    top[3] = top[3, 0]
    tied = sample_scores(top, scores.query, scores.score, scores.sample_size)
    got = estimate_tail(tied, gallery, cutoff, estimators=("default", "count"))
    assert any("have no tail" in w for w in got.warnings)
    assert got.per_query["default"][3] == pytest.approx(got.per_query["count"][3], abs=1e-3)


def test_sub_samples_are_disjoint_and_cover_the_sample():
    top = -np.sort(-np.random.default_rng(0).random((7, 400)).astype(np.float32), axis=1)
    parts = split(top, 5, 5, 3)
    assert (np.diff(parts, axis=2) <= 0).all()
    for row in range(7):
        values = parts[:, row].ravel()
        assert len(np.unique(values)) == len(values)
        assert np.isin(values, top[row]).all()
        # The best score of all is the best of exactly one part.
        assert (parts[:, row, 0] == top[row, 0]).sum() == 1


def test_calibration_knows_the_answer_it_is_held_against(world):
    scores, gallery, cutoff, _ = world
    got = calibrate(scores, gallery, cutoff, (60,), redraws=4)
    assert got.draws.shape == (4, len(scores.top))
    truth = baselines.naive(scores, cutoff).mean()
    assert got.bias == pytest.approx(got.draws.mean() - truth)
    assert abs(got.bias) < 4 * got.bias_error + 0.01
    assert got.parts == 20


def test_a_mean_over_thresholds_is_calibrated_as_that_mean(world):
    scores, gallery, cutoff, _ = world
    sizes = (12, 10, 8)
    got = calibrate(scores, gallery, cutoff, sizes, redraws=3)
    each = [calibrate(scores, gallery, cutoff, (k,), redraws=3) for k in sizes]
    assert got.exceedances == sizes
    np.testing.assert_allclose(got.draws, np.mean([one.draws for one in each], axis=0), rtol=1e-12)
    assert got.spread < max(one.spread for one in each)
    # 600 kept scores leave lists of fewer than 30: larger numbers become three quarters of the shortest.
    capped = calibrate(scores, gallery, cutoff, (60, 40, 10), redraws=3)
    most = capped.exceedances[0]
    assert capped.exceedances == (most, most, 10) and 10 < most < 30


def test_interval_counts_the_error_of_sample_and_fit_once(world, result):
    scores, gallery, cutoff, _ = world
    choice = choose_posterior(scores, gallery, cutoff)
    known = calibrate(scores, gallery, cutoff, [tail.exceedances for tail in choice.tails])
    variance = mean_variance(scores, choice.prediction.variance, cutoff)
    assert abs(known.bias) < 0.015 and result.diagnostics["calibration"]["correction"] == 0
    deviation = np.sqrt(max(variance, known.spread**2) + choice.disagreement**2)
    low, high = fixed_interval(result.estimates["default"], deviation, known.bias)
    np.testing.assert_allclose(result.ci95["fixed_queries"], [low, high], atol=1e-12)


def test_near_duplicates_are_found_only_where_they_are(world):
    scores, _, _, _ = world
    clean = near_duplicates(scores, fit_tail(scores.top, 30))
    assert not clean["detected"]
    copied = scores.top.copy()
    chosen = np.flatnonzero((scores.index == 1) & (scores.counts < 5))[::3]
    for p in chosen:
        row = copied[scores.query[p]]
        row[-1] = scores.score[p] * (1 + 1e-6)
        copied[scores.query[p]] = -np.sort(-row)
    dirty = sample_scores(copied, scores.query, scores.score, scores.sample_size)
    found = near_duplicates(dirty, fit_tail(copied, 30))
    assert found["detected"] and found["found"] >= len(chosen)
    assert any("near-duplicates" in w for w in estimate_tail(dirty, 10**6, 100).warnings)


def test_homogeneous_curve_matches_at_the_sample(world):
    scores, gallery, cutoff, _ = world
    got = homogeneous(scores, gallery, cutoff)
    x = np.full(len(scores.score), got["x"])
    assert baselines.per_query(scores, x, scores.sample_size, cutoff).mean() == pytest.approx(
        got["at_sample"], abs=1e-6
    )
    assert got["at_gallery"] < got["at_sample"]


def test_cluster_sensitivity_rises_with_cluster_size(result):
    sizes = result.diagnostics["cluster_size"]
    assert sizes["2"] < sizes["5"] < sizes["10"]


def test_hard_mining_with_a_perfect_proxy_is_exact():
    rng = np.random.default_rng(2)
    pool = -np.sort(-rng.random((20, 5000)), axis=1)
    hard, rest = pool[:, :500], pool[:, 500:]
    kept = rest[:, ::10]
    pos_q = np.repeat(np.arange(20), 2)
    pos_s = rng.uniform(0.93, 1.0, 40)
    scores = sample_scores(kept, pos_q, pos_s, kept.shape[1])
    got = hard_mined(hard[:, ::-1], scores, 5000, 300)
    ahead = np.array([(pool[q] >= s).sum() for q, s in zip(scores.query, scores.score, strict=True)])
    exact = np.bincount(scores.query, realised_precision(ahead, scores.index, 300)) / 2
    np.testing.assert_allclose(got, exact, atol=1e-12)
    for bad, message in ((hard[:5], "20 queries"), (np.full((20, 3), np.nan), "not finite")):
        with pytest.raises(InputError, match=message):
            hard_mined(bad, scores, 5000, 300)
    with pytest.raises(InputError, match="distractors left"):
        hard_mined(hard, scores, 600, 300)


def test_intervals():
    rng = np.random.default_rng(0)
    values = rng.random(400)
    low, high = query_interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.05)
    nested = nested_interval(values, np.empty((0, 400)), 0.0, 0.0)
    np.testing.assert_allclose(nested, [low, high], atol=2e-3)
    shifted = nested_interval(values, rng.normal(0, 0.1, (8, 1)) + np.zeros((8, 400)), 0.0, 0.01)
    assert shifted[1] - shifted[0] > nested[1] - nested[0] + 0.02
    np.testing.assert_allclose(fixed_interval(0.5, 0.1, 0.02), [0.5 - 0.2, 0.5 + 0.2], atol=1e-3)
    assert fixed_interval(0.01, 0.1, 0)[0] == 0.0


@pytest.mark.parametrize("bias", [0.0, 1e-9, 0.01, 0.1, 0.3, 40.0])
def test_interval_covers_at_its_level_where_the_bias_is_at_its_bound(bias):
    half = bias + quantile_beside(-bias, 0.1) * 0.1
    assert ndtr((half - bias) / 0.1) - ndtr((-half - bias) / 0.1) == pytest.approx(0.95, abs=1e-6)
    assert 1.64 < quantile_beside(bias, 0.1) < 1.96
    inner = bias / 2  # a smaller bias than the bound is covered more often
    assert ndtr((half - inner) / 0.1) - ndtr((-half - inner) / 0.1) >= 0.95 - 1e-6


def test_interval_of_a_certain_estimate_is_its_bias():
    np.testing.assert_allclose(fixed_interval(0.5, 0.0, 0.02), [0.48, 0.52])
    np.testing.assert_allclose(fixed_interval(0.5, 0.0, 0.0), [0.5, 0.5])


def test_shift_of_the_mean_keeps_certain_queries():
    values = np.array([0.0, 1.0, 0.5, 0.9])
    moved = _shift_mean(values, 0.05)
    assert values.mean() - moved.mean() == pytest.approx(0.05)
    assert moved[0] == 0 and moved[1] == 1 and (moved >= 0).all()


def crossed_by_a_bend():
    """A tail that ends sharply at its top: few exceedances see the end, many do not."""
    rng = np.random.default_rng(5)
    depth = np.cumsum(rng.exponential(size=(300, 2000)), axis=1)
    top = -np.log(depth)
    top = np.where(top > -2.0, -2.0 + 0.15 * (top + 2.0), top).astype(np.float32)
    pos_q = np.repeat(np.arange(300), 2)
    return sample_scores(top, pos_q, rng.uniform(-3.0, -0.5, 600).astype(np.float32), 10**6)


def test_thresholds_that_contradict_one_another_are_averaged_and_widen_the_interval():
    scores = crossed_by_a_bend()
    choice = choose_posterior(scores, 2 * 10**7, 100)
    sizes = [tail.exceedances for tail in choice.tails]
    assert len(sizes) > 1 and sizes == sorted(sizes, reverse=True)
    each = [predict(scores, tail, 2 * 10**7, 100).precision for tail in choice.tails]
    np.testing.assert_allclose(choice.prediction.precision, np.mean(each, axis=0), rtol=1e-12)
    means = [average_precision(p, scores.query, scores.positives, 100).mean() for p in each]
    assert choice.disagreement == pytest.approx(np.std(means, ddof=1) / np.sqrt(len(means)))
    curve = default_curve(scores, choice.tails, np.array([2.0 * 10**7]), 100)
    assert curve[0] == pytest.approx(np.mean(means))
    got = estimate_tail(scores, 2 * 10**7, 100, estimators=("default",))
    low, high = got.ci95["fixed_queries"]
    assert high - low > 2 * 1.95 * choice.disagreement
    assert got.diagnostics["posterior"]["averaged"] == sizes
    assert got.diagnostics["posterior"]["disagreement"] == choice.disagreement


def test_one_tail_that_no_other_contradicts_stands_alone():
    scores, gallery, cutoff, _ = exponential_world(1)
    choice = choose_posterior(scores, gallery, cutoff)
    assert len(choice.tails) == 1 and choice.disagreement == 0


def test_where_tails_differ_widely_between_queries_one_threshold_is_kept():
    """Tails that end at once beside heavy ones, as clusters make them: the uncontradicted k stands alone."""
    rng = np.random.default_rng(6)
    depth = np.cumsum(rng.exponential(size=(300, 2000)), axis=1) / 2000
    shape = np.where(np.arange(300) % 2 == 0, -0.7, 0.35)[:, None]
    top = ((depth**-shape - 1) / shape).astype(np.float32)
    rows = np.repeat(np.arange(300), 2)
    above = top[rows, 0] + rng.uniform(-0.2, 0.2, 600).astype(np.float32)
    scores = sample_scores(top, rows, above, 10**6)
    choice = choose_posterior(scores, 2 * 10**7, 100)
    assert fit_posterior(scores.spread_top, 125).shape_spread > CLUSTERED
    assert len(choice.tails) == 1
    assert np.array_equal(choice.prediction.precision, predict(scores, choice.tails[0], 2e7, 100).precision)
