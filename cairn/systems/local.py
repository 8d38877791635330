"""The step `local`: local features of the queries and of the images that a second stage will look at."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache
from cairn.encoders import load_encoder
from cairn.encoders.protocol import FeatureExtractor
from cairn.errors import ParameterError
from cairn.files import write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.rerank import IMAGES_FILE, QUERIES_FILE, RerankParameters, load_local, local_source
from cairn.rerank.chains import after_earlier
from cairn.rerank.outside import before_last, deepest, outside_lists
from cairn.rerank.pairs import Relevance, united
from cairn.rerank.parameters import BY_PAIRS
from cairn.rerank.rankings import read_ranking
from cairn.store.local import LocalFeatures, write_local
from cairn.store.tables import read_table, write_table
from cairn.systems.disk import check_room, tells_full_disk
from cairn.systems.extraction import Work, device, gallery_views, prepared, query_views
from cairn.systems.features import View
from cairn.validation import validated

FACTS_FILE = "local.json"
CONTENTS_FILE = "contents.parquet"
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
    descriptors: Path | None = None,
    relevance: Relevance | None = None,
    graded: GroundTruth | None = None,
    cache: Cache | None,
    features_code: str,
) -> None:
    """Write `queries.hdf5`, `images.hdf5` (see `cairn.store.local`) and `local.json` into `output`.

    `ranking` is what `search` wrote; `parameters` are the encoder's, `rerank` as in RerankParameters. Of each
    query the images of its shortlist are taken, for `ames` those of every setting's shortlist (`relevance`
    {query: {image: grade}}), after the method that comes before, if any (`descriptors` are what was searched).
    Where the ground truth `graded` marks an out-of-distribution gallery, those of the shortlist there are taken, too.
    Where the method needs no local features, only `local.json` is written, and says so. For `ames` there is
    `contents.parquet` as well: a digest of every image's features; and for features of the user's,
    `sources.json`. ParameterError where the method needs local features and the encoder has none.
    """
    checked = validated(RerankParameters, rerank, "rerank")
    if checked.method not in BY_PAIRS:
        write_json(output / FACTS_FILE, {"method": checked.method, "images": 0, "queries": 0})
        return
    ranked = read_ranking(ranking / "ranking.parquet", manifest.gallery_size)
    if checked.after is not None:
        assert descriptors is not None
        _, ranked, _ = after_earlier(ranked, descriptors, manifest, checked.after)
    if checked.method == "ames":
        chosen = united(ranked, relevance if checked.ames.junk_aware else None, checked.k)
        shortlisted = [query.image_row[at] for query, at in zip(ranked, chosen, strict=True)]
    else:
        first = read_ranking(ranking / "ranking.parquet", manifest.gallery_size)
        lists = outside_lists(first, graded or truth, manifest, deepest(checked))
        seen, _ = before_last(lists, descriptors, manifest, checked)
        shortlisted = [
            query.image_row[query.rank < min(checked.k, query.gallery_size - query.missing)]
            for query in (*ranked, *seen)
        ]
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *shortlisted]))
    views = {
        QUERIES_FILE: query_views(manifest, truth, encoder_name),
        IMAGES_FILE: gallery_views(manifest, rows),
    }
    most = _lengths(checked)
    source = local_source(checked.model_dump(mode="json"))
    facts = {"method": checked.method, "source": source, **{name[:-5]: len(v) for name, v in views.items()}}
    contents: dict[str, list[str]] = {}
    if source == "encoder" or source == "xfeat":
        if source == "encoder":
            encoder: Any = load_encoder(encoder_name, parameters, root)
        else:
            encoder = load_local(source).encoder(max(most.values()))
        if encoder.features is None:
            raise ParameterError(
                f"rerank.method = {checked.method!r} needs local features; the encoder {encoder_name} has none: use "
                "`none`, or another encoder"
            )
        name = encoder_name if source == "encoder" else source
        work = Work(ImageSource(manifest, root), encoder, cache, features_code, encoder_name=name)
        about = {"encoder": name, "unit": "pixels of the reduced image", "device": device()}
        for file, wanted in views.items():
            extractor = encoder.features
            limit = min(extractor.limit, most[file])
            found = prepared(wanted, work, f"Local features of {file.removesuffix('.hdf5')}")
            shape = (extractor.dim, limit, extractor.dtype)
            contents[file] = _write(output / file, wanted, found, shape, about)
        facts["keypoints"] = min(encoder.features.limit, max(most.values()))
    else:
        opened = load_local(source).open_source(
            checked.ames.model_dump(mode="json")[source], root, manifest, truth, cache, features_code
        )
        for file, wanted in views.items():
            dtype = checked.ames.store
            shape = (opened.dim, most[file], dtype)
            contents[file] = _write(
                output / file, wanted, opened.features(file, wanted, most[file]), shape, opened.about
            )
        facts |= {"keypoints": most, **opened.facts}
        write_json(output / "sources.json", {"sources": opened.sources})
    if checked.method == "ames":
        _write_contents(output, views, contents)
    write_json(output / FACTS_FILE, facts)
    if cache is not None:
        cache.prune()


def read_contents(local: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the features of queries and of images by name, as `extract_local` wrote them."""
    import pyarrow as pa

    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("file", "name", "sha256")])
    table = read_table(local / CONTENTS_FILE, schema)
    found: dict[str, dict[str, str]] = {QUERIES_FILE: {}, IMAGES_FILE: {}}
    for file, name, digest in zip(*(table.column(c).to_pylist() for c in schema.names), strict=True):
        found.setdefault(file, {})[name] = digest
    return found[QUERIES_FILE], found[IMAGES_FILE]


def write_features(
    path: Path, views: Sequence[View], found: Iterator[LocalFeatures], extractor: FeatureExtractor, most: int
) -> list[str]:
    """Write the features of `views`, at most `most` of each, to an HDF5 file; a digest of each image's."""
    about = {"unit": "pixels of the reduced image", "device": device()}
    return _write(path, views, found, (extractor.dim, most, extractor.dtype), about)


def _lengths(checked: RerankParameters) -> dict[str, int]:
    """Most features of a query and of an image that the method looks at."""
    if checked.method == "ames":
        return {QUERIES_FILE: checked.ames.query_length, IMAGES_FILE: checked.ames.gallery_length}
    return {QUERIES_FILE: checked.geometry.features, IMAGES_FILE: checked.geometry.features}


def _write(
    path: Path,
    views: Sequence[View],
    found: Iterator[LocalFeatures],
    shape: tuple[int, int, str],
    about: Mapping[str, str],
) -> list[str]:
    dim, most, dtype = shape
    # What the store holds back before it is in the file: a batch, and HDF5's own caches.
    room = BATCH * most * (4 * dim + 16) + CACHES
    check_room(path.parent, room)
    digests: list[str] = []

    def kept() -> Iterator[LocalFeatures]:
        # HDF5 does not survive a full disk: what it cannot flush when it closes ends the process (a segmentation
        # fault in 1.14). So it is stopped while there is room for what it still holds.
        for features in found:
            check_room(path.parent, room)
            strongest = _strongest(features, most)
            digests.append(hashlib.sha256(strongest.descriptors.astype(dtype).tobytes()).hexdigest())
            yield strongest

    names = [view.name for view in views]
    write_local(path, names, kept(), dim=dim, keypoints=most, dtype=dtype, metadata=about)
    return digests


def _write_contents(
    output: Path, views: Mapping[str, Sequence[View]], contents: Mapping[str, Sequence[str]]
) -> None:
    import pyarrow as pa

    rows = [
        (file, view.name, digest)
        for file in views
        for view, digest in zip(views[file], contents[file], strict=True)
    ]
    names = ("file", "name", "sha256")
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in names])
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=schema)
    write_table(table, output / CONTENTS_FILE)


def _strongest(features: LocalFeatures, most: int) -> LocalFeatures:
    return LocalFeatures(
        features.positions[:most],
        features.scales[:most],
        features.weights[:most],
        features.descriptors[:most],
    )
