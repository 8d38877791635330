"""The plots that dvc.yaml declares for `dvc plots`: the tables of the step `results`, each with its template."""

from typing import Any

from pipelines.project import RESULTS

# x and y of each plot: DVC wants them named, the template draws by the names of its table's columns.
AXES = {
    "slices": ("slice", "value"),
    "precision-recall": ("recall", "precision"),
    "thresholds": ("rate", "value"),
    "gallery": ("gallery", "value"),
    "tail": ("n", "value"),
    "seeds": ("value", "series"),
    "gains": ("share", "gain"),
}


def plot_entries() -> list[dict[str, Any]]:
    """The `plots` of dvc.yaml."""
    return [
        {f"{RESULTS}/plots/{name}.csv": {"x": x, "y": y, "template": f"cairn-{name}"}}
        for name, (x, y) in AXES.items()
    ]
