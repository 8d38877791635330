"""Copy detection: micro-AP, recall at precision and at rank, with ties, against the official figures."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.metrics import micro_ap


def test_golden(shared):
    golden = shared / "golden"
    expected = json.loads((golden / "disc21_expected.json").read_text())
    with (golden / "disc21_ground_truth.csv").open() as stream:
        truth = {(row[0], row[1]) for row in csv.reader(stream) if row[1] and row[0] != "query_id"}
    with (golden / "disc21_predictions.csv").open() as stream:
        predictions = list(csv.reader(stream))[1:]
    score = np.array([float(row[2]) for row in predictions])
    correct = np.array([(row[0], row[1]) in truth for row in predictions])
    query = np.unique([row[0] for row in predictions], return_inverse=True)[1]
    points = micro_ap.true_points(score, correct)
    recall, threshold = micro_ap.recall_at_precision(points, score, len(truth))
    ranks = micro_ap.pessimistic_ranks(query, score, np.flatnonzero(correct))
    assert micro_ap.micro_average_precision(points, len(truth)) == pytest.approx(
        expected["micro_ap"], abs=1e-9
    )
    assert recall == pytest.approx(expected["recall_at_p90"], abs=1e-9)
    assert threshold == pytest.approx(expected["threshold_at_p90"], abs=1e-9)
    assert (ranks < 1).sum() / len(truth) == pytest.approx(expected["recall_at_rank1"], abs=1e-9)
    assert (ranks < 10).sum() / len(truth) == pytest.approx(expected["recall_at_rank10"], abs=1e-9)


def loop(score, correct, n_positives):
    """The official order and curve by sorting pairs, one prediction at a time."""
    order = sorted(range(len(score)), key=lambda i: (score[i], not correct[i]), reverse=True)
    hits, area, best = 0, 0.0, (float("nan"), float("nan"))
    for place, i in enumerate(order):
        hits += correct[i]
        precision = hits / (place + 1)
        area += precision * correct[i] / n_positives
        if precision >= 0.9 and (np.isnan(best[0]) or hits / n_positives > best[0]):
            best = hits / n_positives, score[i]
    return area, best


predictions = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, -0.0, 0.5, 0.25, 1.0, -3.0]), st.booleans()),
    max_size=30,
)


@given(predictions, st.integers(0, 3))
def test_as_a_loop(rows, missing):
    query = np.array([row[0] for row in rows], int)
    score = np.array([row[1] for row in rows], float)
    correct = np.array([row[2] for row in rows], bool)
    n_positives = int(correct.sum()) + missing
    points = micro_ap.true_points(score, correct)
    if not n_positives:
        assert np.isnan(micro_ap.micro_average_precision(points, 0))
        return
    area, best = loop(score, correct, n_positives)
    assert micro_ap.micro_average_precision(points, n_positives) == pytest.approx(area, abs=1e-12)
    found = micro_ap.recall_at_precision(points, score, n_positives)
    np.testing.assert_allclose(found, best, rtol=0, atol=1e-12)
    index = np.flatnonzero(correct)
    expected = [((query == query[i]) & (score >= score[i])).sum() - 1 for i in index]
    assert micro_ap.pessimistic_ranks(query, score, index).tolist() == expected


@given(predictions)
def test_each_query_drawn_once_is_the_value_itself(rows):
    query = np.array([row[0] for row in rows], int)
    score = np.array([row[1] for row in rows], float)
    correct = np.array([row[2] for row in rows], bool)
    n_positives = np.bincount(query[correct], minlength=4) + 1
    points = micro_ap.true_points(score, correct)
    order = np.lexsort((correct, -score))
    average, recall = micro_ap.resampled(points, query[order], n_positives, np.ones((1, 4)))
    total = int(n_positives.sum())
    assert average[0] == pytest.approx(micro_ap.micro_average_precision(points, total), abs=1e-12)
    expected = micro_ap.recall_at_precision(points, score, total)[0]
    assert recall[0] == pytest.approx(0 if np.isnan(expected) else expected, abs=1e-12)
