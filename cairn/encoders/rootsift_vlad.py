"""The encoder `rootsift-vlad`: RootSIFT features aggregated to a VLAD over a vocabulary learned in the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cairn.encoders.pca import learn_pca, project
from cairn.encoders.protocol import Learned, Training
from cairn.encoders.rootsift import DIM, RootSift, root
from cairn.encoders.vlad import learn_words, vlad
from cairn.errors import InputError
from cairn.store.local import LocalFeatures

LEARNING_KEYS = ("local", "vocabulary", "vlad", "pca")
FEATURE_MODULES = ("cairn.encoders.rootsift", "cairn.systems.features")
MOST_PCA_IMAGES = 4_000
"""Training images that a PCA is learned from: 262 MB of 16,384-dimensional descriptors."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Local(_Model):
    """Local features of an image."""

    limit: Annotated[int, Field(ge=8, le=20_000)] = 1000
    """Features kept per image, strongest response first."""
    longest: Annotated[int, Field(ge=64, le=10_000)] | None = 640
    """Longer side, in pixels, to which larger images are reduced; null for never."""
    contrast: Annotated[float, Field(ge=0, le=1)] = 0.02
    """OpenCV's contrastThreshold: higher gives fewer features in flat regions."""


class Vocabulary(_Model):
    """The visual words, learned by k-means on the training images."""

    words: Annotated[int, Field(ge=1, le=65_536)] = 128
    sample: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    """Descriptors that the words are learned from, the same share of every image."""
    images: Annotated[int, Field(ge=1)] = 10_000
    """Most training images that they are taken from."""
    iterations: Annotated[int, Field(ge=1, le=1000)] = 20
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class Vlad(_Model):
    """Aggregation; see `cairn.encoders.vlad`."""

    power: Annotated[float, Field(gt=0, le=1)] = 0.5
    intra: bool = True
    residuals: bool = True
    """Whether residuals are L2-normalised before they are summed."""


class Pca(_Model):
    """Reduction, learned on the training images. Off by default: see the docstring of Parameters."""

    dimension: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Components kept; null for no PCA."""
    whiten: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Strength of the whitening, from 0 (rotation only) to 1."""


class Parameters(_Model):
    """Parameters of `rootsift-vlad`.

    Without PCA a descriptor has 128 × words numbers. On toytown, whose 900 training images cannot fill so
    many dimensions, every PCA cost more than ten points of Medium.
    """

    local: Local = Local()
    vocabulary: Vocabulary = Vocabulary()
    vlad: Vlad = Vlad()
    pca: Pca = Pca()


@dataclass(frozen=True)
class RootSiftVlad:
    """RootSIFT-VLAD behind the encoder protocol."""

    parameters: Parameters
    features: RootSift = field(init=False)
    colour = False
    in_workers = True
    learns = True

    def __post_init__(self) -> None:
        local = self.parameters.local
        object.__setattr__(self, "features", RootSift(local.limit, local.longest, local.contrast))

    def key(self) -> dict[str, Any]:
        """Parameters and versions that decide the descriptors."""
        return {
            "encoder": "rootsift-vlad",
            "local": self.features.key(),
            "vlad": self.parameters.vlad.model_dump(),
            "versions": {"numpy": np.__version__},
        }

    def prepare(self, image: np.ndarray) -> LocalFeatures:
        """The image's local features."""
        return self.features(image)

    def learn(self, training: Training, count: int) -> Learned:
        """The words, and where asked the PCA. InputError where the images have fewer features than words."""
        wanted, seed = self.parameters.vocabulary, self.parameters.vocabulary.seed
        generator = np.random.default_rng(seed)
        chosen = set(_choice(generator, count, wanted.images))
        share = -(-wanted.sample // max(len(chosen), 1))
        taken = [
            features.descriptors[_choice(generator, len(features), share)]
            for number, features in enumerate(training())
            if number in chosen
        ]
        sample = np.concatenate([*taken, np.zeros((0, DIM), np.uint8)])
        if len(sample) < wanted.words:
            raise InputError(
                f"a vocabulary of {wanted.words} words needs as many features; the {count} training images "
                f"gave {len(sample)}"
            )
        words = learn_words(root(sample), wanted.words, iterations=wanted.iterations, seed=seed)
        learned = {"words": words, "sampled": np.array(len(sample))}
        dimension = self.parameters.pca.dimension
        if dimension is not None:
            chosen = set(_choice(generator, count, MOST_PCA_IMAGES))
            rows = [
                self._vlad(features, words)
                for number, features in enumerate(training())
                if number in chosen and len(features)
            ]
            mean, projection = learn_pca(np.array(rows), dimension, self.parameters.pca.whiten)
            learned |= {"mean": mean, "projection": projection}
        return learned

    def describe(self, prepared: Sequence[LocalFeatures], learned: Learned) -> np.ndarray:
        """VLADs float32 [n, words × 128], or [n, pca.dimension]; zero for an image without features."""
        rows = np.array([self._vlad(features, learned["words"]) for features in prepared])
        if "projection" in learned:
            rows = project(rows, learned["mean"], learned["projection"])
        return rows

    def _vlad(self, features: LocalFeatures, words: np.ndarray) -> np.ndarray:
        options = self.parameters.vlad
        return vlad(
            root(features.descriptors),
            words,
            power=options.power,
            intra=options.intra,
            residuals=options.residuals,
        )


def create(parameters: Parameters) -> RootSiftVlad:
    """The encoder with these parameters."""
    return RootSiftVlad(parameters)


def _choice(generator: np.random.Generator, count: int, most: int) -> np.ndarray:
    """At most `most` of the numbers below `count`, drawn without replacement, ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(generator.permutation(count)[:most])
