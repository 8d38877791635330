"""The step `reranker_training`: the network of a second stage, trained on the benchmark's training images."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cairn.cache import Cache
from cairn.encoders import load_encoder
from cairn.encoders.vlad import unit
from cairn.errors import InputError, ParameterError
from cairn.files import write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.rerank import load_training
from cairn.store.descriptors import open_shards
from cairn.systems.disk import tells_full_disk
from cairn.systems.extraction import Work, gallery_views, prepared
from cairn.systems.local import write_features

FACTS_FILE = "training.json"


@tells_full_disk
def train_reranker(
    training: Manifest,
    descriptors: Path,
    root: Path,
    encoder_name: str,
    settings: Mapping[str, Any],
    parameters: Mapping[str, Any] | None,
    output: Path,
    *,
    cache: Cache | None,
    code: str,
    features_code: str,
    training_set: str = "all",
) -> None:
    """Write the trained network and `training.json` into `output`; the latter alone where nothing is trained.

    `training` holds the training images, those of its rows that are marked so and have a class; `descriptors` is
    what `extract_training_descriptors` wrote; `parameters` is `reranker_training` of a system, None for none.
    `training_set`, where it is not "all", is written down: what `training` is a part of. Images without local
    features are left out. InputError where no training image has a class, ParameterError where the encoder has no
    local features.
    """
    if parameters is None:
        note = "this system's second stage has no network to train"
        write_json(output / FACTS_FILE, {"method": None, "note": note})
        return
    encoder = load_encoder(encoder_name, settings, root)
    if encoder.features is None:
        raise ParameterError(
            f"rerank.method = {parameters['method']!r} is trained on the encoder's local features; the encoder "
            f"{encoder_name} has none: give rerank.{parameters['method']}.checkpoint, or use another encoder"
        )
    rows = [int(row) for row in training.rows(train=True) if training.label[row] is not None]
    if not rows:
        raise InputError(
            f"rerank.method = {parameters['method']!r}: no training image has a class to mine pairs from; give "
            f"rerank.{parameters['method']}.checkpoint"
        )
    work = Work(ImageSource(training, root), encoder, cache, features_code, encoder_name=encoder_name)
    most = min(encoder.features.limit, max(parameters["query_length"], parameters["gallery_length"]))
    views = gallery_views(training, rows)
    with tempfile.TemporaryDirectory(dir=output) as folder:
        path = Path(folder) / "training.hdf5"
        found = prepared(views, work, "Local features of training images")
        contents = write_features(path, views, found, encoder.features, most)
        kept = [number for number, digest in enumerate(contents) if digest != EMPTY]
        names = [views[number].name for number in kept]
        store = open_shards(descriptors)
        load_training(parameters["method"]).train(
            path,
            names,
            [str(training.label[rows[number]]) for number in kept],
            unit(store.take(store.rows_of(names)).astype(np.float32)),
            parameters,
            output,
            contents=[contents[number] for number in kept],
            cache=cache,
            code=code,
        )
    if training_set != "all":
        facts = json.loads((output / FACTS_FILE).read_text("utf-8"))
        write_json(output / FACTS_FILE, facts | {"training_set": training_set})
    if cache is not None:
        cache.prune()


EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of nothing: an image without a single feature."""
