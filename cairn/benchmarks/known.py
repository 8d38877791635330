"""Published benchmarks by name: what `roxford5k-1m` stands for, without an entry in params.yaml."""

from pathlib import Path
from typing import Any

from cairn.registry import read_registry

KNOWN = Path(__file__).with_name("known.yaml")


def known_benchmarks() -> dict[str, dict[str, Any]]:
    """Name → `adapter`, `settings`, and `metric` (None: the adapter's own) of every published benchmark."""
    return {
        name: {
            "adapter": entry["adapter"],
            "metric": entry.get("metric"),
            "settings": dict(entry.get("settings", {})),
        }
        for name, entry in read_registry(KNOWN).items()
    }


def entry_of(name: str) -> dict[str, Any] | None:
    """The entry that `params.yaml` would hold for a known benchmark (without `training`); None for others."""
    entry = known_benchmarks().get(name)
    if entry is None:
        return None
    metric = {"metric": entry["metric"]} if entry["metric"] else {}
    return {"adapter": entry["adapter"], **metric, **entry["settings"]}
