"""The exact law against SciPy's binomial and against simulation of its own claims."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cairn.tail.law import (
    average_precision,
    clustered_precision,
    expected_precision,
    precision_moments,
    realised_precision,
)


def by_scipy(x, i, gallery, cutoff, before=0, power=1):
    b = np.arange(max(cutoff - i - before + 1, 0))
    return float(((i / (i + before + b)) ** power * stats.binom.pmf(b, gallery, x)).sum())


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 10**9),
    st.floats(-13, 0),
    st.integers(1, 12),
    st.integers(1, 1200),
    st.integers(0, 30),
)
def test_law_is_the_binomial_sum(gallery, decade, i, cutoff, before):
    x = 10.0**decade
    first, second = precision_moments(
        np.array([x]), np.array([i]), gallery, cutoff, before=np.array([before])
    )
    assert first[0] == pytest.approx(by_scipy(x, i, gallery, cutoff, before), abs=1e-9)
    assert second[0] == pytest.approx(by_scipy(x, i, gallery, cutoff, before, 2), abs=1e-9)


def test_edges():
    one = np.array([1])
    assert expected_precision(np.array([0.0]), np.array([3]), 1e9, 10)[0] == 1.0
    assert expected_precision(np.array([0.0]), np.array([11]), 1e9, 10)[0] == 0.0
    assert expected_precision(np.array([1.0]), one, 5, 10)[0] == pytest.approx(1 / 6)
    assert expected_precision(np.array([1.0]), one, 50, 10)[0] == 0.0
    assert expected_precision(np.array([0.3]), one, 0, 10)[0] == 1.0


def test_falls_with_the_gallery_and_with_hardness():
    sizes = [expected_precision(np.array([1e-6]), np.array([2]), n, 100)[0] for n in (1e3, 1e5, 1e6, 1e8)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    x = np.logspace(-9, -3, 40)
    values = expected_precision(x, np.full(40, 2), 1e6, 100)
    assert (np.diff(values) < 1e-12).all()


def test_clusters_that_rank_together():
    # B = 5 Binomial(N/5, x), summed directly.
    b = np.arange(20)
    rank = 2 + 5 * b
    expected = (np.where(rank <= 40, 2 / rank, 0) * stats.binom.pmf(b, 200, 0.01)).sum()
    got = clustered_precision(np.array([0.01]), np.array([2]), 1000, 40, 5)
    assert got[0] == pytest.approx(expected, abs=1e-9)


def test_average_precision_divides_by_the_smaller_of_cutoff_and_positives():
    terms = realised_precision(np.array([0, 1, 0]), np.array([1, 2, 1]), 2)
    np.testing.assert_allclose(terms, [1, 0, 1])
    ap = average_precision(np.array([1.0, 0.5, 1.0]), np.array([0, 0, 1]), np.array([2, 1]), 1)
    np.testing.assert_allclose(ap, [1.5, 1.0])
