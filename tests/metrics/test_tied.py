"""INQUIRE and ILIAS: ties as scikit-learn treats them, against the official figures and scikit-learn."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from cairn.metrics import ilias, inquire


def inquire_scores(cases, k):
    query = np.repeat(np.arange(len(cases)), [len(case["scores"]) for case in cases])
    score = np.concatenate([case["scores"] for case in cases])
    relevant = np.concatenate([case["relevant"] for case in cases]).astype(bool)
    return inquire.score(query, score, relevant, np.array([case["count_pos"] for case in cases]), k)


@pytest.mark.parametrize("name", ["inquire", "inquire_ties"])
def test_inquire_golden(shared, name):
    cases = json.loads((shared / "golden" / f"{name}.json").read_text())
    for k in {case["k"] for case in cases}:
        of_depth = [case for case in cases if case["k"] == k]
        ours = inquire_scores(of_depth, k)
        fields = {
            "precision": ours.precision,
            "recall": ours.recall,
            "ap": ours.average_precision,
            "ndcg": ours.ndcg,
            "mrr": ours.reciprocal_rank,
        }
        for field in of_depth[0]["expected"]:
            expected = [case["expected"][field] for case in of_depth]
            np.testing.assert_allclose(fields[field], expected, rtol=0, atol=1e-9, err_msg=field)


def ilias_arrays(case, sims, ranks):
    names = sorted(case["positives"])
    instance = np.array([name.split("/")[0] for name in names])
    wanted = np.array([name.split("/")[0] for name in case["query_ids"]])
    query = np.repeat(np.arange(len(ranks)), [len(row) for row in ranks])
    image = np.concatenate(ranks)
    known = image < len(names)
    relevant = known & (instance[np.minimum(image, len(names) - 1)] == wanted[query])
    n_positives = np.array([(instance == name).sum() for name in wanted])
    return names, instance, wanted, query, image, np.concatenate(sims), relevant, n_positives


def test_ilias_golden(shared):
    case = json.loads((shared / "golden" / "ilias.json").read_text())
    arrays = np.load(shared / "golden" / "ilias.npz")
    names, instance, wanted, query, image, sims, relevant, n_positives = ilias_arrays(
        case, arrays["sims"], arrays["ranks"]
    )
    expected = case["expected"]
    values, oracle = ilias.score(query, sims, relevant, n_positives, case["k"])
    np.testing.assert_allclose(values * 100, expected["aps"], rtol=0, atol=1e-9)
    assert values.mean() * 100 == pytest.approx(expected["map"], abs=1e-9)
    assert oracle.mean() * 100 == pytest.approx(expected["oracle"], abs=1e-9)
    for column, key, bounds in ((0, "scale", ilias.SCALE_BOUNDS), (1, "clutter", ilias.CLUTTER_BOUNDS)):
        info = np.array([case["positive_info"][name][column] for name in names])
        for low, high in itertools.pairwise(bounds):
            member = (info >= low) & (info < high)
            in_group = relevant & member[np.minimum(image, len(names) - 1)]
            n_in_group = np.array([(member & (instance == name)).sum() for name in wanted])
            group = ilias.score_group(query, sims, relevant, in_group, n_in_group, case["k"])
            mean = np.nanmean(group) * 100
            assert mean == pytest.approx(expected[key][ilias.group_name(low, high)], abs=1e-9)
    category = np.array([case["taxonomy"][name] for name in wanted])
    for name, value in expected["subcategories"].items():
        chosen = category == name
        assert ilias.macro_mean(values[chosen], wanted[chosen]) * 100 == pytest.approx(value, abs=1e-9)
    for name, value in expected["categories"].items():
        chosen = np.array([each.split("-")[0] == name for each in category])
        assert ilias.macro_mean(values[chosen], wanted[chosen]) * 100 == pytest.approx(value, abs=1e-9)


def test_ilias_ties_golden(shared):
    case = json.loads((shared / "golden" / "ilias_ties.json").read_text())
    sims = np.array(case["sims"], np.float32)
    *_, query, _, flat, relevant, n_positives = ilias_arrays(case, sims, case["ranks"])
    values, _ = ilias.score(query, flat, relevant, n_positives, case["k"])
    np.testing.assert_allclose(values * 100, case["expected"]["aps"], rtol=0, atol=1e-9)


entries = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.9]), st.booleans()), min_size=2, max_size=15)


@given(st.lists(st.tuples(entries, st.integers(0, 4)), min_size=1, max_size=4))
def test_as_scikit_learn_on_whole_lists(queries):
    for number, (rows, missing) in enumerate(queries):
        k = len(rows)
        cases = [
            {
                "scores": [score for score, _ in each],
                "relevant": [flag for _, flag in each],
                "count_pos": sum(flag for _, flag in each) + more,
            }
            for each, more in queries
        ]
        together = inquire_scores(cases, k)
        alone = inquire_scores([cases[number]], k)
        for field in ("average_precision", "ndcg", "reciprocal_rank", "precision", "recall"):
            assert np.array_equal(getattr(alone, field)[0], getattr(together, field)[number], equal_nan=True)
        score = np.array(cases[number]["scores"])
        relevant = np.array(cases[number]["relevant"])
        positives = cases[number]["count_pos"]
        if not positives:
            assert np.isnan(alone.average_precision[0]) and np.isnan(alone.ndcg[0])
            continue
        area = average_precision_score(relevant, score) if relevant.any() else 0.0
        assert alone.average_precision[0] == pytest.approx(
            area * relevant.sum() / min(positives, k), abs=1e-12
        )
        padded = np.append(relevant, [1] * missing), np.append(score, [-100.0] * missing)
        expected = ndcg_score([padded[0]], [padded[1]], k=k)
        assert alone.ndcg[0] == pytest.approx(expected, abs=1e-12)
        # The first positive comes after every negative that scores as high.
        best = score[relevant].max(initial=-np.inf)
        place = ((score > best) | ((score == best) & ~relevant)).sum() + 1
        assert alone.reciprocal_rank[0] == pytest.approx(1 / place if relevant.any() else 0)


def test_the_order_given_decides_at_the_cut_only():
    query = np.zeros(3, int)
    score = np.array([0.5, 0.5, 0.5])
    first = inquire.score(query, score, np.array([True, False, False]), np.array([1]), 2)
    last = inquire.score(query, score, np.array([False, False, True]), np.array([1]), 2)
    assert first.average_precision[0] == pytest.approx(0.5)
    assert last.average_precision[0] == 0


def test_a_short_list_is_no_advantage():
    one = inquire.score(np.zeros(1, int), np.array([0.9]), np.array([True]), np.array([3]), 50)
    assert one.precision[0] == pytest.approx(1 / 50)
    assert one.average_precision[0] == pytest.approx(1 / 3)


def test_own_depths_score_a_short_list_as_the_official_function_does():
    query, score = np.array([0, 0, 0, 1]), np.array([0.9, 0.5, 0.5, 0.1])
    relevant, n_positives = np.array([True, False, True, False]), np.array([7, 2, 1])
    depths = inquire.own_depths(np.array([3, 1, 0]), 50)
    own = inquire.score(query, score, relevant, n_positives, 50, depths)
    area = average_precision_score(relevant[:3], score[:3])
    assert own.average_precision == pytest.approx([area * 2 / min(7, 3), 0, 0])
    padded = [[*relevant[:3], *[1] * 5]], [[*score[:3], *[-100.0] * 5]]
    assert own.ndcg == pytest.approx([ndcg_score(*padded, k=3), 0, 0])
    assert own.precision == pytest.approx([2 / 3, 0, 0])
    full = inquire.score(query, score, relevant, n_positives, 50)
    assert np.array_equal(own.recall, full.recall) and np.all(own.average_precision >= full.average_precision)


def test_positives_that_were_missed_come_last_whatever_the_scores():
    """The official padding scores them -100, so that lower scores would find what they missed."""
    query, relevant, n_positives = np.zeros(3, int), np.array([False, True, False]), np.array([3])
    score = np.array([-150.0, -160.0, -170.0])
    ours = inquire.score(query, score, relevant, n_positives, 3).ndcg[0]
    assert ours == inquire.score(query, score + 200, relevant, n_positives, 3).ndcg[0]
    theirs = ndcg_score([[*relevant, 1, 1]], [[*score, -100.0, -100.0]], k=3)
    assert theirs > 0.7 > ours == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3) + 1 / np.log2(4)))
