"""The step `descriptors` of an encoder whose descriptors are sparse: words and weights instead of dense rows."""

import itertools
import json
from pathlib import Path
from typing import NoReturn

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.encoders import encoder_facts, load_encoder
from cairn.errors import InputError
from cairn.files import write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.progress import say
from cairn.store.shards import assign_shards
from cairn.store.sparse import QUERIES_FILE, Bags, bags_of, sparse_name, write_bags
from cairn.systems.disk import tells_full_disk
from cairn.systems.extraction import Work, described, device, gallery_views, query_views
from cairn.systems.guards import encoder_key
from cairn.systems.vocabulary import learned_digest, read_learned
from cairn.systems.writing import Writing

FACTS_FILE = "descriptors.json"
ENCODER = "rootsift-bovw"


@tells_full_disk
def write_descriptors(manifest: Manifest, truth: GroundTruth, job: Writing, output: Path) -> None:
    """Write sparse shards of the gallery, `sparse-queries.parquet` and `descriptors.json` into `output`.

    As `extract_descriptors`, but finished shards are not cached: what takes time are the local features, which
    are, image by image.
    """
    encoder = load_encoder(ENCODER, job.settings, job.root)
    learned = read_learned(job.vocabulary)
    if not learned:
        raise InputError(
            f"{ENCODER} needs what it learns from training images, but {job.vocabulary} is empty"
        )
    work = Work(ImageSource(manifest, job.root), encoder, job.cache, job.features_code, learned, ENCODER)
    about = {
        "encoder": ENCODER,
        "parameters": json.dumps(encoder_key(encoder, ENCODER), sort_keys=True),
        "learned": learned_digest(job.vocabulary),
        "dtype": "float32",
        "device": device(),
    }
    rows = manifest.rows(gallery=True)
    if not len(rows):
        raise InputError("the manifest has no gallery images")
    shards = [
        (sparse_name(number), gallery_views(manifest, rows[members]))
        for number, members in enumerate(assign_shards([manifest.image_id[row] for row in rows]))
        if members
    ]
    shards.append((QUERIES_FILE, query_views(manifest, truth, ENCODER)))
    dim, empty, words = len(learned["idf"]), {"images": [], "queries": []}, 0
    stream = described([view for _, views in shards for view in views], work, "Describing images")
    for name, views in shards:
        bags = bags_of([view.name for view in views], itertools.islice(stream, len(views)), dim)
        what, column = ("queries", "query_id") if name == QUERIES_FILE else ("images", "image_id")
        write_bags(output / name, bags, about, id_column=column)
        empty[what] += _without_words(bags)
        words += len(bags.words) if what == "images" else 0
    for what, names in empty.items():
        names.sort()
        if names:
            say(f"{len(names)} {what} have no telling word: their descriptor is zero (first: {names[0]})")
    write_json(
        output / FACTS_FILE,
        {
            "encoder": ENCODER,
            "facts": encoder_facts(ENCODER, job.root),
            "dim": dim,
            "dtype": "float32",
            "sparse": True,
            "words_per_image": words / len(rows),
            "images": len(rows),
            "queries": len(shards[-1][1]),
            "without_features": empty,
        },
    )
    if job.cache is not None:
        job.cache.prune()


def write_training_descriptors(training: Manifest, job: Writing, output: Path) -> NoReturn:
    """InputError: nothing is learned on sparse descriptors."""
    raise InputError(
        f"{ENCODER}: heads, read-outs and score normalisation need dense descriptors; these are sparse"
    )


def _without_words(bags: Bags) -> list[str]:
    return [bags.ids[row] for row in np.flatnonzero(np.diff(bags.start) == 0)]
