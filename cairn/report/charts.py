"""The plots as Vega-Lite, drawn with Altair: one function per table of `cairn.report.plots`.

Colours are CSS variables of the page (`--c1` …), so that one picture serves light, dark and paper; series differ in
shape or dash too, for eyes and printers that do not tell colours apart.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cairn.report.words import metric_title
from cairn.results.show import slice_key

COLOURS = 8
MOST_SERIES = 8
MOST_CATEGORIES = 60
ROWS = "rows"
"""The name under which a chart finds its rows."""

_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 4], [4, 1], [6, 2, 2, 2]]
_SHAPES = [
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
]
_BARS = 6  # more slices than this are dots in lines, since bars would be too thin to read

Rows = Sequence[Mapping[str, Any]]


def chart(name: str, rows: Rows) -> dict[str, Any]:
    """The Vega-Lite specification of the plot `name` for `rows`, whose data is called ROWS and not inside."""
    drawn = CHARTS[name](rows)
    spec = drawn.to_dict(validate=True)
    spec.pop("$schema", None)
    spec.pop("datasets", None)
    spec["config"] = CONFIG
    return spec


CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": "transparent"},
    "axis": {
        "labelColor": "var(--ink-2)",
        "titleColor": "var(--ink-2)",
        "titleFontWeight": 500,
        "gridColor": "var(--rule)",
        "domainColor": "var(--rule-2)",
        "tickColor": "var(--rule-2)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 260,
    },
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--ink-2)",
        "labelFontSize": 12,
        "labelLimit": 380,
        "symbolStrokeWidth": 2,
        "orient": "top",
        "direction": "vertical",
        "columns": 1,
    },
}


def choose_series(rows: Rows, key: str = "series", value: str = "value") -> list[str]:
    """The names of the MOST_SERIES series with the highest mean, the best first."""
    sums: dict[str, list[float]] = {}
    for row in rows:
        sums.setdefault(row[key], []).append(row[value])
    order = sorted(sums, key=lambda name: (-sum(sums[name]) / len(sums[name]), name))
    return order[:MOST_SERIES]


def _base(height: int) -> Any:
    import altair as alt

    return alt.Chart(alt.NamedData(name=ROWS), width="container", height=height)


def _colour(rows: Rows) -> Any:
    import altair as alt

    return alt.Color("series:N", title=None, scale=_scale(rows, "series", _palette()))


def _intervals(rows: Rows) -> bool:
    """Whether there is one to draw: a mean over seeds has none."""
    return any(row["low"] is not None for row in rows)


def _palette() -> list[str]:
    return [f"var(--c{number + 1})" for number in range(COLOURS)]


def _scale(rows: Rows, key: str, values: Sequence[Any]) -> Any:
    import altair as alt

    domain = list(dict.fromkeys(row[key] for row in rows))
    repeated = [values[place % len(values)] for place in range(len(domain))]
    return alt.Scale(domain=domain, range=repeated)


def slices_chart(rows: Rows) -> Any:
    """Bars by slice with intervals where slices are few (easy, medium, hard); else a line of dots each."""
    import altair as alt

    names = sorted({row["slice"] for row in rows}, key=slice_key)
    title = f"{metric_title(rows[0]['metric'])} (percent)"
    tips = [
        alt.Tooltip("series:N"),
        alt.Tooltip("slice:N"),
        alt.Tooltip("value:Q", format=".1f"),
        alt.Tooltip("low:Q", format=".1f"),
        alt.Tooltip("high:Q", format=".1f"),
    ]
    if len(names) <= _BARS:
        series = list(dict.fromkeys(row["series"] for row in rows))
        x = alt.X("slice:N", sort=names, title=None, axis=alt.Axis(labelAngle=0, labelFontSize=13))
        offset = alt.XOffset("series:N", sort=series)
        y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, 100]))
        bars = (
            _base(280)
            .mark_bar(cornerRadiusTopLeft=2, cornerRadiusTopRight=2)
            .encode(x, y, offset, _colour(rows), tooltip=tips)
        )
        rules = (
            _base(280)
            .mark_rule(stroke="var(--ink)", strokeWidth=1.5)
            .encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), offset)
        )
        return alt.layer(bars, rules) if _intervals(rows) else bars
    height = 30 + 20 * len(names)
    y = alt.Y("slice:N", sort=names, title=None, axis=alt.Axis(grid=True))
    x = alt.X("value:Q", title=title, scale=alt.Scale(domain=[0, 100]))
    dots = (
        _base(height)
        .mark_point(filled=True, size=55, opacity=0.95)
        .encode(
            x,
            y,
            _colour(rows),
            alt.Shape("series:N", title=None, scale=_scale(rows, "series", _SHAPES)),
            tooltip=tips,
        )
    )
    rules = (
        _base(height)
        .mark_rule(opacity=0.55)
        .encode(alt.X("low:Q", title=title), alt.X2("high:Q"), y, _colour(rows))
    )
    return alt.layer(rules, dots) if _intervals(rows) else dots


def precision_recall_chart(rows: Rows) -> Any:
    """Precision against recall over all predictions, with the line of precision 90."""
    import altair as alt

    line = (
        _base(320)
        .mark_line(interpolate="linear", strokeWidth=2)
        .encode(
            alt.X("recall:Q", title="recall (percent)", scale=alt.Scale(domain=[0, 100])),
            alt.Y("precision:Q", title="precision (percent)", scale=alt.Scale(domain=[0, 100])),
            _colour(rows),
            alt.StrokeDash("series:N", title=None, scale=_scale(rows, "series", _DASHES)),
            alt.Order("recall:Q"),
            tooltip=[
                alt.Tooltip("series:N"),
                alt.Tooltip("recall:Q", format=".1f"),
                alt.Tooltip("precision:Q", format=".1f"),
                alt.Tooltip("score:Q", format=".4f"),
            ],
        )
    )
    ninety = _base(320).mark_rule(stroke="var(--ink-2)", strokeDash=[2, 4]).encode(y=alt.datum(90))
    return alt.layer(ninety, line)


def thresholds_chart(rows: Rows) -> Any:
    """mAP@1 at the threshold of each false-positive rate."""
    import altair as alt

    return (
        _base(280)
        .mark_line(point=True, strokeWidth=2)
        .encode(
            alt.X("rate:Q", title="false-positive rate of the threshold", scale=alt.Scale(domain=[0, 1])),
            alt.Y("value:Q", title="mAP@1 (percent)", scale=alt.Scale(domain=[0, 100])),
            _colour(rows),
            alt.StrokeDash("series:N", title=None, scale=_scale(rows, "series", _DASHES)),
            tooltip=[
                alt.Tooltip("series:N"),
                alt.Tooltip("rate:Q", format=".1f"),
                alt.Tooltip("value:Q", format=".1f"),
                alt.Tooltip("threshold:Q", format=".4f"),
            ],
        )
    )


def gallery_chart(rows: Rows) -> Any:
    """The metric against the gallery's size, on a logarithmic axis; measured."""
    return _against_size(rows, "gallery", "images in the gallery", "series")


def tail_chart(rows: Rows) -> Any:
    """Tail-aware estimates against the number of distractors, on a logarithmic axis, with the interval at N."""
    return _against_size(rows, "n", "distractors N", "estimator")


def _against_size(rows: Rows, size: str, title: str, key: str) -> Any:
    import altair as alt

    x = alt.X(
        f"{size}:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~s", tickCount=6, labelOverlap=True),
    )
    label = f"{metric_title(rows[0]['metric'])} (percent)"
    y = alt.Y("value:Q", title=label, scale=alt.Scale(zero=False))
    tips = [
        alt.Tooltip(f"{key}:N"),
        alt.Tooltip(f"{size}:Q", format=",d"),
        alt.Tooltip("value:Q", format=".1f"),
    ]
    drawn = f"datum.{key} != 'interval'" if key == "estimator" else "true"
    lines = (
        _base(280)
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=2)
        .transform_filter(drawn)
        .encode(
            x,
            y,
            _series(rows, key),
            alt.StrokeDash(f"{key}:N", title=None, scale=_drawn(rows, key, _DASHES)),
            tooltip=tips,
        )
    )
    bars = (
        _base(280)
        .mark_rule(stroke="var(--ink)", strokeWidth=2)
        .transform_filter("isValid(datum.low)")
        .encode(x, alt.Y("low:Q", title=label), alt.Y2("high:Q"))
    )
    return alt.layer(lines, bars) if _intervals(rows) else lines


def _series(rows: Rows, key: str) -> Any:
    import altair as alt

    return alt.Color(f"{key}:N", title=None, scale=_drawn(rows, key, _palette()))


def _drawn(rows: Rows, key: str, values: Sequence[Any]) -> Any:
    return _scale([row for row in rows if row[key] != "interval"], key, values)


def seeds_chart(rows: Rows) -> Any:
    """Every seed's value, a tick for their mean."""
    import altair as alt

    names = list(dict.fromkeys(row["series"] for row in rows))
    y = alt.Y("series:N", sort=names, title=None, axis=alt.Axis(grid=True))
    x = alt.X("value:Q", title=f"{metric_title(rows[0]['metric'])} (percent)", scale=alt.Scale(zero=False))
    height = 20 + 26 * len(names)
    tips = [alt.Tooltip("series:N"), alt.Tooltip("seed:N"), alt.Tooltip("value:Q", format=".2f")]
    points = _base(height).mark_point(size=60, strokeWidth=1.6, color="var(--c1)").encode(x, y, tooltip=tips)
    means = (
        _base(height).mark_tick(thickness=3, size=20, color="var(--ink)").encode(alt.X("mean(value):Q"), y)
    )
    return alt.layer(points, means)


def gains_chart(rows: Rows) -> Any:
    """What a later stage gave each query, from the largest loss to the largest gain."""
    import altair as alt

    line = (
        _base(240)
        .mark_line(strokeWidth=2, interpolate="step")
        .encode(
            alt.X(
                "share:Q",
                title="queries (percent), by their gain",
                scale=alt.Scale(domain=[0, 100]),
            ),
            alt.Y("gain:Q", title="gain (points)"),
            _colour(rows),
            alt.StrokeDash("series:N", title=None, scale=_scale(rows, "series", _DASHES)),
            tooltip=[
                alt.Tooltip("series:N"),
                alt.Tooltip("share:Q", format=".0f"),
                alt.Tooltip("gain:Q", format="+.1f"),
            ],
        )
    )
    zero = _base(240).mark_rule(stroke="var(--ink-2)", strokeDash=[2, 4]).encode(y=alt.datum(0))
    return alt.layer(zero, line)


CHARTS: Mapping[str, Callable[[Rows], Any]] = {
    "slices": slices_chart,
    "precision-recall": precision_recall_chart,
    "thresholds": thresholds_chart,
    "gallery": gallery_chart,
    "tail": tail_chart,
    "seeds": seeds_chart,
    "gains": gains_chart,
}
