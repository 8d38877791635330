"""Recomputes the descriptors of a few images, to compare them with the stored ones."""

from collections.abc import Mapping
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


def sample_descriptors(
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
) -> dict[str, Any]:
    """Describe a seeded sample of `items` gallery images and queries again, without any cache.

    Returns `compared` (how many), `unit`, `largest_difference` (of any component, both sides as stored:
    float16) and `different` (their names, in order). A batch of one image may differ in the last bit from the
    batches of the extraction where an encoder runs on batches: that is what a tolerance is for.
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
        fresh = np.stack(list(described(views, work, "Describing a sample")))
    else:
        # Each alone: in what batch a view was is not recorded.
        fresh = np.concatenate(
            [one.array for one in described_shards([[view] for view in views], work, "Describing a sample")]
        )
    stores = {False: open_shards(stored), True: open_queries(stored)}
    different, largest = [], 0.0
    for row, number in zip(fresh, chosen, strict=True):
        view, is_query = everything[number]
        store = stores[is_query]
        old = store.take(store.rows_of([view.name]))[0].astype(np.float64)
        difference = float(np.abs(old - row.astype(store.dtype).astype(np.float64)).max())
        largest = max(largest, difference)
        if difference > 0:
            different.append(view.name)
    return {
        "compared": len(chosen),
        "unit": "descriptors",
        "largest_difference": largest,
        "different": tuple(different),
    }
