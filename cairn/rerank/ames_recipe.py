"""How the graph trains a small AMES: triplets mined from the training images by global descriptor."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cairn.cache import Cache, entry_key
from cairn.files import write_json
from cairn.rerank.ames import AmesShape
from cairn.rerank.ames_method import NETWORK_FILE, TRAINING_FILE, source
from cairn.rerank.ames_training import Resume, TrainOptions, mine, train_ames
from cairn.rerank.checkpoints import save_state, state_digest
from cairn.rerank.parameters import AmesTraining

LAST = 20
"""Steps over which the loss is averaged at either end."""


def train(
    features: Path,
    names: Sequence[str],
    labels: Sequence[str],
    descriptors: np.ndarray,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    contents: Sequence[str],
    cache: Cache | None,
    code: str,
) -> None:
    """Write `ames.pt` and `training.json` into `output`.

    `features`: HDF5 of the local features of the images `names`, whose classes are `labels` and whose global
    `descriptors` [n, D] have unit norm. `parameters`: `reranker_training` of a system. `contents`: digests of
    each image's features, which with `code` key the state that is kept in `cache`. InputError where no image
    has both a positive and a negative.
    """
    import torch

    knobs = dict(parameters)
    lengths = {name: knobs.pop(name) for name in ("query_length", "gallery_length")}
    knobs.pop("method", None)
    wanted = AmesTraining.model_validate(knobs)
    local = source(features)
    mined = mine(descriptors, labels, wanted.candidates)
    shape = AmesShape(
        local_dim=local.dim,
        model_dim=wanted.model_dim,
        heads=wanted.heads,
        layers=wanted.layers,
        feedforward=wanted.feedforward,
        binarized=wanted.binarized,
    )
    options = TrainOptions(
        steps=wanted.steps,
        triplets=wanted.triplets,
        learning_rate=wanted.learning_rate,
        candidates=wanted.candidates,
        least=min(wanted.least, *lengths.values()),
        start=wanted.start,
        seed=wanted.seed,
        **lengths,
    )
    key = entry_key(
        kind="ames-training",
        code=code,
        images=list(zip(names, labels, contents, strict=True)),
        mined=[mined.index.tolist(), mined.similarity.tobytes().hex()],
        shape=asdict(shape),
        options=asdict(options),
        versions={"torch": torch.__version__, "numpy": np.__version__},
    )
    resume = Resume(cache, key) if cache is not None else None
    network, losses = train_ames(local, names, mined, shape, options, resume=resume)
    save_state(network, output / NETWORK_FILE)
    write_json(
        output / TRAINING_FILE,
        {
            "method": "ames",
            "network": asdict(shape),
            "options": asdict(options),
            "images": len(names),
            "classes": len(set(labels)),
            "anchors": len(mined.anchors),
            "steps": len(losses),
            "loss": {
                "first": round(float(np.mean(losses[:LAST])), 6),
                "last": round(float(np.mean(losses[-LAST:])), 6),
            },
            "weights_sha256": state_digest(network),
        },
    )
