"""The estimate: a metric at gallery size N from a uniform sample of S distractors, with intervals and
diagnostics."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.errors import UsageError
from cairn.tail import baselines, diagnostics
from cairn.tail.calibration import Calibration, calibrate, mean_variance
from cairn.tail.hard_mined import hard_mined
from cairn.tail.hardness import TailFit, evt_hardness, exceedance_count, fit_tail
from cairn.tail.intervals import fixed_interval, nested_interval, query_interval
from cairn.tail.law import average_precision
from cairn.tail.posterior import Prediction, TailPosterior, choose_posterior, predict
from cairn.tail.scores import QUANTISED, SampleScores, check_gallery, sample_scores

ESTIMATORS = ("default", "evt", "count", "naive", *baselines.CURVES)
# A calibrated bias up to this size is not told apart from chance and lumps (docs/tail-aware.md): it widens
# the interval. What exceeds it (and 3 standard errors) is taken off the estimate.
TOLERATED_BIAS = 0.015
UNTESTED_BIAS = 0.005  # mAP per e-fold of N/S beyond what the sample can be split into


@dataclass(frozen=True)
class TailEstimate:
    """Result of `estimate_tail`.

    `estimates` name -> mean AP@K at N; `per_query` name -> [Q] for default, evt, count and naive; `ci95`
    name -> (low, high); `model_bias` the self-calibrated bias of the default, None where not measurable;
    `hardness` [P] the default's posterior mean of log x, exponentiated; `posteriors` (one per number of
    exceedances that entered the mean), `tail` the fits themselves.
    """

    estimates: dict[str, float]
    per_query: dict[str, np.ndarray]
    ci95: dict[str, tuple[float, float]]
    model_bias: float | None
    diagnostics: dict[str, Any]
    warnings: list[str]
    hardness: np.ndarray
    posteriors: tuple[TailPosterior, ...]
    tail: TailFit

    def record(self, per_query: bool = False) -> dict[str, Any]:
        """As plain values for JSON: estimates, ci95, model_bias, diagnostics, warnings (and per_query)."""
        out: dict[str, Any] = {
            "estimates": self.estimates,
            "ci95": {name: list(bounds) for name, bounds in self.ci95.items()},
            "model_bias": self.model_bias,
            "diagnostics": self.diagnostics,
            "warnings": self.warnings,
        }
        if per_query:
            out["per_query"] = {name: values.tolist() for name, values in self.per_query.items()}
        return out


def estimate_arrays(
    top: np.ndarray,
    pos_q: np.ndarray,
    pos_s: np.ndarray,
    sample_size: int,
    gallery: float,
    cutoff: int,
    **options,
) -> TailEstimate:
    """`estimate_tail` on bare arrays: `top` [Q, T] descending, `pos_q` [P], `pos_s` [P], S, N, K."""
    return estimate_tail(sample_scores(top, pos_q, pos_s, sample_size), gallery, cutoff, **options)


def estimate_tail(
    scores: SampleScores,
    gallery: float,
    cutoff: int = 1000,
    *,
    estimators: tuple[str, ...] = ESTIMATORS,
    keep_quantile: float = 0.95,
    redraws: int = 6,
    seed: int = 0,
    hard: np.ndarray | None = None,
) -> TailEstimate:
    """Mean AP@K at gallery size N >= S by every estimator, with two 95% intervals.

    `keep_quantile` is the paper's q: its fit uses k = round(T(1-q)) of the T kept scores. `redraws` disjoint
    sub-samples calibrate the default, `seed` splits the sample into them. `hard` [Q, M]: true scores of a
    proxy's mined distractors, with `scores` then a sample of the rest (adds the estimate "hard-mined").
    Raises InputError where N < S, K < 1, or the kept lists are too short; UsageError for an unknown
    estimator.
    """
    gallery = check_gallery(scores, gallery, cutoff)
    unknown = [name for name in estimators if name not in ESTIMATORS]
    if unknown:
        raise UsageError(f"no estimator is called {unknown[0]!r}; there are {', '.join(ESTIMATORS)}")
    k = exceedance_count(scores.top.shape[1], keep_quantile)
    tail, free = fit_tail(scores.top, k), fit_tail(scores.top, k, cap=None)
    values = {
        "evt": baselines.per_query(scores, evt_hardness(scores, tail), gallery, cutoff),
        "count": baselines.count(scores, gallery, cutoff),
        "naive": baselines.naive(scores, cutoff),
    }
    tails, prediction, disagreement = choose_posterior(scores, gallery, cutoff)
    posterior = tails[-1]
    default = average_precision(prediction.precision, scores.query, scores.positives, cutoff)
    calibration = None
    if gallery > scores.sample_size:
        calibration = calibrate(scores, gallery, cutoff, [each.exceedances for each in tails], redraws, seed)
    correction, bias, spread = _correction(calibration, gallery / scores.sample_size)
    # The correction moves every query that is neither certain to be 0 nor to be 1, in proportion.
    default = _shift_mean(default, correction)
    per_query = {"default": default, **values}
    means = {name: float(value.mean()) for name, value in per_query.items()}
    if any(name in baselines.CURVES for name in estimators):
        means |= baselines.extrapolate(baselines.sample_curve(scores, cutoff), gallery, cutoff)
    estimates = {name: means[name] for name in ESTIMATORS if name in estimators}
    if hard is not None:
        per_query["hard-mined"] = hard_mined(hard, scores, gallery, cutoff)
        estimates["hard-mined"] = float(per_query["hard-mined"].mean())
    variance = mean_variance(scores, prediction.variance, cutoff)
    draws = calibration.draws if calibration else np.empty((0, len(scores.top)))
    # Posterior variance and spread between sub-samples are two measures of one error, that of sample and fit:
    # the larger counts, not their sum. The redraws of the second interval already hold the spread.
    chance = max(variance, spread**2)
    drawn = calibration.spread**2 if calibration else 0.0
    ci95 = {
        "fixed_queries": fixed_interval(means["default"], np.sqrt(chance + disagreement**2), bias),
        "new_queries": nested_interval(
            default, draws, max(chance - drawn, 0.0) + disagreement**2, bias, seed=seed
        ),
        "evt_queries": query_interval(values["evt"], seed=seed),
    }
    hardness = np.exp(prediction.log_hardness)
    facts = _facts(scores, gallery, cutoff, tail, free, posterior, prediction, calibration, hardness)
    facts["posterior"] |= {"averaged": [each.exceedances for each in tails], "disagreement": disagreement}
    facts["calibration"]["correction"] = 0.0 - correction
    return TailEstimate(
        estimates,
        {name: value for name, value in per_query.items() if name in estimates},
        {name: (float(low), float(high)) for name, (low, high) in ci95.items()},
        calibration.bias if calibration else None,
        facts,
        [*_mined_warning(hard), *_warnings(scores, gallery, cutoff, facts, calibration, correction)],
        hardness,
        tails,
        tail,
    )


def default_curve(
    scores: SampleScores, posteriors: tuple[TailPosterior, ...], sizes: np.ndarray, cutoff: int
) -> np.ndarray:
    """The posterior estimate of mean AP@K at gallery sizes [n] >= S (uncorrected)."""
    out = []
    for size in sizes:
        terms = np.mean([predict(scores, tail, float(size), cutoff).precision for tail in posteriors], axis=0)
        out.append(average_precision(terms, scores.query, scores.positives, cutoff).mean())
    return np.array(out)


def parse_metric(text: str) -> int:
    """K of `map@K`. Raises UsageError for anything else."""
    match = re.fullmatch(r"map@([1-9]\d{0,8})", text.strip().lower())
    if not match:
        raise UsageError(f"metric {text!r} is not known here; give map@K, for instance map@1000")
    return int(match[1])


def _correction(calibration: Calibration | None, ratio: float) -> tuple[float, float, float]:
    """What to take off the estimate, the bias left in the interval, and the spread of the estimate.

    Bias and spread grow with the e-folds of N/S. Calibration goes at most 20-fold: beyond it `UNTESTED_BIAS`
    is allowed for each e-fold that could not be tested.
    """
    if calibration is None:
        return 0.0, 0.0, 0.0
    tolerated = max(TOLERATED_BIAS, 3 * calibration.bias_error)
    steps = np.log(ratio) / np.log(calibration.parts)  # extrapolations of the calibrated size up to N
    excess = float(np.sign(calibration.bias) * max(abs(calibration.bias) - tolerated, 0.0))
    untested = max(np.log(ratio / calibration.parts), 0.0)
    bias = (abs(calibration.bias) - abs(excess)) * steps + UNTESTED_BIAS * untested
    excess *= min(steps, 1.0)
    return excess, float(bias), float(calibration.spread * steps)


def _shift_mean(values: np.ndarray, amount: float) -> np.ndarray:
    """Per-query values whose mean is lower by `amount`, each moved in proportion to its room p(1-p), inside
    [0, 1]."""
    for _ in range(50):
        room = values * (1 - values)
        if abs(amount) < 1e-12 or room.sum() <= 0:
            break
        moved = np.clip(values - amount * room / room.mean(), 0.0, 1.0)
        amount -= float((values - moved).mean())
        values = moved
    return values


def _facts(
    scores: SampleScores,
    gallery: int,
    cutoff: int,
    tail: TailFit,
    free: TailFit,
    posterior: TailPosterior,
    prediction: Prediction,
    calibration: Calibration | None,
    hardness: np.ndarray,
) -> dict[str, Any]:
    return {
        "metric": f"map@{cutoff}",
        "gallery": gallery,
        "sample": scores.sample_size,
        "kept": scores.top.shape[1],
        "queries": len(scores.top),
        "positives": len(scores.score),
        "tied_scores": scores.quantised,
        "paper_fit": diagnostics.backbone_diagnostics(scores, tail, free),
        "posterior": {
            "exceedances": posterior.exceedances,
            "shape_mean": posterior.shape_mean,
            "shape_spread": posterior.shape_spread,
            "lump_share": posterior.lump_share,
            "hardness_slope": prediction.slope,
        },
        "calibration": {
            "redraws": len(calibration.draws) if calibration else 0,
            "parts": calibration.parts if calibration else 0,
            "bias": calibration.bias if calibration else None,
            "bias_error": calibration.bias_error if calibration else None,
            "spread": calibration.spread if calibration else None,
        },
        "homogeneous": diagnostics.homogeneous(scores, gallery, cutoff),
        "cluster_size": diagnostics.cluster_sensitivity(scores, hardness, gallery, cutoff),
        "near_duplicates": diagnostics.near_duplicates(scores, tail),
    }


def _mined_warning(hard: np.ndarray | None) -> list[str]:
    if hard is None:
        return []
    return [
        f"only hard-mined counts the {np.shape(hard)[1]} mined distractors of each query; the other estimates, the"
        " intervals and the bias are of a gallery without them, and come out too high"
    ]


def _warnings(
    scores: SampleScores,
    gallery: int,
    cutoff: int,
    facts: dict[str, Any],
    calibration: Calibration | None,
    correction: float,
) -> list[str]:
    out = []
    kept, size = scores.top.shape[1], scores.sample_size
    copies = facts["near_duplicates"]
    if copies["detected"]:
        out.append(
            f"near-duplicates of positives: {copies['found']} sampled distractors score all but exactly like"
            f" a positive where {copies['expected']:.1f} are expected; copies of positives in the pool push"
            " every estimate off, so remove them first"
        )
    if scores.quantised > QUANTISED:
        out.append(
            f"{scores.quantised:.0%} of neighbouring scores tie: they look quantised (fp16 or int8); ties"
            " count against the positive, and the default spreads them before it fits; prefer float32 scores"
        )
    if size > kept and kept * gallery / size < cutoff:
        needed = int(np.ceil(cutoff * size / gallery))
        out.append(
            f"the kept lists end early: with T = {kept} of S = {size}, positives behind them may still rank"
            f" within {cutoff} at N = {gallery}; keep at least {needed} scores per query"
        )
    if facts["paper_fit"]["exceedances"] < 30:
        out.append(f"the paper's fit has only {facts['paper_fit']['exceedances']} exceedances per query")
    unusable = 1 - float(np.mean(scores.top[:, 0] > scores.top[:, facts["posterior"]["exceedances"]]))
    if unusable > 0:
        out.append(
            f"{unusable:.1%} of queries have no tail (their best scores all tie): counts stand in for it"
        )
    if gallery > size and calibration is None:
        out.append(
            "too few kept scores for self-calibration: the model's bias is unknown and not in the intervals"
        )
    if gallery > 200 * size:
        out.append(f"N/S = {gallery / size:.0f}: beyond 200 nothing was validated (docs/tail-aware.md)")
    if correction:
        out.append(
            f"self-calibration found a bias of {calibration.bias if calibration else 0:+.4f} one step down;"
            f" {-correction:+.4f} was applied to the default estimate"
        )
    if facts["posterior"]["lump_share"] > 0.01:
        out.append(
            f"about {facts['posterior']['lump_share']:.1%} of queries have a lump of confusers above their"
            " tail: lumps too small to be in the sample are not foreseen"
        )
    if len(scores.top) < 50:
        out.append(f"only {len(scores.top)} queries: the shared prior is weak and intervals are wide")
    return out
