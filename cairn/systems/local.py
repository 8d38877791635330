"""The step `local`: local features of the queries and of the images that a second stage will look at."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache
from cairn.encoders import load_encoder
from cairn.errors import ParameterError
from cairn.files import write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.rerank import IMAGES_FILE, QUERIES_FILE, RerankParameters, load_reranker
from cairn.rerank.rankings import read_ranking
from cairn.store.local import LocalFeatures, write_local
from cairn.systems.disk import check_room, tells_full_disk
from cairn.systems.extraction import Work, device, gallery_views, prepared, query_views
from cairn.validation import validated

FACTS_FILE = "local.json"
BATCH = 256
CACHES = 16 << 20
"""Images, and bytes beside them, that may be in memory and not yet in the file (`cairn.store.local`)."""


@tells_full_disk
def extract_local(
    ranking: Path,
    manifest: Manifest,
    truth: GroundTruth,
    root: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    rerank: Mapping[str, Any],
    output: Path,
    *,
    cache: Cache | None,
    features_code: str,
) -> None:
    """Write `queries.hdf5`, `images.hdf5` (see `cairn.store.local`) and `local.json` into `output`.

    `ranking` is what `search` wrote; `parameters` are the encoder's, `rerank` as in RerankParameters. Of each
    query the first `shortlist` images are taken; where the method is `none`, only `local.json` is written, and
    says so. ParameterError where the method needs local features and the encoder has none.
    """
    checked = validated(RerankParameters, rerank, "rerank")
    reranker = load_reranker(checked.method)
    if reranker is None:
        write_json(output / FACTS_FILE, {"method": checked.method, "images": 0, "queries": 0})
        return
    encoder = load_encoder(encoder_name, parameters, root)
    extractor = encoder.features
    if extractor is None:
        raise ParameterError(
            f"rerank.method = {checked.method!r} needs local features; the encoder {encoder_name} has none: use "
            "`none`, or another encoder"
        )
    ranked = read_ranking(ranking / "ranking.parquet", manifest.gallery_size)
    shortlisted = [query.image_row[query.rank < checked.shortlist] for query in ranked]
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *shortlisted]))
    most = min(extractor.limit, reranker.local_features(checked))
    work = Work(ImageSource(manifest, root), encoder, cache, features_code, encoder_name=encoder_name)
    about = {"encoder": encoder_name, "unit": "pixels of the reduced image", "device": device()}
    # What the store holds back before it is in the file: a batch, and HDF5's own caches.
    room = BATCH * most * (4 * extractor.dim + 16) + CACHES
    views = {
        QUERIES_FILE: query_views(manifest, truth, encoder_name),
        IMAGES_FILE: gallery_views(manifest, rows),
    }
    for name, wanted in views.items():
        found = prepared(wanted, work, f"Local features of {name.removesuffix('.hdf5')}")
        check_room(output, room)
        write_local(
            output / name,
            [view.name for view in wanted],
            _while_room((_strongest(features, most) for features in found), output, room),
            dim=extractor.dim,
            keypoints=most,
            dtype=extractor.dtype,
            metadata=about,
        )
    write_json(
        output / FACTS_FILE,
        {"method": checked.method, "keypoints": most, **{n[:-5]: len(v) for n, v in views.items()}},
    )
    if cache is not None:
        cache.prune()


def _while_room(features: Iterator[LocalFeatures], output: Path, room: int) -> Iterator[LocalFeatures]:
    # HDF5 does not survive a full disk: what it cannot flush when it closes ends the process (a segmentation
    # fault in 1.14). So it is stopped while there is room for what it still holds.
    for found in features:
        check_room(output, room)
        yield found


def _strongest(features: LocalFeatures, most: int) -> LocalFeatures:
    return LocalFeatures(
        features.positions[:most],
        features.scales[:most],
        features.weights[:most],
        features.descriptors[:most],
    )
