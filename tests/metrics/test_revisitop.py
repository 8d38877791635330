"""Revisited-Oxford scoring against the authors' own figures, and what must hold for any ranking."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.metrics import revisitop


def judged(gnd, ranks):
    """Arrays of the judged images of every query from a rank per (query, image)."""
    rows = sorted(
        (number, int(ranks[number][image]), grade)
        for number, query in enumerate(gnd)
        for grade in ("easy", "hard", "junk")
        for image in query[grade]
    )
    query, rank, grade = (np.array(column) for column in zip(*rows, strict=True))
    return query, rank, grade


def setup_scores(gnd, ranks, setup):
    query, rank, grade = judged(gnd, ranks)
    positives, junk = revisitop.SETUPS[setup]
    n_positives = np.array([sum(len(each[name]) for name in positives) for each in gnd])
    return revisitop.score_setup(query, rank, np.isin(grade, positives), np.isin(grade, junk), n_positives)


@pytest.mark.parametrize("case", ["plain", "edge"])
def test_golden(shared, case):
    expected = json.loads((shared / "golden" / f"revisitop_{case}.json").read_text())
    scores = np.load(shared / "golden" / f"revisitop_{case}.npz")["scores"]
    ranks = np.argsort(np.argsort(-scores, axis=1), axis=1)
    for letter, setup in zip("EMH", revisitop.SETUPS, strict=True):
        ours = setup_scores(expected["gnd"], ranks, setup)
        theirs = expected["expected"][letter]
        aps = np.array([np.nan if ap is None else ap for ap in theirs["aps"]], float)
        np.testing.assert_allclose(ours.average_precision, aps, rtol=0, atol=1e-9)
        assert np.nanmean(ours.average_precision) == pytest.approx(theirs["map"], abs=1e-9)
        np.testing.assert_allclose(np.nanmean(ours.precision_at, axis=0), theirs["mpr"], rtol=0, atol=1e-9)


def test_by_hand():
    # Ranking: junk, hard, easy, negative, easy. Easy setup without junk and hard: easy, negative, easy.
    gnd = [{"easy": [2, 4], "hard": [1], "junk": [0]}]
    ranks = [[0, 1, 2, 3, 4]]
    easy = setup_scores(gnd, ranks, "easy")
    assert easy.average_precision[0] == pytest.approx(((1 + 1) / 2 + (1 / 2 + 2 / 3) / 2) / 2)
    # P@5 and P@10 divide by the last positive's place, 3.
    assert easy.precision_at[0] == pytest.approx([1, 2 / 3, 2 / 3])
    hard = setup_scores(gnd, ranks, "hard")
    assert hard.average_precision[0] == 1
    assert hard.precision_at[0] == pytest.approx([1, 1, 1])


def test_without_positives_a_query_is_left_out():
    gnd = [{"easy": [], "hard": [0], "junk": [1]}, {"easy": [1], "hard": [], "junk": []}]
    easy = setup_scores(gnd, [[0, 1], [1, 0]], "easy")
    assert np.isnan(easy.average_precision[0]) and np.isnan(easy.precision_at[0]).all()
    assert easy.average_precision[1] == 1


@st.composite
def truths(draw):
    n_queries = draw(st.integers(1, 4))
    n_images = draw(st.integers(1, 12))
    gnd, ranks = [], []
    for _ in range(n_queries):
        grades = draw(
            st.lists(st.sampled_from(["easy", "hard", "junk", ""]), min_size=n_images, max_size=n_images)
        )
        gnd.append({g: [i for i, x in enumerate(grades) if x == g] for g in ("easy", "hard", "junk")})
        ranks.append(draw(st.permutations(range(n_images))))
    if not any(query[grade] for query in gnd for grade in query):
        gnd[0]["easy"] = [0]
    return gnd, ranks


def loop_average_precision(order, positives, junk):
    """A plain loop over one query's ranking: area by trapezoids over the list without junk."""
    kept = [image for image in order if image not in junk]
    area, hits = 0.0, 0
    for place, image in enumerate(kept):
        if image in positives:
            left = 1.0 if place == 0 else hits / place
            hits += 1
            area += (left + hits / (place + 1)) / 2 / len(positives)
    return area if positives else np.nan


@given(truths())
def test_as_a_loop_over_the_list_and_each_query_alone(case):
    gnd, ranks = case
    for setup, (positives, junk) in revisitop.SETUPS.items():
        together = setup_scores(gnd, ranks, setup)
        for number, query in enumerate(gnd):
            order = np.argsort(ranks[number])
            wanted = {image for name in positives for image in query[name]}
            removed = {image for name in junk for image in query[name]}
            expected = loop_average_precision(order, wanted, removed)
            np.testing.assert_allclose(together.average_precision[number], expected, rtol=0, atol=1e-12)
            if any(query[grade] for grade in query):
                alone = setup_scores([query], [ranks[number]], setup)
                np.testing.assert_array_equal(alone.average_precision[0], together.average_precision[number])
                np.testing.assert_array_equal(alone.precision_at[0], together.precision_at[number])
