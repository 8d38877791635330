"""The encoder `rootsift-vlad`: RootSIFT features aggregated to a VLAD over a vocabulary learned in the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from cairn.encoders.pca import learn_pca, project
from cairn.encoders.protocol import Learned, Training
from cairn.encoders.rootsift import DIM, RootSift, root
from cairn.encoders.rootsift_settings import Local, Model, choice, sampled
from cairn.encoders.vlad import learn_words, vlad
from cairn.errors import InputError
from cairn.store.local import LocalFeatures

LEARNING_KEYS = ("local", "vocabulary", "vlad", "pca")
FEATURE_MODULES = ("cairn.encoders.rootsift", "cairn.systems.features")
MOST_PCA_IMAGES = 4_000
"""Training images that a PCA is learned from: 262 MB of 16,384-dimensional descriptors."""


class Vocabulary(Model):
    """The visual words, learned by k-means on the training images."""

    words: Annotated[int, Field(ge=1, le=65_536)] = 256
    dimension: Annotated[int, Field(ge=1, le=DIM)] = 64
    """Principal components of RootSIFT that are kept (rotation, no whitening)."""
    sample: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    """Descriptors that the words are learned from, the same share of every image."""
    images: Annotated[int, Field(ge=1)] = 10_000
    """Most training images that they are taken from."""
    iterations: Annotated[int, Field(ge=1, le=1000)] = 20
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class Vlad(Model):
    """Aggregation; see `cairn.encoders.vlad`."""

    power: Annotated[float, Field(gt=0, le=1)] = 0.5
    intra: bool = True
    residuals: bool = True
    """Whether residuals are L2-normalised before they are summed."""


class Pca(Model):
    """Reduction, learned on the training images. Off by default: see the docstring of Parameters."""

    dimension: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Components kept; null for no PCA."""
    whiten: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Strength of the whitening, from 0 (rotation only) to 1."""


class Parameters(Model):
    """Parameters of `rootsift-vlad`.

    Without PCA of the whole a descriptor has words × vocabulary.dimension numbers. On toytown, whose 900
    training images cannot fill so many dimensions, every such PCA that was tried cost more than ten points of
    Medium.
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
        """Components of RootSIFT, the words, and where asked the PCA of the whole.

        InputError where the images have too few features for so many words or components.
        """
        wanted, seed = self.parameters.vocabulary, self.parameters.vocabulary.seed
        generator = np.random.default_rng(seed)
        sample = sampled(training, count, generator, images=wanted.images, descriptors=wanted.sample)
        least = max(wanted.words, wanted.dimension + 1)
        if len(sample) < least:
            raise InputError(
                f"a vocabulary of {wanted.words} words of {wanted.dimension} dimensions needs {least} features; "
                f"the {count} training images gave {len(sample)}"
            )
        rooted = root(sample)
        centre, components = learn_pca(rooted, wanted.dimension, 0.0)
        reduced = (rooted - centre) @ components
        words = learn_words(reduced, wanted.words, iterations=wanted.iterations, seed=seed)
        learned = {"components": components, "centre": centre, "words": words}
        dimension = self.parameters.pca.dimension
        if dimension is not None:
            chosen = set(choice(generator, count, MOST_PCA_IMAGES))
            rows = [
                self._vlad(features, learned)
                for number, features in enumerate(training())
                if number in chosen and len(features)
            ]
            mean, projection = learn_pca(np.array(rows), dimension, self.parameters.pca.whiten)
            learned |= {"mean": mean, "projection": projection}
        return learned

    def describe(self, prepared: Sequence[LocalFeatures], learned: Learned) -> np.ndarray:
        """float32 [n, words × vocabulary.dimension], or [n, pca.dimension]; zero for an image without features."""
        rows = np.array([self._vlad(features, learned) for features in prepared])
        if "projection" in learned:
            rows = project(rows, learned["mean"], learned["projection"])
        return rows

    def _vlad(self, features: LocalFeatures, learned: Learned) -> np.ndarray:
        options = self.parameters.vlad
        return vlad(
            (root(features.descriptors) - learned["centre"]) @ learned["components"],
            learned["words"],
            power=options.power,
            intra=options.intra,
            residuals=options.residuals,
        )


def create(parameters: Parameters) -> RootSiftVlad:
    """The encoder with these parameters."""
    return RootSiftVlad(parameters)
