"""What the encoders on RootSIFT share: settings of the features, and the sample that visual words are learned from."""

from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cairn.encoders.protocol import Training
from cairn.encoders.rootsift import DIM


class Model(BaseModel):
    """Settings that name a key they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Local(Model):
    """Local features of an image."""

    limit: Annotated[int, Field(ge=8, le=20_000)] = 600
    """Features kept per image, strongest response first."""
    longest: Annotated[int, Field(ge=64, le=10_000)] | None = 640
    """Longer side, in pixels, to which larger images are reduced; null for never."""
    contrast: Annotated[float, Field(ge=0, le=1)] = 0.02
    """OpenCV's contrastThreshold: higher gives fewer features in flat regions."""


def sampled(
    training: Training, count: int, generator: np.random.Generator, *, images: int, descriptors: int
) -> np.ndarray:
    """About `descriptors` SIFT descriptors, uint8 [n, 128]: the same share of every one of at most `images` images."""
    chosen = set(choice(generator, count, images))
    share = -(-descriptors // max(len(chosen), 1))
    taken = [
        features.descriptors[choice(generator, len(features), share)]
        for number, features in enumerate(training())
        if number in chosen
    ]
    return np.concatenate([*taken, np.zeros((0, DIM), np.uint8)])


def choice(generator: np.random.Generator, count: int, most: int) -> np.ndarray:
    """At most `most` of the numbers below `count`, drawn without replacement, ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator.permutation(count)[:most])
