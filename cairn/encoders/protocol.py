"""What an encoder is: images → global descriptors, and where it has them, local features."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from cairn.store.local import LocalFeatures

Learned = Mapping[str, np.ndarray]
"""What an encoder learned from training images: arrays by name."""

Training = Callable[[], Iterator[Any]]
"""Each call starts a new pass over the prepared training images, in the order of their manifest."""


class FeatureExtractor(Protocol):
    """Local features of one image; runs in worker processes, its results are cached per image.

    Everything that decides the features stands in the module of the extractor and in what that imports: its
    code digest is part of the cache's key, and steps with different digests share the features.
    """

    colour: bool
    """Whether it takes uint8 [height, width, 3] in the order blue, green, red; else grey [height, width]."""
    dim: int
    dtype: str
    """Type the descriptors are stored as: "uint8", "float16" or "float32"."""
    limit: int
    """Most features of an image."""

    def key(self) -> dict[str, Any]:
        """All parameters and package versions that decide the features, as plain JSON values."""
        ...

    def __call__(self, image: np.ndarray) -> LocalFeatures:
        """Features of a decoded (and, for a query, cropped) image, strongest first."""
        ...


class Encoder(Protocol):
    """Images → global descriptors, in two parts: `prepare` one image, `describe` a batch of prepared ones.

    `prepare` runs in worker processes next to the decoder; `describe` in the main process (on its device), or
    in the workers too where `in_workers` says that it needs no batch.
    """

    features: FeatureExtractor | None
    """Where given, it takes the place of `prepare`: what is described are LocalFeatures."""
    colour: bool
    in_workers: bool
    learns: bool

    def key(self) -> dict[str, Any]:
        """All parameters, revisions and package versions that decide the descriptors, as JSON values."""
        ...

    def prepare(self, image: np.ndarray) -> Any:
        """One decoded (and cropped) image as `describe` takes it."""
        ...

    def learn(self, training: Training, count: int) -> Learned:
        """Learn from `count` prepared training images. Deterministic, and independent of thread counts."""
        ...

    def describe(self, prepared: Sequence[Any], learned: Learned) -> np.ndarray:
        """float32 [len(prepared), dim], rows of L2 norm 1, or zero for an image without any feature."""
        ...
