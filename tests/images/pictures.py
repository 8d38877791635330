"""Small images, drawn from a seed, in the formats that are read."""

import cv2
import numpy as np


def draw(seed: int, width: int = 48, height: int = 32) -> np.ndarray:
    """A smooth random picture, uint8 [height, width, 3]."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (6, 8, 3), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def encode(pixels: np.ndarray, suffix: str = ".jpg", *parameters: int) -> bytes:
    """The picture as a file's bytes."""
    return cv2.imencode(suffix, pixels, parameters)[1].tobytes()


def files(count: int = 10) -> dict[str, bytes]:
    """Image files of all formats by relative name, in two folders."""
    suffixes = [".jpg", ".png", ".webp", ".tif", ".bmp"]
    return {f"{'ab'[n % 2]}/{n:03d}{suffixes[n % 5]}": encode(draw(n), suffixes[n % 5]) for n in range(count)}
