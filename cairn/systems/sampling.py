"""Recomputes the descriptors of a few images, to compare them with the stored ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.encoders import load_encoder
from cairn.images.manifest import Manifest
from cairn.store.descriptors import open_queries, open_shards
from cairn.systems.batching import described_shards
from cairn.systems.extraction import described, gallery_views, query_views, work_of
from cairn.systems.vocabulary import read_learned


@dataclass(frozen=True, eq=False)
class Sample:
    """`names` of the images and queries, their `stored` descriptors (as stored) and the `fresh` ones."""

    names: list[str]
    stored: list[np.ndarray]
    fresh: list[np.ndarray]


def recomputed_sample(
    manifest: Manifest,
    truth: GroundTruth,
    root: Path,
    vocabulary: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    stored: Path,
    *,
    items: int,
    seed: int,
) -> Sample:
    """Describe a seeded sample of `items` gallery images and queries again, without any cache.

    A batch of one image may differ in the last bit from the batches of the extraction where an encoder runs on
    batches: that is what a tolerance is for.
    """
    encoder = load_encoder(encoder_name, parameters, root)
    work = work_of(manifest, root, encoder, encoder_name, learned=read_learned(vocabulary))
    has_text = bool(getattr(encoder, "has_text", False))
    gallery = [(view, False) for view in gallery_views(manifest, manifest.rows(gallery=True))]
    everything = gallery + [
        (view, True) for view in query_views(manifest, truth, encoder_name, texts=has_text)
    ]
    generator = np.random.default_rng(seed)
    chosen = sorted(generator.choice(len(everything), min(items, len(everything)), replace=False).tolist())
    views = [everything[number][0] for number in chosen]
    if encoder.in_workers:
        fresh = list(described(views, work, "Describing a sample"))
    else:
        # Each alone: in what batch a view was is not recorded.
        alone = described_shards([[view] for view in views], work, "Describing a sample")
        fresh = [one.array[0] for one in alone]
    stores = {False: open_shards(stored), True: open_queries(stored)}
    old = []
    for number in chosen:
        view, is_query = everything[number]
        store = stores[is_query]
        old.append(store.take(store.rows_of([view.name]))[0])
    return Sample([view.name for view in views], old, [np.asarray(row) for row in fresh])


def compare_sample(sample: Sample) -> dict[str, Any]:
    """How far a sample is from what is stored, for `cairn bless`.

    Returns `compared` (how many), `unit`, `largest_difference` (of any component, both sides as stored:
    float16) and `different` (their names, in order).
    """
    different, largest = [], 0.0
    for name, old, row in zip(sample.names, sample.stored, sample.fresh, strict=True):
        difference = float(np.abs(old.astype(np.float64) - row.astype(old.dtype).astype(np.float64)).max())
        largest = max(largest, difference)
        if difference > 0:
            different.append(name)
    return {
        "compared": len(sample.names),
        "unit": "descriptors",
        "largest_difference": largest,
        "different": tuple(different),
    }
