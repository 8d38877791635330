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


class BatchEncoder(Encoder, Protocol):
    """What an encoder may have besides, each on its own; `cairn.systems.batching` asks for it."""

    batch: int
    """Images that `describe` gets at once (else 32)."""
    damaged: str
    """What to do with an image that cannot be decoded: `fail` (the default), or `missing`: list it."""
    device: str
    """Kind of device that `describe` computes on: descriptors of one kind are equal to the last bit."""
    halved: bool
    """Whether a batch had to be halved for lack of memory since it was last set to False."""
    has_text: bool
    """Whether there is `describe_texts`."""

    def for_queries(self) -> Encoder:
        """The encoder for the side of the queries, where that differs."""
        ...

    def shape(self, height: int, width: int, whole: tuple[int, int] | None) -> Any:
        """What `prepare` makes of an image of that size: images of equal shapes go into one batch.

        `whole` is height and width of the image that a query is a part of; where there is `shape`, `prepare`
        takes it as its second argument.
        """
        ...

    def reduction(self, height: int, width: int) -> int:
        """1, 2, 4 or 8: to which fraction of its sides a JPEG may be decoded.

        Above 1, `prepare` takes the size as stored as its third argument, from which its result's shape follows.
        """
        ...

    def stack(self, prepared: Sequence[Any]) -> Any:
        """A batch that `describe` takes as well, made while the device computes the one before."""
        ...

    def describe_texts(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [len(texts), dim], rows of L2 norm 1, comparable with those of images."""
        ...
