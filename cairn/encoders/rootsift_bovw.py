"""The encoder `rootsift-bovw`: RootSIFT bags of visual words with tf-idf weights, compared through an inverted file.

Sivic and Zisserman, "Video Google: a text retrieval approach to object matching in videos", ICCV 2003; RootSIFT:
Arandjelović and Zisserman, CVPR 2012. Words and document frequencies come from the training images, so that no
weight is learned on the gallery. `power` 0.5 damps words that an image repeats: Jégou, Douze and Schmid, "On the
burstiness of visual elements", CVPR 2009.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from cairn.encoders.large_vocabulary import in_threads, learn_many_words, nearest_words
from cairn.encoders.protocol import Learned, Training
from cairn.encoders.rootsift import RootSift, root
from cairn.encoders.rootsift_settings import Local, Model, sampled
from cairn.encoders.vlad import unit
from cairn.errors import InputError
from cairn.store.local import LocalFeatures

LEARNING_KEYS = ("local", "vocabulary")
FEATURE_MODULES = ("cairn.encoders.rootsift", "cairn.systems.features")


class Vocabulary(Model):
    """The visual words, learned by k-means on the training images."""

    words: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    sample: Annotated[int, Field(ge=1, le=100_000_000)] = 200_000
    """Descriptors that the words are learned from, the same share of every image."""
    images: Annotated[int, Field(ge=1)] = 10_000
    """Most training images that they are taken from."""
    iterations: Annotated[int, Field(ge=1, le=1000)] = 8
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class Parameters(Model):
    """Parameters of `rootsift-bovw`."""

    local: Local = Local()
    vocabulary: Vocabulary = Vocabulary()
    power: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Exponent of a word's count; 1 for plain tf."""


@dataclass(frozen=True)
class RootSiftBovw:
    """Bags of visual words behind the encoder protocol."""

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
            "encoder": "rootsift-bovw",
            "local": self.features.key(),
            "power": self.parameters.power,
            "versions": {"numpy": np.__version__},
        }

    def prepare(self, image: np.ndarray) -> LocalFeatures:
        """The image's local features."""
        return self.features(image)

    def learn(self, training: Training, count: int) -> Learned:
        """`words` float32 [words, 128] and `idf` float32 [words]: ln(images / images that have the word).

        InputError where the images have fewer features than there are words.
        """
        wanted = self.parameters.vocabulary
        generator = np.random.default_rng(wanted.seed)
        sample = sampled(training, count, generator, images=wanted.images, descriptors=wanted.sample)
        if len(sample) < wanted.words:
            raise InputError(
                f"a vocabulary of {wanted.words} words needs as many features; the {count} training images gave "
                f"{len(sample)}"
            )
        words = learn_many_words(root(sample), wanted.words, iterations=wanted.iterations, seed=wanted.seed)
        having = np.zeros(wanted.words, np.int64)
        descriptors = (features.descriptors for features in training())
        for had in in_threads(lambda one: np.unique(nearest_words(root(one), words)), descriptors):
            having[had] += 1
        # A word of no training image would be infinitely telling: it counts as one that a single image has.
        return {"words": words, "idf": np.log(count / np.maximum(having, 1)).astype(np.float32)}

    def describe(self, prepared: Sequence[LocalFeatures], learned: Learned) -> np.ndarray:
        """float32 [n, words], mostly zero, rows of L2 norm 1; zero for an image without a telling word."""
        return np.array([self._bag(features, learned) for features in prepared], np.float32)

    def _bag(self, features: LocalFeatures, learned: Learned) -> np.ndarray:
        words, idf = learned["words"], learned["idf"]
        counts = np.bincount(nearest_words(root(features.descriptors), words), minlength=len(words))
        return unit((counts.astype(np.float32) ** np.float32(self.parameters.power) * idf)[None])[0]


def create(parameters: Parameters) -> RootSiftBovw:
    """The encoder with these parameters."""
    return RootSiftBovw(parameters)
