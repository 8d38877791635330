"""Wilson's interval, kappa and the bootstrap over classes against known values and other libraries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from cairn.contamination.proportions import Share, cluster_interval, cohens_kappa, wilson


@given(st.integers(1, 500), st.data())
def test_wilson_is_scipys(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    expected = binomtest(part, whole).proportion_ci(0.95, "wilson")
    assert wilson(part, whole) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_a_share_keeps_both_counts() -> None:
    share = Share(757, 995, "images that the detector confirms")
    assert str(share) == "757 / 995 = 76.1% [73.3, 78.6] of images that the detector confirms"
    assert share.as_json()["denominator"] == "images that the detector confirms"
    assert Share(0, 0).value is None and Share(0, 0).interval() is None and str(Share(0, 0)) == "0 / 0 = –"
    with pytest.raises(ValueError, match="3 of 2"):
        Share(3, 2)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=60))
def test_kappa_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    first, second = map(list, zip(*pairs, strict=True))
    ours = cohens_kappa(first, second)
    if len(set(first) | set(second)) == 1:
        assert ours.kappa is None and ours.observed == 1
    else:
        assert ours.kappa == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
        assert ours.low <= ours.kappa <= ours.high  # type: ignore[operator]
    assert sum(map(sum, ours.table)) == ours.n == len(pairs)


def test_kappa_of_nothing_is_none() -> None:
    assert cohens_kappa([], []).kappa is None
    with pytest.raises(ValueError, match="1 judgements beside 0"):
        cohens_kappa([True], [])


def test_whole_classes_make_a_wider_interval() -> None:
    parts, wholes = [20, 0] * 10, [20] * 20  # each class all or nothing
    low, high = cluster_interval(parts, wholes)  # type: ignore[misc]
    wilson_low, wilson_high = wilson(sum(parts), sum(wholes))  # type: ignore[misc]
    assert high - low > 3 * (wilson_high - wilson_low)
    assert low < 0.5 < high
    assert cluster_interval([1], [2]) is None and cluster_interval([0, 0], [0, 0]) is None
    assert cluster_interval(parts, wholes, seed=1) == cluster_interval(parts, wholes, seed=1)
    assert np.isfinite(low)
