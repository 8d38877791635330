"""What stands between the photographer and the building: trees, cars, people, lamps, scaffolding, posters."""

from dataclasses import dataclass

import cv2
import numpy as np

from cairn.benchmarks.toytown import parts
from cairn.benchmarks.toytown.camera import NEAR, Camera
from cairn.benchmarks.toytown.parts import Colour, colour, shaded
from cairn.benchmarks.toytown.specification import POSTERS, WIDTH

Point = tuple[float, float]


def place_occluders(
    image: np.ndarray, mask: np.ndarray, camera: Camera, height: int, count: int, random: np.random.Generator
) -> None:
    """Put `count` things between camera and facade, the far ones first.

    `mask` (uint8, size of `image`) becomes 0 where they hide what is behind.
    """
    painters = (_tree, _tree, _car, _people, _people, _lamp, _scaffold, _poster_board)
    places = [(random.uniform(0.42, 0.9), random.uniform(-0.1, 1.1)) for _ in range(count)]
    below_camera = np.array([camera.centre[0], height, camera.centre[2]])
    for share_of_way, along in sorted(places, reverse=True):
        painter = painters[random.integers(len(painters))]
        target = np.array([along * WIDTH, height, 0.0])
        foot = below_camera + share_of_way * (target - below_camera)
        pixels, depths = camera.project(foot[None])
        if depths[0] > NEAR:
            unit = float(camera.intrinsics[0, 0] / depths[0])
            painter(_Spot(image, mask, pixels[0], unit), random)


@dataclass(frozen=True)
class _Spot:
    """A place on the ground to paint at: points are (right, up) of it, lengths in texture pixels."""

    image: np.ndarray
    mask: np.ndarray
    foot: np.ndarray  # pixels
    unit: float  # pixels of the image to one texture pixel

    def pixel(self, point: Point) -> tuple[int, int]:
        x, y = self.foot + np.array([point[0], -point[1]]) * self.unit
        return round(float(x)), round(float(y))

    def polygon(self, points: list[Point], paint: Colour) -> None:
        outline = np.array([self.pixel(point) for point in points], np.int32)
        cv2.fillPoly(self.image, [outline], paint, cv2.LINE_AA)
        cv2.fillPoly(self.mask, [outline], 0)

    def disc(self, centre: Point, radius: float, paint: Colour) -> None:
        reach = max(1, round(radius * self.unit))
        cv2.circle(self.image, self.pixel(centre), reach, paint, -1, cv2.LINE_AA)
        cv2.circle(self.mask, self.pixel(centre), reach, 0, -1)

    def line(self, start: Point, end: Point, width: float, paint: Colour) -> None:
        thick = max(1, round(width * self.unit))
        cv2.line(self.image, self.pixel(start), self.pixel(end), paint, thick, cv2.LINE_AA)
        cv2.line(self.mask, self.pixel(start), self.pixel(end), 0, thick)


def _tree(spot: _Spot, random: np.random.Generator) -> None:
    tall, broad = random.uniform(130, 260), random.uniform(55, 105)
    hue, value = random.uniform(0.2, 0.34), random.uniform(0.35, 0.55)
    spot.line((0, 0), (0, tall), 14, colour(0.07, 0.4, 0.25))
    # Dark leaves first, then brighter ones towards the light: a crown with volume.
    for layer, brightness in enumerate((0.7, 1.0, 1.35)):
        lit = np.array([-0.12, 0.15]) * layer
        for x, y in (random.normal(0, 0.42 - 0.06 * layer, (34, 2)) + lit) * broad:
            radius = broad * random.uniform(0.07, 0.24 - 0.06 * layer)
            leaf = value * brightness * random.uniform(0.85, 1.15)
            spot.disc((x, tall + y), radius, colour(hue + random.normal(0, 0.015), 0.55, leaf))


def _car(spot: _Spot, random: np.random.Generator) -> None:
    half = random.uniform(125, 165) / 2
    paint = colour(random.random(), random.uniform(0.0, 0.75), random.uniform(0.2, 0.9))
    forward = half * random.choice([-1, 1])
    body = [(-1, 12), (1, 12), (1, 30), (0.6, 33), (0.35, 50), (-0.55, 50), (-0.8, 33), (-1, 31)]
    glass = [(0.5, 33), (0.3, 46), (-0.5, 46), (-0.68, 33)]
    spot.polygon([(x * forward, y) for x, y in body], paint)
    spot.polygon([(x * forward, y) for x, y in glass], (95, 80, 70))
    spot.line((0, 33), (0, 48), 3, paint)
    for wheel in (-0.62, 0.6):
        spot.disc((wheel * forward, 11), 11, (28, 26, 26))
        spot.disc((wheel * forward, 11), 5, (150, 150, 150))


def _people(spot: _Spot, random: np.random.Generator) -> None:
    for _ in range(random.integers(1, 6)):
        tall, x = random.uniform(46, 60), random.normal(0, 38)
        coat = colour(random.random(), random.uniform(0.1, 0.6), random.uniform(0.12, 0.8))
        trousers = colour(random.random(), 0.25, random.uniform(0.1, 0.45))
        skin = colour(0.06, random.uniform(0.25, 0.5), random.uniform(0.4, 0.9))
        stride = random.uniform(2, 6)
        for leg in (-1, 1):
            spot.line((x + leg * stride, 0), (x + leg * 2, tall * 0.5), 5, trousers)
        torso = [(-7, 0.45), (7, 0.45), (8, 0.78), (4, 0.86), (-4, 0.86), (-8, 0.78)]
        spot.polygon([(x + across, up * tall) for across, up in torso], coat)
        spot.disc((x, tall * 0.93), 4.6, skin)


def _lamp(spot: _Spot, random: np.random.Generator) -> None:
    tall, iron = random.uniform(120, 190), colour(0.4, 0.2, random.uniform(0.08, 0.3))
    spot.line((0, 0), (0, tall), 5, iron)
    spot.line((0, 0), (0, 22), 10, iron)
    for side in (-20, 20):
        spot.line((0, tall), (side, tall - 4), 3, iron)
        spot.disc((side, tall - 12), 7, (205, 235, 240))


def _scaffold(spot: _Spot, random: np.random.Generator) -> None:
    bays, storeys = int(random.integers(2, 5)), int(random.integers(2, 5))
    pipe = shaded((160, 165, 170), random.uniform(0.6, 1.1))
    broad, rise = 62 * bays, 72
    for pole in range(bays + 1):
        spot.line((62 * pole, 0), (62 * pole, storeys * rise), 3.5, pipe)
    for level in range(rise, storeys * rise + 1, rise):
        spot.line((0, level), (broad, level), 6, (90, 125, 150))
        spot.line((0, level + 18), (broad, level + 18), 2, pipe)


def _poster_board(spot: _Spot, random: np.random.Generator) -> None:
    """A board with a poster: the same prints hang all over town, and match wherever they are."""
    print_ = parts.poster(int(random.integers(POSTERS)))
    iron = colour(0.4, 0.3, 0.2)
    for left in (-42, 36):
        spot.polygon([(left, 0), (left + 6, 0), (left + 6, 126), (left, 126)], iron)
    spot.polygon([(-42, 18), (42, 18), (42, 130), (-42, 130)], iron)
    (x0, y0), (x1, y1) = spot.pixel((-36, 126)), spot.pixel((36, 24))
    tall, wide = spot.image.shape[:2]
    left, top, right, bottom = max(x0, 0), max(y0, 0), min(x1, wide), min(y1, tall)
    if right - left < 2 or bottom - top < 2:
        return
    # Shrunk first where it is far away, so that it does not alias; only the part in the picture is painted.
    small = min(1.0, (x1 - x0) / print_.shape[1])
    print_ = cv2.resize(print_, None, fx=small, fy=small, interpolation=cv2.INTER_AREA)
    step_x, step_y = print_.shape[1] / (x1 - x0), print_.shape[0] / (y1 - y0)
    matrix = np.array([[step_x, 0, (left - x0) * step_x], [0, step_y, (top - y0) * step_y]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (right - left, bottom - top)
    spot.image[top:bottom, left:right] = cv2.warpAffine(
        print_, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE
    )
