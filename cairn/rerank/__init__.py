"""Re-ranking of a shortlist: the second stage. A method is looked up by name and imported singly."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cairn.registry import load_module, look_up
from cairn.rerank.parameters import BY_PAIRS, Geometry, RerankParameters, parts

__all__ = [
    "IMAGES_FILE",
    "QUERIES_FILE",
    "Geometry",
    "RerankParameters",
    "RerankerCode",
    "load_local",
    "load_reranker",
    "load_training",
    "parts",
    "reranker_code",
]

QUERIES_FILE = "queries.hdf5"
IMAGES_FILE = "images.hdf5"
"""A second stage finds its local features in these files of one folder (see `cairn.store.local`)."""

REGISTRY = Path(__file__).with_name("registry.yaml")
LOCAL_REGISTRY = Path(__file__).parent / "local" / "registry.yaml"


@dataclass(frozen=True)
class RerankerCode:
    """What a reranker's results depend on: modules of the project, registry entry, files of the user's.

    `features` are modules whose closure decides local features that are not the encoder's.
    """

    modules: tuple[str, ...]
    entry: Mapping[str, Any]
    files: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


def reranker_code(rerank: Mapping[str, Any], step: str = "reranking") -> RerankerCode:
    """What belongs to a step's code because of `rerank` (a system's checked parameters, any part of them).

    `step` is `reranking`, `local` or `reranker_training`. ParameterError for an unknown method.
    """
    method = rerank["method"]
    entry = look_up(REGISTRY, method, "rerank.method")
    after = rerank.get("after")
    earlier = (look_up(REGISTRY, after["method"], "rerank.after.method")["module"],) if after else ()
    if step == "reranker_training":
        module = entry.get("training")
        return RerankerCode((module,) if module else (), {method: entry})
    if step == "local":
        source = local_source(rerank)
        if source == "encoder":
            return RerankerCode(earlier, {method: entry})
        module = look_up(LOCAL_REGISTRY, source, "local features")["module"]
        return RerankerCode((*earlier, module), {source: module}, local_files(rerank), (module,))
    own = (entry["module"],) if entry["module"] else ()
    checkpoint = rerank.get("ames", {}).get("checkpoint") if method == "ames" else None
    return RerankerCode((*own, *earlier), {method: entry}, (checkpoint,) if checkpoint else ())


def local_source(rerank: Mapping[str, Any]) -> str:
    """Where local features come from: `encoder`, `xfeat`, `dinov2` or `files`."""
    if rerank["method"] == "geometry":
        return rerank["geometry"].get("local", "encoder")
    if rerank["method"] == "ames":
        return next((name for name in ("dinov2", "files") if rerank["ames"].get(name)), "encoder")
    return "encoder"


def local_files(rerank: Mapping[str, Any]) -> tuple[str, ...]:
    """The user's files that local features are made from: weights, or borrowed descriptors."""
    ames = rerank.get("ames", {}) if rerank["method"] == "ames" else {}
    found: list[str | None] = []
    if model := ames.get("dinov2"):
        found += [f"{model['model']}/config.json", f"{model['model']}/model.safetensors", model["detector"]]
    if files := ames.get("files"):
        found += [files["queries"], *files["gallery"], files["query_names"], files["gallery_names"]]
    return tuple(path for path in found if path)


def load_reranker(method: str) -> ModuleType | None:
    """The module of a method, imported alone; None for `none`.

    One by pairs has `stage(parameters)`, the stage's slug, and `rerank(queries, local, parameters)`, which
    yields for each RankedQuery its new scores (`geometry`), or `score(…)`, which gives logits (`ames`). One
    by descriptors is `cairn.rerank.by_descriptors`.
    """
    if look_up(REGISTRY, method, "rerank.method")["module"] is None:
        return None
    return load_module(REGISTRY, method, "rerank.method")


def load_training(method: str) -> ModuleType:
    """The module that trains a method's network, imported alone; it has `train(…)`."""
    import importlib

    return importlib.import_module(look_up(REGISTRY, method, "rerank.method")["training"])


def load_local(source: str) -> ModuleType:
    """The module of a source of local features other than the encoder's, imported alone."""
    return load_module(LOCAL_REGISTRY, source, "local features")


def needs_local(rerank: RerankParameters) -> bool:
    """Whether the method looks at local features."""
    return rerank.method in BY_PAIRS
