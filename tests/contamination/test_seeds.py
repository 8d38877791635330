"""The analysis of seeds on the published example's numbers, and its statistics against scipy's."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, ttest_ind

from cairn.contamination.seeds import (
    SeedAnalysis,
    Spread,
    analyse_seeds,
    correlation,
    difference,
    pearson,
    shown,
    spread,
)
from cairn.errors import InputError


def published(shared: Path) -> SeedAnalysis:
    whole = json.loads((shared / "published_results.json").read_text("utf-8"))
    cells = whole["contamination"]["seed_spread"]["no_distractor_global_only_mean_sd"]
    differences = []
    for benchmark in ("roxford", "rparis"):
        for part in ("M", "H"):
            spreads = [Spread(3, *cells[protocol][benchmark][part]) for protocol in ("standard", "decon")]
            differences.append(difference(f"{benchmark}/{part}", *spreads))
    return SeedAnalysis(("standard", "decon"), tuple(differences), (), "mAP points", None)


def test_published_verdict_follows_from_the_published_numbers(shared: Path) -> None:
    """It says: 3 of 4 deltas fall below the spread, the fourth is 1.1 pooled sd, no cell moves more than ~1."""
    analysis = published(shared)
    assert [one.within_noise for one in analysis.cells] == [True, True, True, False]
    assert [round(one.in_sd, 2) for one in analysis.cells] == [0.52, -0.62, 0.45, 1.07]  # type: ignore[arg-type]
    assert "3 of 4 differences (decon less standard) are within one pooled" in analysis.verdict
    assert "+0.4 on rparis/H (1.1 pooled sd)" in analysis.verdict
    assert "No 95% interval excludes 0" in analysis.verdict
    assert "no mean moves by more than 0.6 mAP points" in analysis.verdict


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=6), st.lists(st.floats(0, 100), min_size=2, max_size=6)
)
def test_interval_excludes_zero_when_the_t_test_says_so(a: list[float], b: list[float]) -> None:
    ours = difference("x/y", spread(np.array(a)), spread(np.array(b)))
    if min(ours.first.sd, ours.second.sd) < 1e-3:
        return  # scipy warns of lost precision
    p = ttest_ind(b, a).pvalue
    if abs(p - 0.05) > 1e-6:
        assert ours.excludes_zero == (p < 0.05)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=3, max_size=12))
def test_pearson_is_scipys(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(values, np.float64) for values in zip(*pairs, strict=True))
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert pearson(a, b) is None
    else:
        assert pearson(a, b) == pytest.approx(pearsonr(a, b).statistic, abs=1e-9)


def runs() -> dict[str, list[dict[str, float]]]:
    """Two benchmarks that move against each other from run to run, and protocols that do not differ."""
    moves = ([0.9, -0.2, -0.6], [0.5, -0.9, 0.4])
    return {
        protocol: [{"roxford5k/medium": 76 + up, "rparis6k/medium": 93 - 0.3 * up} for up in members]
        for protocol, members in zip(("standard", "decon"), moves, strict=True)
    }


def test_selection_shows_as_a_correlation_and_is_said() -> None:
    analysis = analyse_seeds(runs(), selected_on="roxford5k/medium")
    (one,) = analysis.correlations
    assert one.all_runs == pytest.approx(-1) and one.within_protocols == pytest.approx(-1) and one.n == 6
    assert "correlate at r = -1.00 across the 6 runs" in analysis.verdict
    assert "correlate" not in analyse_seeds(runs()).verdict
    assert json.dumps(analysis.as_json())


def test_a_real_difference_is_called_one() -> None:
    shifted = runs()
    shifted["decon"] = [{cell: value - 10 for cell, value in run.items()} for run in shifted["decon"]]
    analysis = analyse_seeds(shifted)
    assert all(one.excludes_zero for one in analysis.cells)
    assert "the protocols differ beyond the seeds" in analysis.verdict
    assert "0.1 such intervals are expected by chance" in analysis.verdict
    # Over all runs the shift looks like agreement; within protocols the two move against each other.
    (one,) = analysis.correlations
    assert one.all_runs > 0.9 and one.within_protocols == pytest.approx(-1)  # type: ignore[operator]


def test_equal_runs_have_no_spread_and_no_correlation() -> None:
    same = [{"a/m": 50.0, "b/m": 70.0}] * 3
    analysis = analyse_seeds({"standard": same, "decon": same})
    assert [one.in_sd for one in analysis.cells] == [None, None]
    assert analysis.correlations[0].all_runs is None
    assert "2 of 2 differences" in analysis.verdict


def test_fishers_interval_needs_four_runs() -> None:
    a = [np.array([1.0, 2.0]), np.array([4.0, 3.0])]
    assert correlation("a", "b", a, [a[0] * 2, a[1] + 1]).interval is not None
    assert correlation("a", "b", [np.array([1.0, 2, 4])], [np.array([1.0, 3, 2])]).interval is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"third": [{}, {}]}, "3 protocols"),
        ({"decon": [{"roxford5k/medium": 1.0}]}, "decon has 1 runs"),
        ({"decon": [{"roxford5k/medium": 1.0}] * 2}, "cell rparis6k/medium is not in every run"),
        ({"decon": [{"roxford5k/medium": float("nan"), "rparis6k/medium": 1.0}] * 2}, "is nan"),
    ],
)
def test_mistakes_are_named(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        analyse_seeds(runs() | change)
    with pytest.raises(InputError, match="selected_on 'x' is no cell"):
        analyse_seeds(runs(), selected_on="x")


def test_points_have_one_decimal_and_no_negative_zero():
    assert [shown(value, "+") for value in (1.25, -0.04, 0.04, -0.06, -12.34)] == [
        "+1.2",
        "+0.0",
        "+0.0",
        "-0.1",
        "-12.3",
    ]
    assert shown(41.85) == "41.9"
