"""Everything around a building: sky, far houses, ground, neighbours, and what stands in the way."""

from functools import cache

import cv2
import numpy as np

from cairn.benchmarks.toytown import parts
from cairn.benchmarks.toytown.camera import IMAGE_SIZE, NEAR, Camera, paste_layer
from cairn.benchmarks.toytown.facade import Layer, build, flat
from cairn.benchmarks.toytown.parts import colour, shaded, smooth_noise
from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.specification import POSTERS, WIDTH, specify

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
    tone = random.normal(0, 0.12, (size // stone, size // stone)).astype(np.float32)
    tone = np.kron(tone, np.ones((stone, stone), np.float32))
    line = np.arange(size) % stone < 3
    tone[line[:, None] | line[None, :]] = -0.3
    tone += random.normal(0, 0.05, (size, size)).astype(np.float32)
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
    distance = np.arange(tall)[:, None] - (edge[0] + slope * np.arange(wide)[None, :])
    clear = np.clip(distance / 40, 0, 1).astype(np.float32)[..., None]
    haze = np.array(image[0, 0] * 0.35 + ground[-1].mean(0) * 0.65, np.float32)
    blended = haze + (ground - haze) * clear
    below = distance > 0
    image[below] = blended[below].astype(np.uint8)
    return image, below


def _sky(random: np.random.Generator) -> np.ndarray:
    wide, tall = IMAGE_SIZE
    top = np.array(colour(0.58, random.uniform(0.05, 0.5), random.uniform(0.7, 0.98)), np.float32)
    sky = top + np.linspace(0, 1, tall, dtype=np.float32)[:, None, None] * np.array([20, 30, 45], np.float32)
    clouds = smooth_noise((tall, wide), 60, random) * 20 + smooth_noise((tall, wide), 19, random) * 9
    return np.clip(sky + clouds[..., None] * random.uniform(0.3, 1.2), 0, 255).astype(np.uint8)


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
    ).astype(np.float32)


def paste_neighbours(image: np.ndarray, camera: Camera, height: int, random: np.random.Generator) -> None:
    """Houses to the left and right, different ones in each photograph: context must not give a building away."""
    for side in (-1, 1):
        present, number, gap = random.random() < 0.8, int(random.integers(NEIGHBOURS)), random.uniform(0, 60)
        if present:
            layer = neighbour(number)
            paste_layer(image, camera, layer, side * (WIDTH + gap), height - layer.texture.shape[0])


def place_occluders(
    image: np.ndarray, mask: np.ndarray, camera: Camera, height: int, count: int, random: np.random.Generator
) -> None:
    """Put trees, cars, people, lamps, scaffolding and posters between camera and facade.

    `mask` (uint8, size of `image`) becomes 0 where they hide what is behind.
    """
    painters = (_tree, _tree, _car, _people, _people, _lamp, _scaffold, _poster_column)
    spots = sorted(
        ((random.uniform(0.42, 0.9), random.uniform(-0.1, 1.1)) for _ in range(count)), reverse=True
    )
    ground_centre = np.array([camera.centre[0], height, camera.centre[2]])
    for nearness, along in spots:
        painter = painters[random.integers(len(painters))]
        target = np.array([along * WIDTH, height, 0.0])
        spot = ground_centre + nearness * (target - ground_centre)
        pixels, depths = camera.project(spot[None])
        if depths[0] > NEAR:
            base, unit = pixels[0], camera.intrinsics[0, 0] / depths[0]
            painter(image, mask, base, unit, random)


def _fill(image: np.ndarray, mask: np.ndarray, outline: np.ndarray, paint: parts.Colour) -> None:
    points = np.round(np.asarray(outline)).astype(np.int32)
    cv2.fillPoly(image, [points], paint, cv2.LINE_AA)
    cv2.fillPoly(mask, [points], 0)


def _disc(
    image: np.ndarray, mask: np.ndarray, centre: np.ndarray, radius: float, paint: parts.Colour
) -> None:
    middle, reach = (round(float(centre[0])), round(float(centre[1]))), max(1, round(radius))
    cv2.circle(image, middle, reach, paint, -1, cv2.LINE_AA)
    cv2.circle(mask, middle, reach, 0, -1)


def _stroke(image: np.ndarray, mask: np.ndarray, start, end, width: float, paint: parts.Colour) -> None:
    ends = [(round(float(x)), round(float(y))) for x, y in (start, end)]
    thick = max(1, round(width))
    cv2.line(image, ends[0], ends[1], paint, thick, cv2.LINE_AA)
    cv2.line(mask, ends[0], ends[1], 0, thick)


def _rectangle(
    image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, box: tuple, paint: parts.Colour
) -> None:
    """`box` is left, bottom, right, top around the spot, in texture pixels, up is positive."""
    left, bottom, right, top = (value * unit for value in box)
    corners = [(left, -bottom), (right, -bottom), (right, -top), (left, -top)]
    _fill(image, mask, base + np.array(corners), paint)


def _tree(image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, random) -> None:
    tall, broad = random.uniform(130, 260), random.uniform(55, 105)
    hue, value = random.uniform(0.2, 0.34), random.uniform(0.35, 0.55)
    trunk = colour(0.07, 0.4, 0.25)
    crown = base + np.array([0, -tall * unit])
    _stroke(image, mask, base, crown, 14 * unit, trunk)
    # Dark leaves first, then brighter ones towards the light: a crown with volume.
    for layer, brightness in enumerate((0.7, 1.0, 1.35)):
        towards_light = np.array([-0.12, -0.15]) * layer * broad * unit
        for offset in random.normal(0, 0.42 - 0.06 * layer, (34, 2)):
            radius = broad * unit * random.uniform(0.07, 0.24 - 0.06 * layer)
            spot = crown + offset * [broad * unit, broad * unit] + towards_light
            paint = colour(
                hue + random.normal(0, 0.015), 0.55, value * brightness * random.uniform(0.85, 1.15)
            )
            _disc(image, mask, spot, radius, paint)


def _car(image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, random) -> None:
    length = random.uniform(125, 165)
    paint = colour(random.random(), random.uniform(0.0, 0.75), random.uniform(0.2, 0.9))
    half, glass, tyre = length / 2, (95, 80, 70), (28, 26, 26)
    bonnet = np.array([(-half, 12), (half, 12), (half, 30), (half * 0.6, 33), (half * 0.35, 50)])
    outline = np.vstack([bonnet, [(-half * 0.55, 50), (-half * 0.8, 33), (-half, 31)]])
    flip = random.choice([-1, 1])
    _fill(image, mask, base + outline * [flip * unit, -unit], paint)
    windows = np.array([(half * 0.5, 33), (half * 0.3, 46), (-half * 0.5, 46), (-half * 0.68, 33)])
    _fill(image, mask, base + windows * [flip * unit, -unit], glass)
    _stroke(image, mask, base + [0, -33 * unit], base + [0, -48 * unit], 3 * unit, paint)
    for wheel in (-0.62, 0.6):
        hub = base + [flip * wheel * half * unit, -11 * unit]
        _disc(image, mask, hub, 11 * unit, tyre)
        _disc(image, mask, hub, 5 * unit, (150, 150, 150))


def _people(image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, random) -> None:
    for _ in range(random.integers(1, 6)):
        tall = random.uniform(46, 60)
        foot = base + [random.normal(0, 38) * unit, random.normal(0, 2) * unit]
        coat = colour(random.random(), random.uniform(0.1, 0.6), random.uniform(0.12, 0.8))
        trousers = colour(random.random(), 0.25, random.uniform(0.1, 0.45))
        skin = colour(0.06, random.uniform(0.25, 0.5), random.uniform(0.4, 0.9))
        stride = random.uniform(2, 6)
        for leg in (-1, 1):
            hip = foot + [leg * 2 * unit, -tall * 0.5 * unit]
            _stroke(image, mask, foot + [leg * stride * unit, 0], hip, 5 * unit, trousers)
        torso = np.array([(-7, 0.45), (7, 0.45), (8, 0.78), (4, 0.86), (-4, 0.86), (-8, 0.78)])
        _fill(image, mask, foot + torso * [unit, -tall * unit], coat)
        _disc(image, mask, foot + [0, -tall * 0.93 * unit], 4.6 * unit, skin)


def _lamp(image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, random) -> None:
    tall, iron = random.uniform(120, 190), colour(0.4, 0.2, random.uniform(0.08, 0.3))
    top = base + [0, -tall * unit]
    _stroke(image, mask, base, top, 5 * unit, iron)
    _stroke(image, mask, base, base + [0, -22 * unit], 10 * unit, iron)
    for side in (-1, 1):
        arm = top + [side * 20 * unit, 4 * unit]
        _stroke(image, mask, top, arm, 3 * unit, iron)
        _disc(image, mask, arm + [0, 8 * unit], 7 * unit, (205, 235, 240))


def _scaffold(image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, random) -> None:
    bays, storeys = int(random.integers(2, 5)), int(random.integers(2, 5))
    step, rise, pipe = 62 * unit, 72 * unit, shaded((160, 165, 170), random.uniform(0.6, 1.1))
    for pole in range(bays + 1):
        foot = base + [pole * step, 0]
        _stroke(image, mask, foot, foot + [0, -storeys * rise], 3.5 * unit, pipe)
    for storey in range(1, storeys + 1):
        left = base + [0, -storey * rise]
        _stroke(image, mask, left, left + [bays * step, 0], 6 * unit, (90, 125, 150))
        _stroke(image, mask, left + [0, -18 * unit], left + [bays * step, -18 * unit], 2 * unit, pipe)


def _poster_column(image: np.ndarray, mask: np.ndarray, base: np.ndarray, unit: float, random) -> None:
    """A board with a poster: the same prints hang all over town, and match wherever they are."""
    print_ = parts.poster(int(random.integers(POSTERS)))
    iron = colour(0.4, 0.3, 0.2)
    _rectangle(image, mask, base, unit, (-42, 0, -36, 126), iron)
    _rectangle(image, mask, base, unit, (36, 0, 42, 126), iron)
    _rectangle(image, mask, base, unit, (-42, 18, 42, 130), iron)
    x0, y0 = np.round(base + np.array([-36, -126]) * unit).astype(int)
    x1, y1 = np.round(base + np.array([36, -24]) * unit).astype(int)
    left, top, right, bottom = max(x0, 0), max(y0, 0), min(x1, IMAGE_SIZE[0]), min(y1, IMAGE_SIZE[1])
    if right - left < 2 or bottom - top < 2:
        return
    # Only the part inside the picture is resampled: close to the camera the whole poster would be huge.
    scale_x, scale_y = print_.shape[1] / (x1 - x0), print_.shape[0] / (y1 - y0)
    matrix = np.array([[scale_x, 0, (left - x0) * scale_x], [0, scale_y, (top - y0) * scale_y]])
    flags = cv2.INTER_AREA if scale_x > 1 else cv2.INTER_LINEAR
    if left == x0 and top == y0 and right == x1 and bottom == y1:
        part = cv2.resize(print_, (int(x1 - x0), int(y1 - y0)), interpolation=flags)
    else:
        size = (int(right - left), int(bottom - top))
        part = cv2.warpAffine(
            print_,
            matrix,
            size,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
    image[top:bottom, left:right] = part
