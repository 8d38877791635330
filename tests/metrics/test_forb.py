"""FORB: mAP@k and t-mAP@k against the official figures and a plain loop over thresholds."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.metrics import forb


def flat(candidates, positives):
    """Flat arrays (query, correct) of lists of candidate ids."""
    query = np.repeat(np.arange(len(candidates)), [len(ids) for ids in candidates]).astype(np.int64)
    correct = [image in wanted for ids, wanted in zip(candidates, positives, strict=True) for image in ids]
    return query, np.array(correct, bool)


def test_golden(shared):
    case = json.loads((shared / "golden" / "forb.json").read_text())
    query, correct = flat(case["candidate_ids"], case["groundtruth"])
    score = np.concatenate([np.array(scores, float) for scores in case["candidate_scores"]])
    n_positives = np.array([len(ids) for ids in case["groundtruth"]])
    tops = np.array([forb.NOTHING if top is None else top for top in case["ood_top_score"]])
    levels = forb.thresholds(tops)
    np.testing.assert_allclose(levels, case["thresholds"], rtol=0, atol=1e-12)
    difficulty = np.array(case["difficulty"])
    for k, scores in zip(forb.KS, forb.score(query, score, correct, n_positives, levels), strict=True):
        plain, cut = scores.average_precision, scores.threshold_average_precision
        for name, expected in case["expected"].items():
            members = np.ones(len(plain), bool) if name == "overall" else difficulty == name
            assert plain[members].mean() == pytest.approx(expected[f"mAP@{k}"], abs=1e-9)
            assert cut[members].mean() == pytest.approx(expected[f"t-mAP@{k}"], abs=1e-9)


def loop(ids, wanted, k):
    """AP@k of one query, as the definition reads."""
    if not wanted:
        return float(not ids)
    hits, total = 0, 0.0
    for place, image in enumerate(ids[:k]):
        if image in wanted:
            hits += 1
            total += hits / (place + 1)
    return total / len(wanted)


@st.composite
def runs(draw):
    queries = []
    for _ in range(draw(st.integers(1, 5))):
        ids = draw(st.lists(st.integers(0, 9), unique=True, max_size=8))
        scores = [draw(st.sampled_from([-2.0, -1.0, 0.0, 0.25, 0.5, 1.0])) for _ in ids]
        if draw(st.booleans()):
            scores.sort(reverse=True)
        queries.append((ids, scores, draw(st.sets(st.integers(0, 9), max_size=4))))
    tops = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.3, 1.0]), min_size=1, max_size=30))
    return queries, tops


@given(runs(), st.integers(1, 6))
def test_as_a_loop_over_thresholds(run, k):
    queries, tops = run
    ids, scores, positives = zip(*queries, strict=True)
    query, correct = flat(ids, positives)
    score = np.array([value for values in scores for value in values], float)
    n_positives = np.array([len(wanted) for wanted in positives])
    levels = forb.thresholds(np.array(tops))
    (result,) = forb.score(query, score, correct, n_positives, levels, [k])
    plain, cut = result.average_precision, result.threshold_average_precision
    for number, wanted in enumerate(positives):
        assert plain[number] == pytest.approx(loop(ids[number], wanted, k), abs=1e-12)
        each = [
            loop(
                [image for image, s in zip(ids[number], scores[number], strict=True) if s >= level], wanted, k
            )
            for level in levels
        ]
        assert cut[number] == pytest.approx(np.mean(each), abs=1e-12)


def test_thresholds_of_a_hundred_queries():
    levels = forb.thresholds(np.arange(100) / 100)
    # Rate 0 admits what no query without an answer reaches; at rate f a share f of them is above.
    assert levels == pytest.approx(
        [0.99, 0.89, 0.79, 0.69, 0.59, 0.49, 0.39, 0.30, 0.19, 0.09, -1], abs=0.011
    )
    assert len(levels) == 11
