"""Learns a read-out from descriptors and applies it to others, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cairn.encoders.pca import learn_pca
from cairn.encoders.vlad import unit
from cairn.errors import InputError, ParameterError
from cairn.readout import ReadoutParameters
from cairn.search.products import product


class Descriptors(Protocol):
    """What is read: `cairn.store.descriptors.DescriptorStore` is one."""

    @property
    def dim(self) -> int:
        """Numbers of a descriptor."""
        ...

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[np.ndarray]:
        """float16 or float32 [rows, dim], in order."""
        ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Copies of some rows."""
        ...


@dataclass(frozen=True, eq=False)
class Transform:
    """A learned read-out: float32 `mean` [dimension] and `projection` [dimension, kept], None where not asked for."""

    dimension: int | None = None
    mean: np.ndarray | None = None
    projection: np.ndarray | None = None

    @property
    def identity(self) -> bool:
        """Whether rows pass as they are."""
        return self.dimension is None and self.mean is None and self.projection is None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """float32 [n, kept] of L2 norm 1 from descriptors [n, dim]; a zero row (no features) stays zero.

        Of an identity, the rows themselves in float32, whatever their norm.
        """
        if self.identity:
            return np.asarray(rows, np.float32)
        found = truncated(rows, self.dimension)
        if self.mean is not None:
            found = (found - self.mean) * found.any(axis=1, keepdims=True)
        if self.projection is not None:
            found = product(found, self.projection)
        return unit(found)


def truncated(rows: np.ndarray, dimension: int | None) -> np.ndarray:
    """The first `dimension` numbers of each row, L2-normalised, float32."""
    return unit(np.asarray(rows[:, :dimension], np.float32))


def learn_transform(
    parameters: ReadoutParameters, dim: int, training: Descriptors | None, gallery: Descriptors
) -> Transform:
    """The read-out that `parameters` ask for, of descriptors of `dim` numbers.

    On one thread, means in float64: the same descriptors give the same transform. Images without features (zero
    rows) teach nothing. ParameterError where a dimension is larger than what there is; InputError where the
    source is missing, has other dimensions, or has too few images.
    """
    from threadpoolctl import threadpool_limits

    wanted = parameters.dimension
    if wanted is not None and wanted > dim:
        raise ParameterError(f"readout.dimension = {wanted}: descriptors have {dim} numbers; at most so many")
    if parameters.source is None:
        return Transform(wanted)
    source = gallery if parameters.source == "gallery" else training
    if source is None:
        raise InputError(
            f"the read-out {parameters.slug} learns from training images, but there are no training descriptors "
            "(a system whose `readout` learns on them has them made)"
        )
    if source.dim != dim:
        raise InputError(
            f"the read-out {parameters.slug}: training descriptors have {source.dim} numbers, the gallery's {dim}"
        )
    with threadpool_limits(1):
        if parameters.whiten is None:
            return Transform(wanted, _mean(source, wanted))
        rows = _sample(source, wanted, parameters.whiten.images)
        most = min(len(rows) - 1, rows.shape[1])
        kept = parameters.whiten.dimension
        if most < 1 or (kept or 0) > most:
            raise ParameterError(
                f"readout.whiten.dimension = {kept}: {len(rows)} {parameters.source} images with {rows.shape[1]} "
                f"numbers allow at most {max(most, 0)} components"
            )
        mean, projection = learn_pca(rows, kept or most, parameters.whiten.strength)
        return Transform(wanted, mean, projection)


def _mean(source: Descriptors, dimension: int | None) -> np.ndarray:
    total, count = np.zeros(dimension or source.dim), 0
    for block in source.blocks():
        rows = truncated(block, dimension)
        total += rows.sum(axis=0, dtype=np.float64)
        count += int(rows.any(axis=1).sum())
    if not count:
        raise InputError("no descriptor to learn a mean from: all images are without features")
    return (total / count).astype(np.float32)


def _sample(source: Descriptors, dimension: int | None, images: int) -> np.ndarray:
    """At most `images` rows, evenly spaced."""
    count = len(source)
    rows = np.arange(count) if count <= images else np.arange(images) * count // images
    parts = [
        truncated(source.take(rows[start : start + 8192]), dimension) for start in range(0, len(rows), 8192)
    ]
    found = np.concatenate(parts)
    return found[found.any(axis=1)]
