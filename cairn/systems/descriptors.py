"""The steps `descriptors` and `training_descriptors`: one global descriptor per image and per query."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache, entry_key
from cairn.encoders import encoder_facts, load_encoder
from cairn.errors import CairnError, InputError
from cairn.files import atomic, write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.progress import say
from cairn.store.descriptors import QUERIES_FILE, DescriptorStore, open_queries, open_shards, write_shard
from cairn.store.shards import assign_shards, shard_name
from cairn.systems.disk import tells_full_disk
from cairn.systems.extraction import (
    Work,
    described,
    described_batch,
    device,
    gallery_views,
    prepared,
    query_views,
)
from cairn.systems.features import View
from cairn.systems.guards import encoder_key
from cairn.systems.vocabulary import learned_digest, read_learned

DTYPE = "float16"
FACTS_FILE = "descriptors.json"
TRAINING_FACTS_FILE = "training_descriptors.json"
BATCH = 32
"""Views that an encoder which wants batches gets at once; a batch never spans shards."""


@tells_full_disk
def extract_descriptors(
    manifest: Manifest,
    truth: GroundTruth,
    root: Path,
    vocabulary: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    cache: Cache | None,
    code: str,
    features_code: str,
) -> None:
    """Write shards of the gallery (`0000.parquet`, …), `queries.parquet` and `descriptors.json` into `output`.

    `truth` gives the queries, which are cropped to their boxes; `root` is what archives' paths are relative to;
    `vocabulary` is what `learn_vocabulary` wrote. Descriptors are stored as float16. `code` is the digest of
    this step's code, `features_code` of the part that makes local features: both key the cache, from which
    finished shards and features are taken. An image without any feature gets a zero descriptor, which is as
    similar (0) to every query; `descriptors.json` lists them. InputError for a query that is a text.
    """
    work = _work(manifest, root, vocabulary, encoder_name, parameters, cache, features_code)
    rows = manifest.rows(gallery=True)
    if not len(rows):
        raise InputError("the manifest has no gallery images")
    files = _shards(manifest, rows, output)
    files.append((output / QUERIES_FILE, query_views(manifest, truth, encoder_name)))
    if not files[-1][1]:
        raise InputError("the ground truth has no queries")
    _extract(files, work, vocabulary, code, "Describing images")
    _write_facts(output, encoder_name, root)
    if cache is not None:
        cache.prune()


@tells_full_disk
def extract_training_descriptors(
    training: Manifest,
    root: Path,
    vocabulary: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    wanted: bool,
    cache: Cache | None,
    code: str,
    features_code: str,
) -> None:
    """Write shards of the training images and `training_descriptors.json` into `output`, as for a gallery.

    `training` holds the training images, those of its rows that are marked so; the other arguments are those of
    `extract_descriptors`. Where nothing that learns on descriptors asks for them (`wanted`), the file alone
    is written, and says so. InputError where they are wanted and there is no training image.
    """
    if not wanted:
        note = "no head and no read-out of this system learns on descriptors of training images"
        write_json(output / TRAINING_FACTS_FILE, {"encoder": encoder_name, "images": 0, "note": note})
        return
    work = _work(training, root, vocabulary, encoder_name, parameters, cache, features_code)
    rows = training.rows(train=True)
    if not len(rows):
        raise InputError(
            f"{encoder_name}: something is to be learned on training images, but the training manifest has none"
        )
    _extract(_shards(training, rows, output), work, vocabulary, code, "Describing training images")
    store = open_shards(output)
    empty = _without_features(store)
    if empty:
        say(f"{len(empty)} training images have no features: their descriptor is zero (first: {empty[0]})")
    write_json(
        output / TRAINING_FACTS_FILE,
        {
            "encoder": encoder_name,
            "dim": store.dim,
            "dtype": DTYPE,
            "images": len(store),
            "without_features": empty,
        },
    )
    if cache is not None:
        cache.prune()


def _work(
    manifest: Manifest,
    root: Path,
    vocabulary: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    cache: Cache | None,
    features_code: str,
) -> Work:
    encoder = load_encoder(encoder_name, parameters, root)
    learned = read_learned(vocabulary)
    if encoder.learns and not learned:
        raise InputError(
            f"{encoder_name} needs what it learns from training images, but {vocabulary} is empty"
        )
    return Work(ImageSource(manifest, root), encoder, cache, features_code, learned, encoder_name)


def _shards(
    manifest: Manifest, rows: Sequence[int] | np.ndarray, output: Path
) -> list[tuple[Path, list[View]]]:
    """File and views of each shard that has an image."""
    return [
        (output / shard_name(number), gallery_views(manifest, np.asarray(rows)[members]))
        for number, members in enumerate(assign_shards([manifest.image_id[row] for row in rows]))
        if members
    ]


def _extract(
    files: Sequence[tuple[Path, list[View]]], work: Work, vocabulary: Path, code: str, description: str
) -> None:
    """Write the files, those that the cache holds from there."""
    encoder, encoder_name, cache = work.encoder, work.encoder_name, work.cache
    about = {
        "encoder": encoder_name,
        "parameters": json.dumps(encoder_key(encoder, encoder_name), sort_keys=True),
        "learned": learned_digest(vocabulary),
        "dtype": DTYPE,
        "device": device(),
        "batch": "1" if encoder.in_workers else str(BATCH),
    }
    keys = [
        entry_key(
            kind="descriptors",
            views=[[view.name, work.source.manifest.sha256[view.row], view.box] for view in views],
            code=code,
            features_code=work.features_code,
            about=about,
        )
        for _, views in files
    ]
    absent = []
    for (path, views), entry in zip(files, keys, strict=True):
        data = cache.get(entry) if cache is not None else None
        if data is None:
            absent.append((path, views, entry))
        else:
            with atomic(path) as temporary:
                temporary.write_bytes(data)
    stream = _rows([views for _, views, _ in absent], work, description)
    for path, views, entry in absent:
        array = _checked(list(itertools.islice(stream, len(views))), views, encoder_name)
        id_column = "query_id" if path.name == QUERIES_FILE else "image_id"
        write_shard(path, [view.name for view in views], array, about, id_column=id_column)
        if cache is not None:
            cache.put(entry, path.read_bytes())


def _rows(shards: Sequence[Sequence[View]], work: Work, description: str) -> Iterator[np.ndarray]:
    """The descriptors of all views in order."""
    views = [view for shard in shards for view in shard]
    if work.encoder.in_workers:
        yield from described(views, work, description)
        return
    stream = prepared(views, work, description)
    for shard in shards:
        for start in range(0, len(shard), BATCH):
            batch = shard[start : start + BATCH]
            yield from described_batch(list(itertools.islice(stream, len(batch))), batch, work)


def _checked(rows: list[np.ndarray], views: Sequence[View], encoder_name: str) -> np.ndarray:
    """float16 [views, dim]. CairnError, naming the encoder, where descriptors have no common dimension."""
    if len({np.shape(row) for row in rows}) != 1 or len(rows) != len(views) or np.ndim(rows[0]) != 1:
        shapes = sorted({np.shape(row) for row in rows})
        raise CairnError(
            f"encoder {encoder_name}: {len(rows)} descriptors of shapes {shapes} for {len(views)} images; one "
            "vector of one length each is expected"
        )
    with np.errstate(over="ignore"):
        return np.array(rows).astype(DTYPE)


def _write_facts(output: Path, encoder_name: str, root: Path) -> None:
    gallery, queries = open_shards(output), open_queries(output)
    empty = {
        "images": _without_features(gallery),
        "queries": _without_features(queries),
    }
    for what, names in empty.items():
        if names:
            say(f"{len(names)} {what} have no features: their descriptor is zero (first: {names[0]})")
    write_json(
        output / FACTS_FILE,
        {
            "encoder": encoder_name,
            "facts": encoder_facts(encoder_name, root),
            "dim": gallery.dim,
            "dtype": DTYPE,
            "images": len(gallery),
            "queries": len(queries),
            "without_features": empty,
        },
    )


def _without_features(store: DescriptorStore) -> list[str]:
    """Ids whose descriptor is zero, sorted."""
    found, start = [], 0
    for block in store.blocks():
        found.extend(store.ids[start + int(row)] for row in np.flatnonzero(~block.any(axis=1)))
        start += len(block)
    return sorted(found)
