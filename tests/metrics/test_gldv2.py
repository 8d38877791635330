"""Google Landmarks v2: mAP@100 against the official figures and a plain loop."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.metrics import gldv2


def flat(retrieved, positives):
    """Flat arrays (query, place, correct) of lists of retrieved ids; a repeated id is never correct."""
    rows = [
        (query, place, image in positives[query] and image not in images[:place])
        for query, images in enumerate(retrieved)
        for place, image in enumerate(images)
    ]
    query, place, correct = zip(*rows, strict=True) if rows else ([], [], [])
    return np.array(query, int), np.array(place, int), np.array(correct, bool)


def test_golden(shared):
    case = json.loads((shared / "golden" / "gldv2.json").read_text())
    positives = [set(images) for images in case["ok"]]
    values = gldv2.score(*flat(case["retrieved"], positives), np.array([len(p) for p in positives]))
    private = np.arange(len(values)) >= len(values) - case["private_last"]
    expected = case["expected"]
    assert np.nanmean(values) == pytest.approx(expected["all"], abs=1e-9)
    assert np.nanmean(values[private]) == pytest.approx(expected["private"], abs=1e-9)
    assert np.nanmean(values[~private]) == pytest.approx(expected["public"], abs=1e-9)


def test_a_repeated_prediction_takes_its_place():
    # Positive, the same again, positive: 1/1 + 2/3 over two positives.
    values = gldv2.score(*flat([["a", "a", "b"]], [{"a", "b"}]), np.array([2]))
    assert values[0] == pytest.approx((1 + 2 / 3) / 2)


def test_no_prediction_is_zero_and_no_positive_is_left_out():
    values = gldv2.score(*flat([[], ["a"]], [{"a"}, set()]), np.array([1, 0]))
    assert values[0] == 0
    assert np.isnan(values[1])


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 8), max_size=12), st.sets(st.integers(0, 8), min_size=1)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 10),
)
def test_as_a_loop(queries, k):
    retrieved, positives = zip(*queries, strict=True)
    values = gldv2.score(*flat(retrieved, positives), np.array([len(p) for p in positives]), k)
    for images, wanted, value in zip(retrieved, positives, values, strict=True):
        total, seen = 0.0, set()
        for place, image in enumerate(images[:k]):
            if image in wanted and image not in seen:
                seen.add(image)
                total += len(seen) / (place + 1)
        assert value == pytest.approx(total / min(len(wanted), k), abs=1e-12)
