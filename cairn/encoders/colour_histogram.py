"""The encoder `colour-histogram`: how often each colour occurs. The floor that others should clear."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cairn.encoders.protocol import Learned, Training

LEARNING_KEYS = ()
FEATURE_MODULES = ()


class Bins(BaseModel):
    """Bins per channel of HSV."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hue: Annotated[int, Field(ge=1, le=180)] = 16
    saturation: Annotated[int, Field(ge=1, le=256)] = 6
    value: Annotated[int, Field(ge=1, le=256)] = 6


class Parameters(BaseModel):
    """Parameters of `colour-histogram`; a descriptor has hue × saturation × value numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bins: Bins = Bins()


@dataclass(frozen=True)
class ColourHistogram:
    """The HSV histogram of an image, square-rooted, which makes its L2 norm 1 (Hellinger kernel)."""

    parameters: Parameters
    features = None
    colour = True
    in_workers = True
    learns = False

    def key(self) -> dict[str, Any]:
        """Parameters and versions that decide the descriptors."""
        import cv2

        return {
            "encoder": "colour-histogram",
            "bins": self.parameters.bins.model_dump(),
            "versions": {"cv2": cv2.__version__, "numpy": np.__version__},
        }

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """float32 [dim] of a uint8 image [height, width, 3] in the order blue, green, red."""
        import cv2

        bins = self.parameters.bins
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
        counts = cv2.calcHist(
            [hsv], [0, 1, 2], None, [bins.hue, bins.saturation, bins.value], [0, 180, 0, 256, 0, 256]
        )
        shares = counts.astype(np.float64).ravel() / counts.sum(dtype=np.float64)
        return np.sqrt(shares).astype(np.float32)

    def learn(self, training: Training, count: int) -> Learned:
        """Nothing."""
        return {}

    def describe(self, prepared: Sequence[np.ndarray], learned: Learned) -> np.ndarray:
        """The histograms, float32 [n, dim]."""
        return np.array(prepared, np.float32)


def create(parameters: Parameters) -> ColourHistogram:
    """The encoder with these parameters."""
    return ColourHistogram(parameters)
