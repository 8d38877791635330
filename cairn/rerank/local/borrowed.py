"""Local descriptors borrowed from HDF5 files in the layout that the authors of AMES publish.

Their files (`dinov2_query_local.hdf5`, `dinov2_gallery_local.hdf5`) hold no names: rows follow the benchmark's own
lists of queries and images. What a run needs of them is copied into its artifact, so that the run can be repeated
without them; the files themselves are sources in its lineage, with their hashes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.cache import Cache
from cairn.errors import ArtifactError, InputError
from cairn.progress import track
from cairn.rerank import IMAGES_FILE, QUERIES_FILE
from cairn.rerank.local.opened import Seen, source_entry
from cairn.store.local import LocalFeatures, LocalStore, open_local

READ_BATCH = 64


class BorrowedSource:
    """Features from the user's files, read in the files' order where that is theirs."""

    def __init__(self, options: Mapping[str, Any], root: Path, queries: Sequence[str], images: Sequence[str]):
        note = "local descriptors of others"
        self.sources = [
            source_entry(root, path, f"{note}: {what}")
            for what, paths in (("queries", [options["queries"]]), ("gallery", options["gallery"]))
            for path in paths
        ]
        names = {
            QUERIES_FILE: _names(root, options["query_names"], queries),
            IMAGES_FILE: _names(root, options["gallery_names"], images),
        }
        files = {QUERIES_FILE: [options["queries"]], IMAGES_FILE: list(options["gallery"])}
        self.stores = {file: _open(root, files[file], names[file], file) for file in files}
        dims = {path: store.dim for stores in self.stores.values() for path, store in stores}
        if len(set(dims.values())) > 1:
            told = ", ".join(f"{path} has {dim}" for path, dim in dims.items())
            raise InputError(f"rerank.ames.files: local descriptors of several dimensions: {told}")
        self.dim = next(iter(dims.values()))
        self.about = {"encoder": "borrowed", "unit": "as in the borrowed files"}
        self.facts = {"files": [entry["path"] for entry in self.sources]}

    def features(self, file: str, views: Sequence[Seen], most: int) -> Iterator[LocalFeatures]:
        """The features of each view. ArtifactError where a file has none of it, InputError where all are masked."""
        stores = self.stores[file]
        for view in track(views, f"Borrowed descriptors of {file[:-5]}", total=len(views), unit="images"):
            path, store = next(((p, s) for p, s in stores if view.name in s), (None, None))
            if store is None:
                told = ", ".join(path for path, _ in stores)
                what = "query" if file == QUERIES_FILE else "shortlisted image"
                raise ArtifactError(f"{told}: no local descriptors of the {what} {view.name}")
            found = store.read(view.name, most)
            if not len(found):
                raise InputError(
                    f"{path}: image {view.name}: every local descriptor is masked; it needs at least one"
                )
            yield _sound(found, path, view.name)


def _sound(found: LocalFeatures, path: str | None, name: str) -> LocalFeatures:
    """The same with zeros for positions, scales and weights that are not finite: the network does not look at them."""
    if not np.isfinite(found.descriptors).all():
        raise InputError(f"{path}: image {name}: a local descriptor is not finite")
    positions, scales, weights = (
        np.nan_to_num(each, nan=0, posinf=0, neginf=0)
        for each in (found.positions, found.scales, found.weights)
    )
    return LocalFeatures(positions, scales, weights, found.descriptors)


def open_source(
    options: Mapping[str, Any],
    root: Path,
    manifest: Any,
    truth: Any,
    cache: Cache | None,
    features_code: str,
) -> BorrowedSource:
    """The files of `rerank.ames.files`. InputError, naming the file, where one is missing or damaged, or where the
    number of rows is not that of the benchmark's list."""
    images = [manifest.image_id[row] for row in manifest.rows(gallery=True)]
    return BorrowedSource(options, root, [query.query_id for query in truth.queries], images)


def _names(root: Path, path: str | None, own: Sequence[str]) -> list[str]:
    if path is None:
        return list(own)
    try:
        lines = (root / path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable list of names ({type(error).__name__})") from None
    return [line.strip() for line in lines if line.strip()]


def _open(root: Path, paths: Sequence[str], names: Sequence[str], file: str) -> list[tuple[str, LocalStore]]:
    """The stores with their names: a file's own, or the next ones of the list."""
    stores, start = [], 0
    for path in paths:
        count, named = _rows(root / path, path)
        own = None if named else names[start : start + count]
        if own is not None and len(own) < count:
            key = "query_names" if file == QUERIES_FILE else "gallery_names"
            raise InputError(
                f"{path}: {count} rows, of which the list of names has {len(own)} left; give rerank.ames.files.{key}"
            )
        start += 0 if named else count
        try:
            stores.append((path, open_local(root / path, own)))
        except ArtifactError as error:
            raise InputError(f"{path}: {error}") from None
    if start and start != len(names):
        raise InputError(
            f"{paths[-1]}: {start} rows for {len(names)} names; one row per name is expected, in their order"
        )
    return stores


def _rows(found: Path, path: str) -> tuple[int, bool]:
    """Number of rows of an HDF5 file, and whether it names its images."""
    import h5py

    try:
        with h5py.File(found, "r", locking=False) as opened:
            return len(opened["features"]), "image_ids" in opened  # type: ignore[arg-type]
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path}: not an HDF5 file with a dataset `features` ({type(error).__name__})"
        ) from None
