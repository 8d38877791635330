"""`cairn fetch`: one benchmark's files, by its entry in params.yaml or by its name alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.benchmarks.adapters import load_adapter
from cairn.errors import UsageError
from cairn.fetch.folder import DOWNLOADS, describe


def fetch_benchmark(
    name: str, adapter_name: str, settings: Mapping[str, Any], root: Path, only: str | None = None
) -> dict[str, Any]:
    """Bring a benchmark's files (all, or only the `truth` or the `images`) into the project's download folder.

    Returns what `--json` prints: `benchmark`, `folder`, and `files` as `sources.json` describes them. The step
    `sources` finds them there and downloads nothing again. UsageError where the benchmark has nothing to fetch.
    """
    from cairn.benchmarks.published import fetch_published

    adapter = load_adapter(adapter_name, f"benchmarks.{name}.adapter")
    if not hasattr(adapter, "SOURCES"):
        raise UsageError(f"{name} has nothing to download: its adapter is {adapter_name}")
    if hasattr(adapter, "fetch"):
        found = adapter.fetch(settings, root, only=only)
    else:
        found = fetch_published(adapter.SOURCES, adapter.parts(settings), settings, root, only=only)
    folder = (DOWNLOADS / adapter.SOURCES.stem).as_posix()
    return {"benchmark": name, "folder": folder, "files": describe(found, root)}
