"""The step `readout`: descriptors as they are searched, where a system does anything to them after pooling."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import ArtifactError, InputError
from cairn.files import atomic, write_json
from cairn.readout import ReadoutParameters
from cairn.readout.transform import Transform, learn_transform
from cairn.store.descriptors import (
    QUERIES_FILE,
    DescriptorStore,
    has_shards,
    open_queries,
    open_shard,
    open_shards,
    write_shard,
)
from cairn.store.missing import Present, present
from cairn.store.sparse import is_sparse
from cairn.store.tables import first_line
from cairn.systems.disk import tells_full_disk
from cairn.validation import validated

FACTS_FILE = "readout.json"
ARRAYS_FILE = "readout.npz"
GALLERY_NOTE = (
    "the read-out learned from the gallery it is evaluated on, as the published search-embedding rows did: these "
    "are not the numbers of a descriptor that was fixed before the gallery was seen, and their stage says so"
)


@tells_full_disk
def make_readout(
    descriptors: Path, training: Path | None, parameters: Mapping[str, Any] | None, output: Path
) -> None:
    """Write the read-out's descriptors (in the layout of `descriptors`), `readout.npz` and `readout.json`.

    `parameters` as in ReadoutParameters, None for none; `training` is what the step `training_descriptors`
    wrote. Where nothing is done, only `readout.json` is written: `descriptors` are searched then. What is stored
    has the dtype of `descriptors`. Images that could not be decoded are neither learned from nor counted. Raises as
    `cairn.readout.transform.learn_transform`.
    """
    checked = validated(ReadoutParameters, parameters or {}, "readout")
    if checked.identity:
        note = "nothing is done to descriptors after pooling"
        write_json(output / FACTS_FILE, {"readout": None, "mark": "", "note": note})
        return
    if is_sparse(descriptors):
        raise InputError(
            f"the read-out {checked.slug} needs dense descriptors; those of this system are sparse"
        )
    gallery, queries = open_shards(descriptors), open_queries(descriptors)
    background, known = training_store(training), present(gallery)
    transform = learn_transform(checked, gallery.dim, background, known)
    for path in sorted(Path(descriptors).glob("[0-9]*.parquet")):
        _write(output / path.name, open_shard(path), transform, checked.slug, "image_id")
    _write(output / QUERIES_FILE, queries, transform, checked.slug, "query_id")
    arrays = {"mean": transform.mean, "projection": transform.projection}
    with atomic(output / ARRAYS_FILE) as temporary, temporary.open("wb") as stream:
        kept = {name: array for name, array in arrays.items() if array is not None}
        np.savez(stream, allow_pickle=False, **kept)  # pyright: ignore[reportArgumentType] - its stubs mix the two
    facts = {
        "readout": checked.model_dump(mode="json"),
        "slug": checked.slug,
        "mark": checked.mark,
        "learned_from": checked.source,
        "learned_from_images": None
        if checked.source is None
        else len(known if checked.source == "gallery" or background is None else background),
        "from_dim": gallery.dim,
        "dim": open_queries(output).dim,
    }
    if checked.source == "gallery":
        facts["note"] = GALLERY_NOTE
    write_json(output / FACTS_FILE, facts)


def read_readout(folder: Path) -> Transform:
    """The transform that `make_readout` wrote, for descriptors of other images (of training).

    ArtifactError, naming the file, where it is missing or damaged.
    """
    parameters = readout_facts(folder)["readout"]
    if parameters is None:
        return Transform()
    path = Path(folder) / ARRAYS_FILE
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except Exception as error:  # zipfile, zlib and numpy each raise their own
        raise ArtifactError(f"{path}: not a readable file of arrays ({first_line(error)})") from None
    return Transform(parameters["dimension"], found.get("mean"), found.get("projection"))


def readout_facts(folder: Path) -> dict[str, Any]:
    """What `readout.json` says. ArtifactError where it is missing or damaged."""
    path = Path(folder) / FACTS_FILE
    try:
        facts = json.loads(path.read_text("utf-8"))
        return {"readout": facts["readout"], "mark": facts["mark"]} | facts
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{path}: missing or damaged; run the step readout") from None


def searched(descriptors: Path, readout: Path) -> Path:
    """The folder of the descriptors that are searched: the read-out's where there is one."""
    return Path(descriptors) if readout_facts(readout)["readout"] is None else Path(readout)


def training_store(training: Path | None) -> DescriptorStore | Present | None:
    """The descriptors of the training images that could be decoded, None where the step had none to make."""
    return present(open_shards(training)) if training is not None and has_shards(training) else None


def _write(path: Path, store: DescriptorStore, transform: Transform, slug: str, id_column: str) -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        parts = [transform(block) for block in store.blocks()]
    rows = np.concatenate(parts).astype(store.dtype)
    about = {**store.metadata, "readout": slug, **store.shard_metadata[0]}
    write_shard(path, store.ids, rows, about, id_column=id_column)
