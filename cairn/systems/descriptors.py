"""The step `descriptors`: one global descriptor per gallery image and per query."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache, entry_key
from cairn.encoders import encoder_facts, load_encoder
from cairn.errors import CairnError, InputError
from cairn.executor import Executor, LocalExecutor
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
    executor: Executor | None = None,
) -> None:
    """Write shards of the gallery (`0000.parquet`, …), `queries.parquet` and `descriptors.json` into `output`.

    `truth` gives the queries, which are cropped to their boxes; `root` is what archives' paths are relative to;
    `vocabulary` is what `learn_vocabulary` wrote. Descriptors are stored as float16. `code` is the digest of
    this step's code, `features_code` of the part that makes local features: both key the cache, from which
    finished shards and features are taken. An image without any feature gets a zero descriptor, which is as
    similar (0) to every query; `descriptors.json` lists them. What is absent is described by `executor`, shard by
    shard; the bytes do not depend on it. InputError for a query that is a text.
    """
    encoder = load_encoder(encoder_name, parameters, root)
    learned = read_learned(vocabulary)
    if encoder.learns and not learned:
        raise InputError(
            f"{encoder_name} needs what it learns from training images, but {vocabulary} is empty"
        )
    work = Work(ImageSource(manifest, root), encoder, cache, features_code, learned, encoder_name)
    key = encoder_key(encoder, encoder_name)
    about = {
        "encoder": encoder_name,
        "parameters": json.dumps(key, sort_keys=True),
        "learned": learned_digest(vocabulary),
        "dtype": DTYPE,
        "device": device(),
        "batch": "1" if encoder.in_workers else str(BATCH),
    }
    rows = manifest.rows(gallery=True)
    if not len(rows):
        raise InputError("the manifest has no gallery images")
    files = [
        (output / shard_name(number), gallery_views(manifest, rows[members]))
        for number, members in enumerate(assign_shards([manifest.image_id[row] for row in rows]))
        if members
    ]
    files.append((output / QUERIES_FILE, query_views(manifest, truth, encoder_name)))
    if not files[-1][1]:
        raise InputError("the ground truth has no queries")
    keys = [
        entry_key(
            kind="descriptors",
            views=[[view.name, manifest.sha256[view.row], view.box] for view in views],
            code=code,
            features_code=features_code,
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
    shards = [views for _, views, _ in absent]
    arrays = (executor or LocalExecutor()).stream(describe_shards, work, shards)
    for (path, views, entry), array in zip(absent, arrays, strict=True):
        id_column = "query_id" if path.name == QUERIES_FILE else "image_id"
        write_shard(path, [view.name for view in views], array, about, id_column=id_column)
        if cache is not None:
            cache.put(entry, path.read_bytes())
    _write_facts(output, encoder_name, root)
    if cache is not None:
        cache.prune()


def describe_shards(work: Work, shards: Iterable[Sequence[View]]) -> Iterator[np.ndarray]:
    """The descriptors of each shard's views, float16 [views, dim]: the work that an executor divides.

    One stream of views through the worker processes, so that the first of the next shard are decoded already.
    """
    shards = list(shards)
    stream = _rows(shards, work)
    for views in shards:
        yield _checked(list(itertools.islice(stream, len(views))), views, work.encoder_name)


def _rows(shards: Sequence[Sequence[View]], work: Work) -> Iterator[np.ndarray]:
    """The descriptors of all views in order."""
    views = [view for shard in shards for view in shard]
    if work.encoder.in_workers:
        yield from described(views, work, "Describing images")
        return
    stream = prepared(views, work, "Describing images")
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
