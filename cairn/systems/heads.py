"""The steps of heads: train them on descriptors, apply them, search with what they make, seed by seed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache, entry_key
from cairn.contamination.learning import described_of_set
from cairn.errors import ArtifactError
from cairn.files import atomic, file_digest, write_json
from cairn.heads.parameters import HeadShape, HeadsParameters
from cairn.images.manifest import Manifest
from cairn.progress import say
from cairn.store.descriptors import (
    QUERIES_FILE,
    DescriptorStore,
    open_queries,
    open_shard,
    open_shards,
    write_shard,
)
from cairn.store.seeds import seeds_of
from cairn.systems.disk import tells_full_disk
from cairn.validation import validated

if TYPE_CHECKING:
    from cairn.heads.training import TrainedHead

FACTS_FILE = "heads.json"
SELECTION_INPUTS = ("descriptors", "manifest", "ground_truth")


@tells_full_disk
def train_heads(
    training: Manifest,
    contamination: Path,
    descriptors: Path,
    parameters: Mapping[str, Any],
    protocol: str,
    output: Path,
    *,
    selection: Mapping[str, Path],
    cache: Cache | None,
    code: str,
) -> None:
    """Write `0.npz` and so on, one head per seed, and `heads.json` into `output`.

    `training` are the training images with their classes, `contamination` the artifact with the training sets, of
    which `protocol` is one; `descriptors` those of the training images; `parameters` as in HeadsParameters.
    `selection` has the folders `descriptors`, `manifest` and `ground_truth` of what epochs are selected on. A head
    that is finished, and the last epoch of one that is not, are in the cache: seeds are trained side by side.
    An image that could not be decoded is not trained on, nor is a class that has too few others for the training
    set's rule: `missing` in `heads.json` counts them, `images` and `classes` what is left. InputError where there is
    no such training set, fewer than two classes are left, or the descriptors leave an image out.
    """
    checked = validated(HeadsParameters, parameters, "heads")
    store = open_shards(descriptors)
    described = described_of_set(training, contamination, protocol, store.missing)
    classes = described.classes
    if described.missing:
        say(
            f"{described.missing:,} training images could not be decoded and are not trained on, nor are "
            f"{described.small_images:,} of {described.small_classes:,} classes that have too few others"
        )
    shape = HeadShape(input=store.dim, **checked.layers.model_dump())
    identity = _identity(descriptors, selection if checked.selection else {})
    task = _Task(
        descriptors,
        classes,
        shape,
        checked,
        {name: selection[name] for name in SELECTION_INPUTS} if checked.selection else None,
        identity,
        cache,
        code,
        output,
    )
    task.rows()  # what does not fit is told once, not by each worker
    from cairn.parallel import map_processes, workers

    processes = 1 if device() != "cpu" else min(workers(), len(checked.seeds))
    trained = list(
        map_processes(_train, checked.seeds, initializer=_start, initargs=(task,), processes=processes)
    )
    left_out = {
        "images": described.missing,
        "small_classes": described.small_classes,
        "images_of_small_classes": described.small_images,
    }
    write_json(
        output / FACTS_FILE,
        {
            "protocol": protocol,
            "classes": len(set(classes.values())),
            "images": len(classes),
            "shape": shape.model_dump(),
            "n_parameters": shape.n_parameters,
            "selection": checked.selection.model_dump() if checked.selection else None,
            "device": device(),
            "seeds": {str(seed): facts for seed, facts in zip(checked.seeds, trained, strict=True)},
        }
        | ({"missing": left_out} if described.missing else {}),
    )
    if cache is not None:
        cache.prune()


def describe_with_heads(descriptors: Path, heads: Path, output: Path) -> None:
    """Write the gallery's shards and `queries.parquet` through each head, in a folder per seed.

    `descriptors` is what `extract_descriptors` wrote, `heads` what `train_heads` wrote. A zero descriptor (an
    image without features) stays zero. ArtifactError where the head's input is of another dimension.
    """
    from cairn.heads.projection import load_head, through_head

    facts = read_heads(heads)
    shape = HeadShape(**facts["shape"])
    gallery, queries = open_shards(descriptors), open_queries(descriptors)
    for store in (gallery, queries):
        if store.dim != shape.input:
            raise ArtifactError(
                f"{descriptors}: {store.dim} dimensions, the head takes {shape.input}; train it again"
            )
    for seed in facts["seeds"]:
        path = Path(heads) / f"{seed}.npz"
        head, folder = load_head(path, shape), output / seed
        about = {
            **gallery.metadata,
            "head": facts["protocol"],
            "seed": seed,
            "head_sha256": file_digest(path),
        }
        for file, store in _files(descriptors, queries):
            id_column = "query_id" if file == QUERIES_FILE else "image_id"
            rows = through_head(head, store.array())
            write_shard(folder / file, store.ids, rows, about | store.shard_metadata[0], id_column=id_column)


def rank_with_heads(
    descriptors: Path, manifest: Manifest, truth: GroundTruth, parameters: Mapping[str, Any], output: Path
) -> None:
    """Write `ranking.parquet` and `ranking.json` of each seed's descriptors into a folder per seed."""
    from cairn.systems.ranking import search

    for seed in seeds_of(descriptors):
        folder = output / seed
        folder.mkdir()
        search(descriptors / seed, manifest, truth, {**parameters, "index": {"kind": "none"}}, folder)


def read_heads(heads: Path) -> dict[str, Any]:
    """`heads.json`. ArtifactError, naming the file, where it cannot be read."""
    path = Path(heads) / FACTS_FILE
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path}: cannot be read ({type(error).__name__}); run the step `heads`"
        ) from None


def device() -> str:
    """What heads are trained on: `cuda` where torch has one, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class _Task:
    """What the training of every seed shares."""

    descriptors: Path
    classes: dict[str, int]
    shape: HeadShape
    parameters: HeadsParameters
    selection: Mapping[str, Path] | None
    identity: str
    cache: Cache | None
    code: str
    output: Path

    def rows(self) -> Any:
        from cairn.heads.batches import training_rows

        store = open_shards(self.descriptors)
        return training_rows(list(store.blocks()), store.ids, self.classes)

    def key(self, seed: int) -> str:
        """The cache key of a finished head."""
        from importlib.metadata import version

        return entry_key(
            kind="head",
            code=self.code,
            identity=self.identity,
            classes=sorted(self.classes.items()),
            shape=self.shape.model_dump(),
            training=self.parameters.training.model_dump(),
            selection=self.parameters.selection.model_dump() if self.parameters.selection else None,
            seed=seed,
            torch=version("torch"),
            device=device(),
        )


_task: _Task


def _start(task: _Task) -> None:
    global _task
    _task = task


def _train(seed: int) -> dict[str, Any]:
    """Put the head of one seed into the output, and say how it was trained."""
    from cairn.heads.projection import save_head
    from cairn.heads.training import train_head

    task, path = _task, _task.output / f"{seed}.npz"
    key, cache = task.key(seed), task.cache
    about = entry_key(kind="head facts", head=key)
    if (
        cache is not None
        and (weights := cache.get(key)) is not None
        and (facts := cache.get(about)) is not None
    ):
        with atomic(path) as temporary:
            temporary.write_bytes(weights)
        return json.loads(facts)
    # Beside the entries, so that what a killed training leaves for good is pruned like them.
    checkpoint = cache.folder / key[:2] / f"{key}.checkpoint" if cache is not None else None
    if checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
    trained = train_head(
        task.rows(),
        task.shape,
        task.parameters.training,
        seed,
        evaluate=_evaluator(task),
        checkpoint=checkpoint,
        identity=task.identity,
        device=device(),
    )
    save_head(path, trained.head)
    facts = _facts(trained)
    if cache is not None and checkpoint is not None:
        cache.put(key, path.read_bytes())
        cache.put(about, json.dumps(facts).encode())
        checkpoint.unlink(missing_ok=True)
    return facts


def _facts(trained: "TrainedHead") -> dict[str, Any]:
    return {
        "epoch": trained.epoch,
        "losses": [round(loss, 6) for loss in trained.losses],
        "values": [None if value is None else round(value, 6) for value in trained.values],
    }


def _evaluator(task: _Task) -> Any:
    """A head's value on the selection's slice; None where no epoch is selected."""
    if task.selection is None or task.parameters.selection is None:
        return None
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.images.manifest import read_manifest
    from cairn.systems.selection import head_value

    wanted = task.parameters.selection
    gallery, queries = open_shards(task.selection["descriptors"]), open_queries(task.selection["descriptors"])
    truth = read_ground_truth(task.selection["ground_truth"])
    manifest = read_manifest(task.selection["manifest"] / "manifest.parquet")
    return head_value(gallery, queries, manifest, truth, wanted)


def _identity(descriptors: Path, selection: Mapping[str, Path]) -> str:
    """Digest of the descriptors that are trained on, and of what epochs are selected on."""
    files = sorted(Path(descriptors).glob("*.parquet"))
    for name in SELECTION_INPUTS if selection else ():
        files += sorted(Path(selection[name]).glob("*.parquet"))
    return entry_key(files=[[path.name, file_digest(path)] for path in files])


def _files(descriptors: Path, queries: DescriptorStore) -> Iterator[tuple[str, DescriptorStore]]:
    """Name and descriptors of each file of a folder of descriptors."""
    for path in sorted(Path(descriptors).glob("[0-9]*.parquet")):
        yield path.name, open_shard(path)
    yield QUERIES_FILE, queries
