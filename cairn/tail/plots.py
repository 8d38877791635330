"""Plots of a tail estimate, each a PNG with the table it was drawn from beside it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from cairn.files import atomic
from cairn.tail import baselines
from cairn.tail.calibration import split
from cairn.tail.estimate import TailEstimate, default_curve
from cairn.tail.hardness import evt_hardness, fit_tail
from cairn.tail.law import average_precision
from cairn.tail.posterior import choose_posterior
from cairn.tail.scores import SampleScores

_SHARES = (2, 4, 10)  # the sample is also cut into this many parts, to show what less of it would have said
_WIDTH, _HEIGHT = 520, 300


def write_plots(
    folder: Path, scores: SampleScores, result: TailEstimate, gallery: int, cutoff: int, truth: dict[str, Any]
) -> list[Path]:
    """Write every plot that the input allows into `folder`; returns the PNG files.

    gallery (metric against N), hardness (its distribution), sample (prediction against sample size) and,
    where
    `truth` holds `full_B` [P] or `true_x` [P] in the order of `scores`, truth (estimated against true
    hardness).
    """
    tables = {
        "gallery": gallery_table(scores, result, gallery, cutoff),
        "hardness": hardness_table(result),
        "sample": sample_table(scores, result, gallery, cutoff),
    }
    known = truth.get("true_x")
    if known is None and "full_B" in truth:
        known = np.maximum(truth["full_B"], 0.5) / gallery
    if known is not None and np.shape(known) == scores.score.shape:
        tables["truth"] = truth_table(scores, result, np.asarray(known, float))
    charts = {"gallery": _gallery, "hardness": _hardness, "sample": _sample, "truth": _truth}
    written = []
    for name, rows in tables.items():
        if rows:
            path = Path(folder) / f"{name}.png"
            write_plot(charts[name](rows), rows, path)
            written.append(path)
    return written


def write_plot(chart: Any, rows: list[dict[str, Any]], path: Path) -> None:
    """`chart` as PNG at `path` and `rows` as CSV under the same name."""
    import vl_convert

    image = vl_convert.vegalite_to_png(chart.to_json(), scale=1)
    with atomic(path) as temporary:
        temporary.write_bytes(image)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with atomic(path.with_suffix(".csv")) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def gallery_table(
    scores: SampleScores, result: TailEstimate, gallery: int, cutoff: int
) -> list[dict[str, Any]]:
    """Mean AP@K against N: the law within the sample, each estimator beyond it, the fixed-query interval at
    N."""
    curve = baselines.sample_curve(scores, cutoff)
    rows = [
        {"n": int(n), "map": float(v), "series": "sample"}
        for n, v in zip(curve.sizes, curve.values, strict=True)
    ]
    sizes = np.unique(np.geomspace(scores.sample_size, max(gallery, scores.sample_size + 1) * 3, 16).round())
    x = evt_hardness(scores, result.tail)
    series = {
        "default": default_curve(scores, result.posteriors, sizes, cutoff),
        "evt": np.array([baselines.per_query(scores, x, n, cutoff).mean() for n in sizes]),
        "count": np.array([baselines.count(scores, n, cutoff).mean() for n in sizes]),
        "naive": np.full(len(sizes), baselines.naive(scores, cutoff).mean()),
    }
    for name, predict in baselines.fit_curves(curve, cutoff).items():
        series[name] = predict(sizes)
    for name, values in series.items():
        rows += [{"n": int(n), "map": float(v), "series": name} for n, v in zip(sizes, values, strict=True)]
    low, high = result.ci95["fixed_queries"]
    center = result.estimates.get("default", (low + high) / 2)
    rows.append({"n": gallery, "map": center, "series": "interval", "low": low, "high": high})
    return rows


def hardness_table(result: TailEstimate, bins: int = 30) -> list[dict[str, Any]]:
    """Positives per decade of estimated hardness, and the fitted power law x^a through the window around
    1/N."""
    decades = np.log10(np.maximum(result.hardness, 1e-15))
    count, edges = np.histogram(decades, bins=bins, range=(-15, 0))
    middle = (edges[1:] + edges[:-1]) / 2
    slope = result.diagnostics["posterior"]["hardness_slope"]
    center = -np.log10(result.diagnostics["gallery"])
    window = np.abs(middle - center) <= 6 / np.log(10)
    shape = 10 ** (slope * (middle - center))
    scale = count[window].sum() / max(shape[window].sum(), 1e-300)
    return [
        {"log10_x": float(m), "positives": int(c), "power_law": float(scale * s) if w else None}
        for m, c, s, w in zip(middle, count, shape, window, strict=True)
    ]


def sample_table(
    scores: SampleScores, result: TailEstimate, gallery: int, cutoff: int
) -> list[dict[str, Any]]:
    """What 1/2, 1/4 and 1/10 of the sample would have predicted at N, beside the whole sample."""
    rows = []
    for parts in (1, *_SHARES):
        top = scores.top if parts == 1 else split(scores.top, parts, 1, 0)[0]
        if top.shape[1] < 25:
            continue
        part = scores.with_top(top, max(scores.sample_size // parts, top.shape[1]))
        prediction = choose_posterior(part, gallery, cutoff).prediction
        terms = average_precision(prediction.precision, scores.query, scores.positives, cutoff)
        x = evt_hardness(part, fit_tail(top, max(round(top.shape[1] * 0.05), 10)))
        values = {
            "default": terms.mean(),
            "evt": baselines.per_query(part, x, gallery, cutoff).mean(),
            "count": baselines.count(part, gallery, cutoff).mean(),
            "naive": baselines.naive(part, cutoff).mean(),
        }
        rows += [{"sample": part.sample_size, "map": float(v), "series": n} for n, v in values.items()]
    return rows


def truth_table(scores: SampleScores, result: TailEstimate, true_x: np.ndarray) -> list[dict[str, Any]]:
    """Estimated and true log10 hardness of every positive, and whether the sample resolved it."""
    return [
        {
            "true": float(t),
            "estimate": float(e),
            "source": "counted" if c >= 1 else "extrapolated",
        }
        for t, e, c in zip(
            np.log10(np.maximum(true_x, 1e-15)),
            np.log10(np.maximum(result.hardness, 1e-15)),
            scores.counts,
            strict=True,
        )
    ]


def _gallery(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    x = alt.X(
        "n:Q", scale=alt.Scale(type="log", nice=False), title="gallery size N", axis=alt.Axis(format=".0e")
    )
    lines = alt.Chart(alt.Data(values=[r for r in rows if r["series"] != "interval"])).mark_line()
    lines = lines.encode(x, alt.Y("map:Q", title="mAP"), alt.Color("series:N", title=None))
    interval = alt.Chart(alt.Data(values=[r for r in rows if r["series"] == "interval"]))
    bar = interval.mark_rule(strokeWidth=3).encode(x, alt.Y("low:Q", title="mAP"), alt.Y2("high:Q"))
    dot = interval.mark_point(filled=True, size=60, color="black").encode(x, alt.Y("map:Q", title="mAP"))
    return alt.layer(lines, bar, dot).properties(width=_WIDTH, height=_HEIGHT)


def _hardness(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    base = alt.Chart(alt.Data(values=rows)).encode(alt.X("log10_x:Q", title="log10 hardness x"))
    bars = base.mark_bar(size=13).encode(alt.Y("positives:Q", title="positives"))
    fitted = alt.Chart(alt.Data(values=[r for r in rows if r["power_law"] is not None]))
    line = fitted.mark_line(color="black").encode(
        alt.X("log10_x:Q", title="log10 hardness x"), alt.Y("power_law:Q", title="positives")
    )
    return alt.layer(bars, line).properties(width=_WIDTH, height=_HEIGHT)


def _sample(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            alt.X(
                "sample:Q",
                scale=alt.Scale(type="log", nice=False),
                title="sample size S",
                axis=alt.Axis(format=".0e"),
            ),
            alt.Y("map:Q", title="predicted mAP at N", scale=alt.Scale(zero=False)),
            alt.Color("series:N", title=None),
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )


def _truth(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    points = (
        alt.Chart(alt.Data(values=rows))
        .mark_circle(size=12, opacity=0.5)
        .encode(
            alt.X("true:Q", title="log10 true x"),
            alt.Y("estimate:Q", title="log10 estimated x"),
            alt.Color("source:N", title=None),
        )
    )
    ends = [{"true": -15, "estimate": -15}, {"true": 0, "estimate": 0}]
    line = (
        alt.Chart(alt.Data(values=ends))
        .mark_line(color="black", strokeWidth=1)
        .encode(x="true:Q", y="estimate:Q")
    )
    return alt.layer(points, line).properties(width=_WIDTH, height=_WIDTH)
