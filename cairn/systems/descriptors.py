"""The steps `descriptors` and `training_descriptors`: one global descriptor per image and per query."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache, entry_key
from cairn.encoders import PYTHON, encoder_facts, load_encoder
from cairn.errors import CairnError, InputError
from cairn.executor import Executor, LocalExecutor
from cairn.files import atomic, write_json
from cairn.images.manifest import Manifest
from cairn.progress import say
from cairn.store.descriptors import (
    MISSING,
    OWN_PREFIX,
    QUERIES_FILE,
    DescriptorStore,
    open_queries,
    open_shards,
    write_shard,
)
from cairn.store.shards import assign_shards, shard_name
from cairn.systems.batching import Described, batch_size, described_shards
from cairn.systems.disk import tells_full_disk
from cairn.systems.extraction import (
    Work,
    described,
    device,
    gallery_views,
    query_views,
    work_of,
)
from cairn.systems.features import View
from cairn.systems.guards import encoder_key
from cairn.systems.vocabulary import learned_digest, read_learned

DTYPE = "float16"
FACTS_FILE = "descriptors.json"
TRAINING_FACTS_FILE = "training_descriptors.json"
SOURCES_FILE = "sources.json"
HALVED = f"{OWN_PREFIX}halved"
"""Metadata of a shard: whether a batch was halved."""


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
    similar (0) to every query. So does one that cannot be decoded, where the encoder is told to go on
    (`damaged: missing`): the search ranks it behind all others. `descriptors.json` lists both. Queries that are
    texts go through the encoder's text tower; InputError where it has none. The hashes of a network's weights
    stand in `descriptors.json`. What is
    absent is described by `executor`, shard by shard; the bytes do not depend on it.
    """
    work = _work(manifest, root, vocabulary, encoder_name, parameters, cache, features_code)
    rows = manifest.rows(gallery=True)
    if not len(rows):
        raise InputError("the manifest has no gallery images")
    files = _shards(manifest, rows, output)
    has_text = bool(getattr(work.encoder, "has_text", False))
    files.append((output / QUERIES_FILE, query_views(manifest, truth, encoder_name, texts=has_text)))
    if not files[-1][1]:
        raise InputError("the ground truth has no queries")
    _extract(files, work, vocabulary, code, "Describing images", executor)
    _write_facts(output, work, root)
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
    executor: Executor | None = None,
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
    shards = _shards(training, rows, output)
    _extract(shards, work, vocabulary, code, "Describing training images", executor)
    store = open_shards(output)
    missing = store.missing
    empty = [name for name in _without_features(store) if name not in missing]
    if missing:
        first, reason = next(iter(missing.items()))
        say(
            f"{len(missing)} training images are missing: nothing is learned from them (first: {first}: {reason})"
        )
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
        }
        | ({"missing": missing} if missing else {}),
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
    settings = parameters if encoder_name.startswith(PYTHON) else None
    return work_of(manifest, root, encoder, encoder_name, cache, features_code, learned, settings)


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
    files: Sequence[tuple[Path, list[View]]],
    work: Work,
    vocabulary: Path,
    code: str,
    description: str,
    executor: Executor | None,
) -> None:
    """Write the files, those that the cache holds from there."""
    encoder, encoder_name, cache = work.encoder, work.encoder_name, work.cache
    about = {
        "encoder": encoder_name,
        "parameters": json.dumps(encoder_key(encoder, encoder_name), sort_keys=True),
        "learned": learned_digest(vocabulary),
        "dtype": DTYPE,
        "device": device(encoder),
        "batch": "1" if encoder.in_workers else str(batch_size(encoder)),
    }
    keys = [
        entry_key(
            kind="descriptors",
            views=[[view.name, _content(view, work), view.box] for view in views],
            code=code,
            features_code=work.features_code,
            about=about,
            **({} if work.settings is None else {"settings": dict(work.settings)}),
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
    stream = (executor or LocalExecutor()).stream(describe_shards, (work, description), shards)
    for (path, views, entry), shard in zip(absent, stream, strict=True):
        if shard.device != about["device"]:
            raise CairnError(
                f"encoder {encoder_name}: a worker computes on {shard.device}, and this machine would on "
                f"{about['device']}: descriptors of one system come from one kind of device; start the run on a "
                "machine with that of the workers, or set CAIRN_DEVICE=cpu"
            )
        array = _checked(list(shard.array), views, encoder_name)
        own = {MISSING: json.dumps(shard.missing)} if shard.missing else {}
        own |= {HALVED: "true"} if shard.halved else {}
        id_column = "query_id" if path.name == QUERIES_FILE else "image_id"
        write_shard(path, [view.name for view in views], array, about | own, id_column=id_column)
        if cache is not None:
            cache.put(entry, path.read_bytes())


def _content(view: View, work: Work) -> str:
    """What a view shows: the image's SHA-256, or the text."""
    return work.source.manifest.sha256[view.row] if view.text is None else f"text:{view.text}"


def describe_shards(asked: tuple[Work, str], shards: Iterable[Sequence[View]]) -> Iterator[Described]:
    """The descriptors of each shard in order: the work that an executor divides. `asked`: it, and its description.

    One stream of views goes through the worker processes, so that the first of the next shard are decoded already.
    """
    (work, description), shards = asked, list(shards)
    if not work.encoder.in_workers:
        for shard in described_shards(shards, work, description):
            yield replace(shard, device=device(work.encoder))
        return
    stream = described([view for shard in shards for view in shard], work, description)
    for shard in shards:
        rows = list(itertools.islice(stream, len(shard)))
        yield Described(_checked(rows, shard, work.encoder_name), device=device(work.encoder))


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


def _write_facts(output: Path, work: Work, root: Path) -> None:
    gallery, queries = open_shards(output), open_queries(output)
    stores = {"images": gallery, "queries": queries}
    missing = {what: store.missing for what, store in stores.items()}
    empty = {
        what: [name for name in _without_features(store) if name not in missing[what]]
        for what, store in stores.items()
    }
    for what in stores:
        if names := empty[what]:
            say(f"{len(names)} {what} have no features: their descriptor is zero (first: {names[0]})")
        if missing[what]:
            first, reason = next(iter(missing[what].items()))
            place = "they rank last" if what == "images" else "their lists are in the manifest's order"
            say(f"{len(missing[what])} {what} are missing: {place} (first: {first}: {reason})")
        if work.encoder_name.startswith(PYTHON) and (names := _off_unit(stores[what])):
            say(
                f"{len(names)} {what} have descriptors whose norm is not 1, compared by inner product as they "
                f"are (first: {names[0]}); {work.encoder_name} should divide rows by their L2 norm"
            )
    halved = sum(HALVED in metadata for store in stores.values() for metadata in store.shard_metadata)
    if halved:
        say(f"{halved} shards had batches halved for lack of memory: their last bits may differ elsewhere")
    declared: dict[str, str] = getattr(work.encoder, "declared_facts", {})
    facts: dict[str, Any] = {
        "encoder": work.encoder_name,
        "facts": encoder_facts(work.encoder_name, root) | declared,
        "dim": gallery.dim,
        "dtype": DTYPE,
        "images": len(gallery),
        "queries": len(queries),
        "without_features": empty,
    }
    if any(missing.values()):
        facts["missing"] = missing
    if halved:
        facts["shards_with_halved_batches"] = halved
    if hasattr(work.encoder, "weights"):
        record = work.encoder.weights().record()  # type: ignore[attr-defined]
        facts["weights"] = record
        sources = [{"name": name, **_place(record, name)} for name in record["files"]]
        write_json(output / SOURCES_FILE, {"sources": sources})
    write_json(output / FACTS_FILE, facts)


def _place(record: Mapping[str, Any], name: str) -> dict[str, str]:
    """Where a file of weights came from, as `sources.json` says it, with its SHA-256."""
    source, digest = record["source"], record["files"][name]
    if record["revision"]:
        return {"url": f"hf://{source}@{record['revision']}/{name}", "sha256": digest}
    return {"path": source if source.endswith(name) else f"{source}/{name}", "sha256": digest}


def _without_features(store: DescriptorStore) -> list[str]:
    """Ids whose descriptor is zero, sorted."""
    found, start = [], 0
    for block in store.blocks():
        found.extend(store.ids[start + int(row)] for row in np.flatnonzero(~block.any(axis=1)))
        start += len(block)
    return sorted(found)


def _off_unit(store: DescriptorStore) -> list[str]:
    """Ids whose descriptor is neither zero nor of L2 norm 1 to 1%, which float16 keeps; in the store's order."""
    found, start = [], 0
    for block in store.blocks():
        norms = np.linalg.norm(block.astype(np.float32), axis=1)
        off = (np.abs(norms - 1) > 0.01) & (norms > 0)
        found.extend(store.ids[start + int(row)] for row in np.flatnonzero(off))
        start += len(block)
    return found
