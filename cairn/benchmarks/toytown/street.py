"""Everything around a building: sky, far houses, ground, neighbours."""

from functools import cache

import cv2
import numpy as np

from cairn.benchmarks.toytown.camera import IMAGE_SIZE, Camera, paste_layer
from cairn.benchmarks.toytown.facade import Layer, build, flat
from cairn.benchmarks.toytown.parts import colour, smooth_noise
from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.specification import WIDTH, specify

NEIGHBOURS = 24  # houses that may stand beside any building
PAVEMENTS = 6


@cache
def neighbour(number: int) -> Layer:
    """A house of the pool from which neighbours are taken."""
    return flat(build(specify("neighbour", number)))


@cache
def pavement(number: int) -> np.ndarray:
    """Ground seen from above, uint8 (512, 512, 3), tiling: cobbles, slabs or asphalt."""
    random = generator_for("pavement", number)
    size, stone = 512, int(random.choice([32, 64, 128]))
    tone = random.normal(0, 0.06, (size // stone, size // stone)).astype(np.float32)
    tone = np.kron(tone, np.ones((stone, stone), np.float32))
    line = np.arange(size) % stone < 3
    tone[line[:, None] | line[None, :]] = -0.16
    tone += random.normal(0, 0.04, (size, size)).astype(np.float32)
    base = colour(random.uniform(0.05, 0.15), random.uniform(0.02, 0.15), random.uniform(0.35, 0.6))
    return np.clip(np.array(base, np.float32) * (1 + tone)[..., None], 0, 255).astype(np.uint8)


def paint_background(
    camera: Camera, height: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sky, a line of far roofs and the ground, uint8 BGR of IMAGE_SIZE, and where it is ground (bool)."""
    wide, tall = IMAGE_SIZE
    image = _sky(random)
    far = 6000.0
    horizon = camera.project(
        np.array(
            [[camera.centre[0] - far, camera.centre[1], far], [camera.centre[0] + far, camera.centre[1], far]]
        )
    )[0]
    (x0, y0), (x1, y1) = horizon
    slope = (y1 - y0) / (x1 - x0) if abs(x1 - x0) > 1e-6 else 0.0
    edge = y0 + slope * (np.array([0, wide]) - x0)
    _far_roofs(image, edge, random)
    ground = _ground(camera, height, random)
    rows = np.arange(tall, dtype=np.float32)[:, None]
    distance = rows - (edge[0] + slope * np.arange(wide)[None, :]).astype(np.float32)
    below = distance > 0
    # Towards the horizon the ground fades into the haze: there it would alias.
    haze = np.empty_like(ground)
    haze[:] = (image[0, 0] * 0.35 + ground[-1].mean(0) * 0.65).astype(np.uint8)
    clear = np.clip(distance / 40, 0, 1)
    blended = cv2.blendLinear(ground, haze, clear, 1 - clear)
    image[below] = blended[below]
    return image, below


def _sky(random: np.random.Generator) -> np.ndarray:
    wide, tall = IMAGE_SIZE
    top = colour(0.58, random.uniform(0.05, 0.5), random.uniform(0.7, 0.98))
    half = (tall // 2, wide // 2)
    clouds = smooth_noise(half, 30, random) * 20 + smooth_noise(half, 10, random) * 9
    clouds = cv2.resize(clouds, IMAGE_SIZE, interpolation=cv2.INTER_LINEAR) * np.float32(
        random.uniform(0.3, 1.2)
    )
    fade = np.linspace(0, 1, tall, dtype=np.float32)[:, None]  # paler towards the horizon
    brighter = zip(top, (20, 30, 45), strict=True)
    return cv2.merge(
        [np.clip(base + clouds + fade * more, 0, 255).astype(np.uint8) for base, more in brighter]
    )


def _far_roofs(image: np.ndarray, edge: np.ndarray, random: np.random.Generator) -> None:
    """Hazy houses that stand on the horizon."""
    wide, tall = IMAGE_SIZE
    haze = image[0, 0].astype(float)
    x = -20
    while x < wide:
        broad, high = int(random.integers(18, 60)), int(random.integers(12, 60))
        base = edge[0] + (edge[1] - edge[0]) * (x + broad / 2) / wide
        dark = haze * random.uniform(0.55, 0.85)
        roof = [
            (x, base - high),
            (x + broad / 2, base - high - random.uniform(0, 18)),
            (x + broad, base - high),
        ]
        outline = np.array([(x, base + 2), *roof, (x + broad, base + 2)], np.int32)
        if base - high < tall:
            cv2.fillPoly(image, [outline], dark.tolist(), cv2.LINE_AA)
        x += broad + int(random.integers(-8, 6))


def _ground(camera: Camera, height: int, random: np.random.Generator) -> np.ndarray:
    texture = pavement(int(random.integers(PAVEMENTS)))
    corner = np.array([random.uniform(-512, 0), height, random.uniform(-512, 0)])
    matrix = camera.plane(corner, np.array([1.0, 0, 0]), np.array([0, 0, 1.0]))
    return cv2.warpPerspective(
        texture, matrix, IMAGE_SIZE, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP
    )


def paste_neighbours(image: np.ndarray, camera: Camera, height: int, random: np.random.Generator) -> None:
    """Houses to the left and right, others in each photograph: context must not give a building away."""
    for side in (-1, 1):
        present, number, gap = random.random() < 0.8, int(random.integers(NEIGHBOURS)), random.uniform(0, 60)
        if present:
            layer = neighbour(number)
            paste_layer(image, camera, layer, side * (WIDTH + gap), height - layer.texture.shape[0])
