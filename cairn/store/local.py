"""Local descriptors in HDF5, in the layout that the authors of AMES publish and read.

AMES (Suma et al., ECCV 2024; github.com/pavelsuma/ames, extract/extract_dino.py and
src/utils/tensor_dataset.py) keeps one dataset, `features` [image, keypoint, 5 + dim]: x, y, scale, mask,
weight, then the descriptor. mask is **1 for padding** and 0 for a feature; padding comes last and is zero
elsewhere. Their files are read as they are; files written here are read by their code, and hold besides

- `image_ids` [image], fixed-length UTF-8, and `num_features` [image], int32: the features before the padding;
- where `features` is float16, `geometry` [image, keypoint, 4], float32: x, y, scale, weight unrounded.

Descriptors of 8-bit integers (SIFT) are stored packed instead, exactly and without padding:
`descriptors` [feature, dim] uint8, `geometry` [feature, 4] float32, `image_ids` and `num_features`.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ArtifactError
from cairn.files import atomic
from cairn.store.tables import first_line

if TYPE_CHECKING:
    import h5py

SKIPPED = 5
"""Numbers before the descriptor in a row of `features`: x, y, scale, mask, weight."""
_MASK = 3
_GEOMETRY = [0, 1, 2, 4]  # x, y, scale, weight among them
_MAX_GROWTH = 1_100  # what deflate can gain at most
_HDF5_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, OverflowError, MemoryError)


@dataclass(frozen=True, eq=False)
class LocalFeatures:
    """The local features of one image, strongest first.

    `positions` float32 [n, 2]: x, y in the unit that the file's metadata names (AMES: as a share of width and
    height of the whole image, also for a cropped query). `scales` and `weights` float32 [n]. `descriptors`
    float16, float32 or uint8 [n, dim].
    """

    positions: np.ndarray
    scales: np.ndarray
    weights: np.ndarray
    descriptors: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)


def write_local(
    path: Path,
    ids: Sequence[str],
    features: Iterable[LocalFeatures],
    *,
    dim: int,
    keypoints: int,
    dtype: str,
    metadata: Mapping[str, str],
) -> None:
    """Write the features of the images `ids`, taken one by one from `features` in the same order.

    `dtype` is "float32" or "float16" (the AMES layout, padded to `keypoints` features) or "uint8" (packed;
    descriptors must be integers from 0 to 255). The same input gives the same bytes. ArtifactError, naming
    the image, for more than `keypoints` features, another dimension, a value that is not finite or does not
    fit the type, and where ids and features differ in number.
    """
    import h5py

    if dtype not in ("float16", "float32", "uint8"):
        raise ArtifactError(
            f"{path}: local descriptors cannot be stored as {dtype}: float16, float32 or uint8"
        )
    if len(set(ids)) != len(ids):
        raise ArtifactError(f"{path}: an id occurs twice")
    with atomic(path) as temporary, h5py.File(temporary, "w", libver=("v108", "v108")) as file:
        for key, value in sorted(metadata.items()):
            file.attrs[key] = value
        write = _write_packed if dtype == "uint8" else _write_padded
        checked = _checked(path, ids, features, dim, keypoints, dtype)
        counts = write(file, len(ids), checked, dim, keypoints, np.dtype(dtype))
        encoded = [name.encode() for name in ids]
        kind = h5py.string_dtype("utf-8", max([1, *map(len, encoded)]))
        file.create_dataset("image_ids", data=np.array(encoded, kind), dtype=kind, track_times=False)
        file.create_dataset("num_features", data=np.array(counts, np.int32), track_times=False)


def open_local(path: Path, ids: Sequence[str] | None = None) -> "LocalStore":
    """Open a file of local descriptors. ArtifactError, naming the file, where it is damaged.

    `ids` names the images of a file that holds none (the authors' files follow their list of images).
    """
    return LocalStore(Path(path), ids)


class LocalStore:
    """Local descriptors on disk, read image by image or in padded batches; can be pickled.

    `ids` in the file's order, `dim`, `keypoints` (the most an image has room for, or has where packed),
    `dtype`, `metadata`.
    """

    def __init__(self, path: Path, ids: Sequence[str] | None = None):
        self.path = path
        self._given = list(ids) if ids is not None else None
        self._load()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "ids": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["ids"])  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """Number of features of each image, int32 [image]. Reads all of a file of the authors."""
        if self._counts is not None:
            return self._counts
        return np.array([len(self._features(row)) for row in range(len(self))], np.int32)

    def row_of(self, name: str) -> int:
        """Row of an image. ArtifactError where it is not in the file."""
        try:
            return self._row_of[name]
        except KeyError:
            raise ArtifactError(f"{self.path}: no local descriptors of {name}; extract them again") from None

    def read(self, name: str, most: int | None = None) -> LocalFeatures:
        """The features of one image, without padding; the first `most` of them where given."""
        return self._features(self.row_of(name), most)

    def batch(self, names: Sequence[str], keypoints: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `keypoints` features of several images, padded, as AMES takes them.

        Returns descriptors float32 [len(names), keypoints, dim] (zero in the padding) and mask bool
        [len(names), keypoints], true for padding.
        """
        descriptors = np.zeros((len(names), keypoints, self.dim), np.float32)
        mask = np.ones((len(names), keypoints), bool)
        for position, name in enumerate(names):
            found = self._features(self.row_of(name), keypoints)
            descriptors[position, : len(found)] = found.descriptors
            mask[position, : len(found)] = False
        return descriptors, mask

    def _load(self) -> None:
        import h5py

        try:
            # No lock: the file is a finished artifact, and may lie on a file system without locks.
            self._file: Any = h5py.File(self.path, "r", locking=False)
            self._packed = "features" not in self._file
            if self._packed:
                self._descriptors = _dataset(self._file, self.path, "descriptors", 2, "u")
            else:
                self._descriptors = _dataset(self._file, self.path, "features", 3, "f")
            shape = self._descriptors.shape
            self.dtype: np.dtype = self._descriptors.dtype
            self.dim: int = shape[-1] if self._packed else shape[-1] - SKIPPED
            self.metadata = {str(key): str(value) for key, value in self._file.attrs.items()}
            if self.dim < 1:
                raise ArtifactError(f"{self.path}: rows of {shape[-1]} numbers hold no descriptor")
            self._counts = self._read_counts()
            self.ids = self._read_ids(shape[0] if self._counts is None else len(self._counts))
            self._geometry = None
            if "geometry" in self._file:
                self._geometry = _dataset(self._file, self.path, "geometry", len(shape), "f")
                if self._geometry.shape != (*shape[:-1], 4):
                    raise ArtifactError(f"{self.path}: geometry of shape {self._geometry.shape} does not fit")
            elif self._packed:
                raise ArtifactError(f"{self.path}: no dataset geometry")
        except _HDF5_ERRORS as error:
            raise ArtifactError(f"{self.path}: not a readable HDF5 file ({first_line(error)})") from None
        self.keypoints: int = int(self.counts.max(initial=0)) if self._packed else shape[1]
        if self._packed:
            self._starts = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
            if self._starts[-1] != shape[0]:
                raise ArtifactError(f"{self.path}: {shape[0]} descriptors for {self._starts[-1]} features")
        self._row_of = {name: row for row, name in enumerate(self.ids)}
        if len(self._row_of) != len(self.ids):
            raise ArtifactError(f"{self.path}: an image id occurs twice")

    def _read_counts(self) -> np.ndarray | None:
        if "num_features" not in self._file and not self._packed:
            return None  # a file of the authors: only its masks say where features end
        counts = _dataset(self._file, self.path, "num_features", 1, "i")[:].astype(np.int64)
        most = self._descriptors.shape[0 if self._packed else 1]
        if len(counts) and not 0 <= counts.min() <= counts.max() <= most:
            raise ArtifactError(f"{self.path}: num_features must lie between 0 and {most}")
        if not self._packed and len(counts) != self._descriptors.shape[0]:
            raise ArtifactError(f"{self.path}: {len(counts)} counts for {self._descriptors.shape[0]} images")
        return counts.astype(np.int32)

    def _read_ids(self, images: int) -> list[str]:
        if self._given is not None:
            ids = self._given
        elif "image_ids" in self._file:
            stored = _dataset(self._file, self.path, "image_ids", 1, "SO")
            ids = stored.asstr()[:].tolist()
        else:
            raise ArtifactError(f"{self.path}: holds no image_ids; the list of its images must be given")
        if len(ids) != images:
            raise ArtifactError(f"{self.path}: {len(ids)} image ids for {images} images")
        return ids

    def _features(self, row: int, most: int | None = None) -> LocalFeatures:
        most = self.keypoints if most is None else most
        count = most if self._counts is None else min(int(self._counts[row]), most)
        try:
            if self._packed:
                start = int(self._starts[row])
                descriptors = self._descriptors[start : start + count]
                geometry = self._geometry[start : start + count]  # type: ignore[index]
            else:
                rows = self._descriptors[row, :count]
                if self._counts is None:
                    rows = self._before_padding(rows, row)
                    count = len(rows)
                descriptors = rows[:, SKIPPED:]
                geometry = rows[:, _GEOMETRY] if self._geometry is None else self._geometry[row, :count]
        except _HDF5_ERRORS as error:
            raise ArtifactError(
                f"{self.path}: {self.ids[row]} cannot be read ({first_line(error)})"
            ) from None
        geometry = geometry.astype(np.float32, copy=False)
        return LocalFeatures(geometry[:, :2], geometry[:, 2], geometry[:, 3], descriptors)

    def _before_padding(self, rows: np.ndarray, row: int) -> np.ndarray:
        padding = rows[:, _MASK] != 0
        count = int((~padding).sum())
        if padding[:count].any():
            raise ArtifactError(f"{self.path}: {self.ids[row]}: features follow padding; it must come last")
        return rows[:count]


def _write_padded(
    file: "h5py.File",
    images: int,
    features: Iterator[LocalFeatures],
    dim: int,
    keypoints: int,
    dtype: np.dtype,
) -> list[int]:
    rows = file.create_dataset("features", (images, keypoints, SKIPPED + dim), dtype, track_times=False)
    geometry = None
    if dtype == np.float16:
        geometry = file.create_dataset("geometry", (images, keypoints, 4), np.float32, track_times=False)
    counts = []
    for row, found in enumerate(features):
        count = len(found)
        exact = np.zeros((keypoints, 4), np.float32)
        exact[:count] = _geometry_of(found)
        block = np.zeros((keypoints, SKIPPED + dim), dtype)
        block[:, _GEOMETRY] = exact
        block[count:, _MASK] = 1
        block[:count, SKIPPED:] = found.descriptors
        rows[row] = block
        if geometry is not None:
            geometry[row] = exact
        counts.append(count)
    return counts


def _write_packed(
    file: "h5py.File",
    images: int,
    features: Iterator[LocalFeatures],
    dim: int,
    keypoints: int,
    dtype: np.dtype,
) -> list[int]:
    # Chunks of about half a megabyte, filled in order; the last is padded with zeros by HDF5.
    chunk = max(1, (1 << 19) // dim)
    rows = file.create_dataset(
        "descriptors", (0, dim), dtype, maxshape=(None, dim), chunks=(chunk, dim), track_times=False
    )
    geometry = file.create_dataset(
        "geometry", (0, 4), np.float32, maxshape=(None, 4), chunks=(chunk, 4), track_times=False
    )
    counts: list[int] = []
    total = 0
    while batch := list(itertools.islice(features, 256)):
        start, total = total, total + sum(map(len, batch))
        rows.resize(total, axis=0)
        geometry.resize(total, axis=0)
        if total > start:
            rows[start:] = np.concatenate([found.descriptors for found in batch]).astype(dtype)
            geometry[start:] = np.concatenate([_geometry_of(found) for found in batch])
        counts.extend(map(len, batch))
    return counts


def _geometry_of(found: LocalFeatures) -> np.ndarray:
    return np.column_stack([found.positions, found.scales, found.weights]).astype(np.float32)


def _checked(
    path: Path,
    ids: Sequence[str],
    features: Iterable[LocalFeatures],
    dim: int,
    keypoints: int,
    dtype: str,
) -> Iterator[LocalFeatures]:
    """The features, each checked; as many as there are ids."""
    missing = object()
    for name, found in itertools.zip_longest(ids, features, fillvalue=missing):
        if name is missing or not isinstance(found, LocalFeatures):
            raise ArtifactError(f"{path}: the numbers of ids and of images with features differ")
        count = len(found)
        shapes = (found.positions.shape, found.scales.shape, found.weights.shape, found.descriptors.shape)
        if shapes != ((count, 2), (count,), (count,), (count, dim)):
            raise ArtifactError(f"{path}: features of {name} have shapes {shapes}; expected {dim} dimensions")
        if count > keypoints:
            raise ArtifactError(f"{path}: {name} has {count} features; at most {keypoints} are stored")
        with np.errstate(over="ignore"):
            stored = found.descriptors.astype(dtype)
        finite = np.isfinite(stored).all() and np.isfinite(_geometry_of(found)).all()
        if not finite or (dtype == "uint8" and (stored != found.descriptors).any()):
            raise ArtifactError(f"{path}: features of {name} hold a value that cannot be stored as {dtype}")
        yield found


def _dataset(file: Any, path: Path, name: str, dimensions: int, kinds: str) -> Any:
    """A dataset that is all there, in this very file: links and external storage could lead anywhere."""
    import h5py

    if name not in file:
        raise ArtifactError(f"{path}: no dataset {name}")
    dataset = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(dataset, h5py.Dataset):
        raise ArtifactError(f"{path}: {name} is not a dataset of this file")
    if dataset.external or dataset.is_virtual:
        raise ArtifactError(f"{path}: dataset {name} is stored in another file")
    # A dataset of unwritten chunks can claim any size; what is read has to be in the file.
    growth = 1 if dataset.id.get_create_plist().get_nfilters() == 0 else _MAX_GROWTH
    if dataset.id.get_storage_size() * growth < dataset.size * dataset.dtype.itemsize:
        raise ArtifactError(f"{path}: dataset {name} of shape {dataset.shape} is not all there")
    if dataset.ndim != dimensions or dataset.dtype.kind not in kinds:
        raise ArtifactError(
            f"{path}: dataset {name} has shape {dataset.shape} and type {dataset.dtype}; "
            f"{dimensions} dimensions of kind {'/'.join(kinds)} are expected"
        )
    return dataset
