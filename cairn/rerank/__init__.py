"""Re-ranking of a shortlist: the second stage. A method is looked up by name and imported singly."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cairn.registry import load_module, look_up

QUERIES_FILE = "queries.hdf5"
IMAGES_FILE = "images.hdf5"
"""A second stage finds its local features in these files of one folder (see `cairn.store.local`)."""

REGISTRY = Path(__file__).with_name("registry.yaml")


class Geometry(BaseModel):
    """Parameters of `geometry`; see `cairn.rerank.geometry`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    features: Annotated[int, Field(ge=8, le=20_000)] = 700
    """Local features per image that are matched: the strongest."""
    ratio: Annotated[float, Field(gt=0, le=1)] = 0.85
    """A match is kept where its distance is below `ratio` × that of the second best."""
    threshold: Annotated[float, Field(gt=0, le=100)] = 4.0
    """MAGSAC++'s largest noise scale, in pixels of the (reduced) image that features were found in."""
    minimum: Annotated[int, Field(ge=4, le=1000)] = 6
    """Inliers from which on a pair gains anything."""
    weight: Annotated[float, Field(ge=0, le=100)] = 1.0
    """What very many inliers add to the global similarity."""
    saturation: Annotated[float, Field(gt=0, le=10_000)] = 30.0
    """Inliers beyond `minimum` that add half of that."""


class RerankParameters(BaseModel):
    """`rerank` of a system: the method, how many of each query's first images it sees, and its own keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["none", "geometry"] = "none"
    shortlist: Annotated[int, Field(ge=1, le=100_000)] = 100
    geometry: Geometry = Geometry()


@dataclass(frozen=True)
class RerankerCode:
    """What a reranker's results depend on: modules of the project and its registry entry."""

    modules: tuple[str, ...]
    entry: Mapping[str, Any]


def reranker_code(method: str) -> RerankerCode:
    """What belongs to a reranker's code, for the digest of the steps that use it. ParameterError for unknown ones."""
    entry = look_up(REGISTRY, method, "rerank.method")
    return RerankerCode((entry["module"],) if entry["module"] else (), {method: entry})


def load_reranker(method: str) -> ModuleType | None:
    """The module of a method, imported alone; None for `none`.

    It has `stage(parameters)`, the stage's slug; `local_features(parameters)`, how many local features per
    image it needs; and `rerank(queries, local, parameters)`, which yields for each RankedQuery its new scores
    (see `cairn.rerank.geometry`).
    """
    if look_up(REGISTRY, method, "rerank.method")["module"] is None:
        return None
    return load_module(REGISTRY, method, "rerank.method")
