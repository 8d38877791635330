"""Writes the templates of `dvc plots` (.dvc/plots): the report's own plots, a row per benchmark, a column per revision.

Run after changing `cairn/report/charts.py`: `python -m pipelines.plot_templates`.
"""

import json
from pathlib import Path
from typing import Any

from cairn.files import atomic
from cairn.report.charts import CONFIG, chart
from cairn.report.plots import TABLES
from pipelines.plots import AXES
from pipelines.project import find_root

FOLDER = ".dvc/plots"
# What the page's style sheet calls these in its light colours.
COLOURS = {
    "var(--ink)": "#1c2226",
    "var(--ink-2)": "#525b61",
    "var(--rule)": "#e5e1d8",
    "var(--rule-2)": "#aaa59a",
}
TEXTS = ("benchmark", "series", "system", "metric", "slice", "estimator", "seed")
# What a row of pictures is for: a benchmark, and a slice of it where a curve is drawn of each.
PARTS = dict.fromkeys(("precision-recall", "gallery", "seeds"), "datum.benchmark + ', ' + datum.slice")
PARTS["tail"] = "datum.benchmark + ', ' + datum.system"
FIRST = "#1d6a5f"
WIDTH = 380


def template(name: str) -> dict[str, Any]:
    """The Vega-Lite template of the plot `name`, with DVC's anchor in place of its rows."""
    example = dict.fromkeys(TABLES[name].columns, 1.0) | {"series": "a", "slice": "all", "metric": "value"}
    numbers = {column: "number" for column in TABLES[name].columns if column not in TEXTS}
    inner = _bare(chart(name, [example]))
    inner.pop("config")
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": "<DVC_METRIC_TITLE>",
        # DVC hands over a CSV's values as text.
        "data": {"values": "<DVC_METRIC_DATA>", "format": {"type": "json", "parse": numbers}},
        "transform": [{"calculate": PARTS.get(name, "datum.benchmark"), "as": "part"}],
        "facet": {"row": {"field": "part", "title": None}, "column": {"field": "rev", "title": None}},
        "resolve": {"scale": {"x": "independent"}},
        "spec": inner,
        "config": _bare(CONFIG) | {"background": "white"},
    }


def _bare(value: Any) -> Any:
    """`value` without what the page gives it: data, the domains of its series, sizes and colours by name."""
    if isinstance(value, dict):
        made = {key: _bare(item) for key, item in value.items() if key not in ("data", "sort")}
        if isinstance(made.get("scale"), dict) and "range" in made["scale"]:
            del made["scale"]
        return {key: WIDTH if item == "container" else item for key, item in made.items()}
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if isinstance(value, str) and value.startswith("var("):
        return COLOURS.get(value, FIRST)
    return value


def template_texts() -> dict[str, str]:
    """Path below the project → text, for every template."""
    return {
        f"{FOLDER}/cairn-{name}.json": json.dumps(template(name), indent=1, sort_keys=True) + "\n"
        for name in AXES
    }


def main() -> None:
    root = find_root()
    for name, text in template_texts().items():
        with atomic(Path(root) / name) as temporary:
            temporary.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
