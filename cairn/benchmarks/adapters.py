"""Adapters: one module per benchmark, picked by name, that turns its own files into the common structure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pydantic import BaseModel

from cairn.benchmarks.structure import GroundTruth
from cairn.files import write_json
from cairn.registry import load_module, look_up

REGISTRY = Path(__file__).with_name("registry.yaml")


class Adapter(Protocol):
    """What an adapter module offers.

    `Parameters` checks the benchmark's own keys in `params.yaml`; those named in `EXTERNAL` are paths of files
    or folders that the user brings. `METRIC` is the protocol where `params.yaml` names none. `ABOUT` has the
    title, whether the images are synthetic, and notes that are shown beside every number.
    """

    Parameters: type[BaseModel]
    EXTERNAL: tuple[str, ...]
    METRIC: str
    ABOUT: Mapping[str, Any]

    def write_sources(self, settings: Mapping[str, Any], root: Path, output: Path) -> None:
        """Draw, download or list the benchmark's files under `output`, with `sources.json` beside them."""
        ...

    def images(self, settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
        """The images for `cairn.images.manifest.build_manifest`."""
        ...

    def ground_truth(self, settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
        """Queries and relevance in the common structure."""
        ...


def load_adapter(name: str, where: str) -> Any:
    """The adapter module registered as `name`; `ParameterError` (naming `where`) for any other."""
    module: ModuleType = load_module(REGISTRY, name, where)
    return module


def adapter_entry(name: str) -> dict[str, Any]:
    """The registry's entry of an adapter."""
    return look_up(REGISTRY, name, "adapter")


def write_about(path: Path, benchmark: str, adapter: Any, notes: Sequence[str] = ()) -> None:
    """Write `benchmark.json`: name, title, protocol, whether synthetic, notes; what stands beside every number.

    `notes` are those of these images, beside the adapter's own.
    """
    about = dict(adapter.ABOUT)
    write_json(path, {"name": benchmark, **about, "notes": [*about["notes"], *notes]})
