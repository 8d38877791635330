"""RootSIFT: local features of an image by OpenCV's SIFT, with the descriptors compared as RootSIFT.

SIFT: Lowe, IJCV 2004. RootSIFT: Arandjelović and Zisserman, "Three things everyone should know to improve
object retrieval", CVPR 2012, section 3: L1-normalise, then take the square root of each element.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.store.local import LocalFeatures

DIM = 128


@dataclass(frozen=True)
class RootSift:
    """Extracts SIFT features. What is kept are SIFT's own 8-bit descriptors, exactly; see `root`.

    `limit`: most features, those of strongest response. `longest`: an image whose longer side has more
    pixels is reduced to it by area averaging; None for never. `contrast`: OpenCV's contrastThreshold.
    """

    limit: int
    longest: int | None
    contrast: float

    colour = False
    dim = DIM
    dtype = "uint8"

    def key(self) -> dict[str, Any]:
        """Parameters and versions that decide the features."""
        import cv2

        return {
            "features": "rootsift",
            "limit": self.limit,
            "longest": self.longest,
            "contrast": self.contrast,
            "versions": {"cv2": cv2.__version__, "numpy": np.__version__},
        }

    def __call__(self, image: np.ndarray) -> LocalFeatures:
        """Features of a grey uint8 image [height, width], strongest first; fewer than `limit`, or none.

        Positions are x, y in pixels of the reduced image, scales the diameter of the neighbourhood there
        (OpenCV's KeyPoint.size), weights the response, descriptors uint8 [n, 128].
        """
        import cv2

        small = reduced(image, self.longest)
        create: Any = cv2.SIFT_create  # pyright: ignore[reportAttributeAccessIssue] - absent from its stubs
        sift = create(nfeatures=self.limit, contrastThreshold=self.contrast)
        points, descriptors = sift.detectAndCompute(small, None)
        if descriptors is None or not len(points):
            return _none()
        rows = np.array([(*point.pt, point.size, point.response, point.angle) for point in points])
        x, y, size, response, angle = rows.T
        # OpenCV keeps all features that tie with the last one; the order below is the same on every run.
        order = np.lexsort((angle, size, y, x, -response))[: self.limit]
        kept = rows[order].astype(np.float32)
        return LocalFeatures(kept[:, :2], kept[:, 2], kept[:, 3], descriptors[order].astype(np.uint8))


def root(descriptors: np.ndarray) -> np.ndarray:
    """RootSIFT of SIFT descriptors uint8 [n, 128]: float32 [n, 128], rows of L2 norm 1 (0 for a zero row).

    Dot products of two rows are Hellinger kernels of the SIFT histograms.
    """
    values = descriptors.astype(np.float32)
    values /= np.maximum(values.sum(axis=1, keepdims=True), 1)
    return np.sqrt(values, out=values)


def reduced(image: np.ndarray, longest: int | None) -> np.ndarray:
    """The image, grey or in colour, with its longer side reduced to `longest` pixels by area averaging, if larger."""
    import cv2

    height, width = image.shape[:2]
    if longest is None or max(height, width) <= longest:
        return np.ascontiguousarray(image)
    factor = longest / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _none() -> LocalFeatures:
    empty = np.zeros(0, np.float32)
    return LocalFeatures(np.zeros((0, 2), np.float32), empty, empty, np.zeros((0, DIM), np.uint8))
