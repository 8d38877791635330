"""The method `ames`: logits of every shortlisted pair, from a checkpoint or the network trained in the graph."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.cache import Cache
from cairn.errors import ArtifactError
from cairn.rerank import IMAGES_FILE, QUERIES_FILE, RerankParameters
from cairn.rerank.ames import Ames
from cairn.rerank.ames_files import network_facts, score_pairs
from cairn.rerank.ames_pairs import LocalSource, PairOptions, RootSource
from cairn.rerank.checkpoints import load_ames
from cairn.rerank.pairs import Logits, Relevance
from cairn.rerank.two_stage import RankedQuery
from cairn.store.local import open_local

NETWORK_FILE = "ames.pt"
TRAINING_FILE = "training.json"


def score(
    ranked: Sequence[RankedQuery],
    local: Path,
    parameters: RerankParameters,
    relevance: Relevance,
    trained: Path,
    root: Path,
    *,
    contents: tuple[Mapping[str, str], Mapping[str, str]],
    workspace: Path,
    cache: Cache | None,
    code: str,
) -> tuple[list[Logits], dict[str, Any]]:
    """Logits of the pairs that `cairn.rerank.pairs.united` lists, and what is to be said of how they came about.

    `local`: the folder with the local features of queries and images; `trained`: what the step
    `reranker_training` wrote; a checkpoint's path is relative to `root`. `contents` are digests of the features
    by name: a query whose pairs are in `cache` is not scored again. InputError for a checkpoint that is none or
    takes other dimensions, ArtifactError where features are missing; each names file and image.
    """
    own = parameters.ames
    network = load_network(own.checkpoint, trained, root)
    options = PairOptions(own.query_length, own.gallery_length, own.dtype, device())
    logits = score_pairs(
        network,
        ranked,
        relevance if own.junk_aware else None,
        source(local / QUERIES_FILE),
        source(local / IMAGES_FILE),
        parameters.k,
        options,
        cache,
        code,
        contents,
        workspace,
    )
    facts = network_facts(network, options) | {
        "checkpoint": own.checkpoint or "trained in the graph",
        "shortlist": parameters.k,
        "pairs": int(sum(len(positions) for positions, _ in logits)),
        "device": options.device,
    }
    return logits, facts


def load_network(checkpoint: str | None, trained: Path, root: Path) -> Ames:
    """The network of a checkpoint, or the one that the graph trained."""
    if checkpoint is not None:
        return load_ames(root / checkpoint)
    facts = trained / TRAINING_FILE
    try:
        shape = json.loads(facts.read_text("utf-8"))["network"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{facts}: says of no network; run the step reranker_training") from None
    # What leaves no trace in the weights stands beside them.
    return load_ames(trained / NETWORK_FILE, shape["heads"], shape["activation"])


def source(path: Path) -> LocalSource:
    """Local descriptors as the network takes them: SIFT as RootSIFT."""
    store = open_local(path)
    return RootSource(store) if store.dtype == "uint8" else store


def device() -> str:
    """`cuda` where PyTorch has one, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
