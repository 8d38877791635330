"""One photograph of a building: JPEG bytes, and the geometry from which its labels follow."""

from dataclasses import dataclass

import cv2
import numpy as np

from cairn.benchmarks.toytown.camera import (
    DIFFICULTIES,
    IMAGE_SIZE,
    NEAR,
    Camera,
    paste_building,
    stand_in_street,
)
from cairn.benchmarks.toytown.facade import Model
from cairn.benchmarks.toytown.occluders import place_occluders
from cairn.benchmarks.toytown.parts import smooth_noise
from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.specification import WIDTH
from cairn.benchmarks.toytown.street import paint_background, paste_neighbours

GRID = 20  # a facade is sampled at GRID × GRID points


@dataclass(frozen=True)
class Geometry:
    """How a photograph shows the front of its building.

    `visible`: GRID² booleans, the points of the front that are inside the image and not hidden by an occluder
    (what a bay or a balcony hides of its own facade counts as visible). `obliquity`: degrees. `scale`: square
    root of the front's area in the image, 1 where it would be seen frontally across the whole width.
    `box`: x1, y1, x2, y2 of the front inside the image, in pixels.
    """

    visible: np.ndarray
    obliquity: float
    scale: float
    box: tuple[float, float, float, float]


def take_photograph(model: Model, difficulty: str, *key: object) -> tuple[bytes, Geometry]:
    """A JPEG of the building as `difficulty` has it, and its geometry; both follow from `key`."""
    random, ranges = generator_for("photograph", *key), DIFFICULTIES[difficulty]
    camera = stand_in_street(model.height, ranges, random)
    image, ground = paint_background(camera, model.height, random)
    empty = image.copy()
    paste_neighbours(image, camera, model.height, random)
    paste_building(image, camera, model)
    unhidden = np.full(image.shape[:2], 255, np.uint8)
    low, high = ranges.occluders
    place_occluders(image, unhidden, camera, model.height, int(random.integers(low, high + 1)), random)
    sky = (image == empty).all(2) & ~ground
    if random.random() < 0.5 * ranges.severity:
        image = _cast_shadow(image, sky, random)
    image = _expose(image, ranges.severity, random)
    _stamp_date(image, random)
    quality = int(np.clip(random.normal(78 - 22 * ranges.severity, 14), 18, 95))
    encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
    return encoded, _measure(camera, model.height, unhidden)


def _measure(camera: Camera, height: int, unhidden: np.ndarray) -> Geometry:
    wide, tall = IMAGE_SIZE
    steps = (np.arange(GRID) + 0.5) / GRID
    x, y = np.meshgrid(steps * WIDTH, steps * height)
    points = np.stack([x.ravel(), y.ravel(), np.zeros(GRID * GRID)], 1)
    pixels, depths = camera.project(points)
    inside = (depths > NEAR) & (pixels >= 0).all(1) & (pixels < IMAGE_SIZE).all(1)
    visible = inside.copy()
    column, row = pixels[inside].astype(int).T
    visible[inside] = unhidden[row, column] > 0
    corners = np.array([[0, 0, 0], [WIDTH, 0, 0], [WIDTH, height, 0], [0, height, 0]], float)
    outline, depths = camera.project(corners)
    if depths.min() <= NEAR:  # the front reaches behind the camera: nothing but a wall before one's nose
        return Geometry(visible, camera.obliquity, 9.0, (0.0, 0.0, float(wide), float(tall)))
    area = cv2.contourArea(outline.astype(np.float32))
    scale = float(np.sqrt(area / (WIDTH * height)) * WIDTH / wide)
    x1, y1 = np.clip(np.floor(outline.min(0)), 0, [wide - 1, tall - 1])
    x2, y2 = np.clip(np.ceil(outline.max(0)), [x1 + 1, y1 + 1], [wide, tall])
    return Geometry(visible, camera.obliquity, scale, (float(x1), float(y1), float(x2), float(y2)))


def _expose(image: np.ndarray, severity: float, random: np.random.Generator) -> np.ndarray:
    """Night or haze, gain, gamma, tint, blur, noise: uint8 in, uint8 out."""
    tall, wide = image.shape[:2]
    weather = random.random()
    night, haze = weather < 0.07 * severity, 0.07 * severity <= weather < 0.2 * severity
    tone = np.linspace(0, 1, 256)[:, None] * np.ones(3)
    if night:
        tone = tone * np.array([0.62, 0.45, 0.38]) * random.uniform(0.9, 1.2)
    elif haze:
        tone = tone * 0.55 + random.uniform(0.25, 0.4)
    # Within limits: a wholly white or black picture would be a positive that shows nothing.
    gamma = np.clip(random.normal(0, 0.24 * severity), -0.4, 0.0 if night else 0.4)
    gain = np.clip(random.normal(0.1, 0.16 * severity), -0.3, 0.0 if haze else 0.35)
    tone = np.clip(tone, 0, 1) ** np.exp(gamma) * np.exp(gain)
    tone = tone * np.exp(random.normal(0, 0.045 * severity, 3))
    table = np.clip(tone * 255, 0, 255).astype(np.uint8)
    image = cv2.LUT(image, table[:, None, :])
    if night:
        lights = np.clip(smooth_noise((tall, wide), 120, random), 0, None) * random.uniform(0, 0.3)
        glow = (lights[..., None] * np.array([75, 180, 255], np.float32)).astype(np.uint8)
        image = cv2.add(image, glow)
    blur = abs(random.normal(0, 0.75 * severity))
    if blur > 0.35:
        image = cv2.GaussianBlur(image, (0, 0), blur)
    grain = abs(random.normal(0, 5 * severity))
    noise = random.standard_normal((tall, wide), np.float32) * np.float32(grain)
    return cv2.add(image, cv2.merge([noise, noise, noise]), dtype=cv2.CV_8U)


def _cast_shadow(image: np.ndarray, sky: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A shadow with a hard edge across the picture, as a house opposite throws it; none falls on the sky."""
    tall, wide = image.shape[:2]
    down, across = random.normal(size=2)
    y, x = tall * random.uniform(0.2, 0.8), wide * random.uniform(0.2, 0.8)
    rows, columns = np.arange(tall)[:, None], np.arange(wide)[None, :]
    lit = sky | (down * (rows - y) + across * (columns - x) > 0)
    gain = np.where(lit, np.float32(1), np.float32(random.uniform(0.4, 0.75)))
    return cv2.multiply(image, cv2.merge([gain, gain, gain]), dtype=cv2.CV_8U)


def _stamp_date(image: np.ndarray, random: np.random.Generator) -> None:
    """Now and then a camera prints the date in the corner: detail that says nothing about the building."""
    day, month, year = (int(random.integers(1, top)) for top in (28, 12, 30))
    if random.random() < 0.05:
        text = f"{day:2d} {month:2d} '{year:02d}"
        cv2.putText(image, text, (222, 230), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (40, 140, 250), 1, cv2.LINE_AA)
