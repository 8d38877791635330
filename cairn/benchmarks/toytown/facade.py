"""Buildings, painted: a specification becomes a few textured layers that lie at different depths."""

from dataclasses import dataclass, field
from itertools import pairwise

import cv2
import numpy as np

from cairn.benchmarks.toytown import parts
from cairn.benchmarks.toytown.parts import Opening, colour, shaded
from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.specification import WIDTH, Floor, Specification

# Depths in texture pixels; negative is towards the street. A facade of 640 pixels stands for some 20 metres.
RECESS_DEPTH = 11.0
RELIEF_DEPTH = -22.0
BODY_DEPTH = 420  # how far a building reaches back from the street


@dataclass
class Layer:
    """A flat piece of a building: premultiplied uint8 BGRA texture, its left edge and its depth."""

    texture: np.ndarray
    left: int
    depth: float
    _smaller: list[np.ndarray] = field(default_factory=list)

    def level(self, number: int) -> np.ndarray:
        """The texture halved `number` times; kept, since every photograph of a building needs it."""
        while len(self._smaller) < number:
            finer = self._smaller[-1] if self._smaller else self.texture
            size = (max(1, finer.shape[1] // 2), max(1, finer.shape[0] // 2))
            self._smaller.append(cv2.resize(finer, size, interpolation=cv2.INTER_AREA))
        return self._smaller[number - 1] if number else self.texture


@dataclass(frozen=True)
class Block:
    """The side walls between a front and what stands behind it: at `left` and at `right`, from `top` down.

    `wall` is their texture: its columns go from the front backwards, its rows from `top` to the ground.
    """

    left: int
    right: int
    top: int
    front: float
    wall: Layer


@dataclass(frozen=True)
class Model:
    """A building ready to be photographed: its layers from back to front, and the walls at their sides."""

    height: int
    layers: tuple[Layer, ...]
    body: Block
    bay: Block | None


@dataclass
class _Canvas:
    """What is painted on: wall, openings in it, what lies behind them, and relief in front with its mask."""

    wall: np.ndarray
    holes: np.ndarray
    recess: np.ndarray
    relief: np.ndarray
    raised: np.ndarray


def build(spec: Specification) -> Model:
    """Paint the building: recessed windows, wall, projecting bay and relief, each at its depth."""
    random = generator_for("paint", spec.key)
    height, top = _height(spec), _top(spec)
    canvas = _Canvas(
        wall=np.empty((height, WIDTH, 3), np.uint8),
        holes=np.full((height, WIDTH), 255, np.uint8),
        recess=np.empty((height, WIDTH, 3), np.uint8),
        relief=np.zeros((height, WIDTH, 3), np.uint8),
        raised=np.zeros((height, WIDTH), np.uint8),
    )
    canvas.recess[:] = shaded(parts.wall_colour(spec.palette), 0.45)
    parts.paint_material(canvas.wall, spec, random)
    # Side walls are of the same stone, in the shade; they are taken before anything is painted on it.
    side = canvas.wall[top:, :BODY_DEPTH]
    side = _scaled(side, 0.68 + np.float32(0.1) * parts.smooth_noise(side.shape[:2], 30, random))
    _paint_floors(canvas, spec, height, top, random)
    silhouette = _paint_top(canvas, spec, top)
    _paint_fittings(canvas, spec, height, random)
    _weather(canvas, random)
    return _assemble(canvas, silhouette, side, spec)


def flat(model: Model) -> Layer:
    """All layers of a building pressed into one, for houses that only stand in the background."""
    canvas = np.zeros((model.height, WIDTH, 4), np.uint8)
    for layer in model.layers:
        part = canvas[:, layer.left : layer.left + layer.texture.shape[1]]
        rest = cv2.cvtColor(255 - layer.texture[..., 3], cv2.COLOR_GRAY2BGRA)
        rest[..., 3] = 255 - layer.texture[..., 3]
        part[:] = cv2.add(layer.texture, cv2.multiply(part, rest, scale=1 / 255))
    return Layer(canvas, 0, 0.0)


def clear_of_edges(spec: Specification, left: float, width: float, margin: float) -> float:
    """`left`, moved so that what is `width` wide does not lie across an edge of the bay."""
    if spec.bay is None:
        return left
    for edge in (spec.bay.left * WIDTH, spec.bay.right * WIDTH):
        if not left - margin < edge < left + width + margin:
            continue
        before, after = edge - width - margin, edge + margin
        fits_before, fits_after = before >= margin, after + width + margin <= WIDTH
        nearer_before = left + width / 2 < edge
        left = before if fits_before and (nearer_before or not fits_after) else after
    return left


def _height(spec: Specification) -> int:
    return int(WIDTH * spec.aspect)


def _top(spec: Specification) -> int:
    """Row where the storeys begin, below the gable or parapet."""
    return int(_height(spec) * 0.13)


def _paint_floors(
    canvas: _Canvas, spec: Specification, height: int, top: int, random: np.random.Generator
) -> None:
    trim, dark = parts.trim_colour(spec.palette), colour(spec.palette.hue, 0.3, 0.2)
    total = sum(floor.height for floor in spec.floors)
    y = float(top)
    for floor in spec.floors:
        tall = (height - top - 8) * floor.height / total
        ground = floor is spec.floors[-1]
        _paint_floor(canvas, spec, floor, y, tall, ground, random)
        base = int(y + tall)
        if not ground:
            cv2.rectangle(canvas.wall, (0, base - 5), (WIDTH, base), trim, -1)
            cv2.line(canvas.wall, (0, base), (WIDTH, base), dark, 2)
        y += tall
    plinth = colour(spec.palette.hue, spec.palette.saturation * 0.3, spec.palette.value * 0.55)
    cv2.rectangle(canvas.wall, (0, height - 12), (WIDTH, height), plinth, -1)


def _paint_floor(
    canvas: _Canvas,
    spec: Specification,
    floor: Floor,
    y: float,
    tall: float,
    ground: bool,
    random: np.random.Generator,
) -> None:
    column = WIDTH / floor.columns
    width, height = min(column * 0.5, 78), tall * (0.6 if floor.frieze is None else 0.5)
    style, door = parts.window_style(floor.window), parts.window_style(spec.door)
    for number in range(floor.columns):
        x = clear_of_edges(spec, number * column + (column - width) / 2, width, 8)
        if ground and abs((number + 0.5) / floor.columns - spec.door_at) < 0.5 / floor.columns:
            place = Opening(
                int(x - width * 0.15), int(y + tall * 0.16), int(width * 1.3), int(tall * 0.84 - 16)
            )
            parts.paint_window(canvas.wall, canvas.holes, canvas.recess, place, door, spec.palette, random)
            continue
        place = Opening(int(x), int(y + tall * 0.24), int(width), int(height))
        parts.paint_window(canvas.wall, canvas.holes, canvas.recess, place, style, spec.palette, random)
        if floor.balcony and not ground:
            _paint_balcony(canvas, place, spec)
    if floor.frieze is not None:
        count, size = 2 * floor.columns + 1, int(min(tall * 0.07, 14))
        for number in range(count):
            centre = (int((number + 0.5) * WIDTH / count), int(y + tall * 0.09))
            parts.paint_ornament(canvas.wall, centre, size, floor.frieze, spec.palette)


def _paint_balcony(canvas: _Canvas, window: Opening, spec: Specification) -> None:
    """A railing in front of a window, on the relief."""
    iron, slab = colour(spec.palette.accent, 0.3, 0.22), parts.trim_colour(spec.palette, 0.1)
    left, right = window.x - 9, window.x + window.width + 9
    bottom = window.y + window.height + 4
    rail = bottom - int(window.height * 0.38)
    for image, iron_paint, slab_paint in ((canvas.relief, iron, slab), (canvas.raised, 255, 255)):
        for bar in range(left, right + 1, 7):
            cv2.line(image, (bar, rail), (bar, bottom), iron_paint, 2)
        cv2.line(image, (left, rail), (right, rail), iron_paint, 3)
        cv2.rectangle(image, (left - 3, bottom), (right + 3, bottom + 6), slab_paint, -1)


def _paint_top(canvas: _Canvas, spec: Specification, top: int) -> np.ndarray:
    """Cornice and what stands above it; returns the silhouette, uint8 (height, WIDTH), 0 for the sky."""
    trim, dark = parts.trim_colour(spec.palette), colour(spec.palette.hue, 0.3, 0.2)
    silhouette = np.full(canvas.holes.shape, 255, np.uint8)
    for image, paint in ((canvas.relief, trim), (canvas.raised, 255)):
        cv2.rectangle(image, (0, top - 14), (WIDTH, top - 1), paint, -1)
    cv2.line(canvas.relief, (0, top - 7), (WIDTH, top - 7), shaded(trim, 0.7), 2)
    for dentil in range(4, WIDTH, 16):
        cv2.rectangle(canvas.relief, (dentil, top - 5), (dentil + 7, top - 1), shaded(trim, 0.6), -1)
    if spec.top == "crenel":
        for left in range(0, WIDTH, 64):
            silhouette[: top - 34, left : left + 30] = 0
    elif spec.top in ("pediment", "gable"):
        peak = WIDTH // 2 if spec.top == "pediment" else int(WIDTH * spec.door_at)
        outline = np.array([[0, top - 10], [peak, 0], [WIDTH, top - 10]], np.int32)
        silhouette[: top - 10] = 0
        cv2.fillPoly(silhouette, [outline], 255)
        cv2.polylines(canvas.wall, [outline], True, trim, 5, cv2.LINE_AA)
    elif spec.top == "balustrade":
        silhouette[: top - 44] = 0
        cv2.rectangle(canvas.wall, (0, top - 44), (WIDTH, top - 38), trim, -1)
        for x in range(6, WIDTH, 22):
            cv2.ellipse(canvas.wall, (x, top - 26), (5, 12), 0, 0, 360, trim, -1, cv2.LINE_AA)
            cv2.ellipse(canvas.wall, (x, top - 26), (5, 12), 0, 0, 360, dark, 1, cv2.LINE_AA)
    elif spec.top == "mansard":
        _paint_mansard(canvas, spec, top, silhouette)
    return silhouette


def _paint_mansard(canvas: _Canvas, spec: Specification, top: int, silhouette: np.ndarray) -> None:
    """A slate roof with dormers above the cornice."""
    slate = colour(0.6 + spec.palette.accent * 0.1, 0.2, 0.38)
    cv2.rectangle(canvas.wall, (0, 0), (WIDTH, top - 14), slate, -1)
    for row, y in enumerate(range(4, top - 14, 8)):
        cv2.line(canvas.wall, (0, y), (WIDTH, y), shaded(slate, 0.7), 1)
        for x in range((row % 2) * 7, WIDTH, 14):
            cv2.line(canvas.wall, (x, y), (x, y + 8), shaded(slate, 0.75), 1)
    columns = spec.floors[0].columns
    trim = parts.trim_colour(spec.palette)
    for number in range(columns):
        middle = int((number + 0.5) * WIDTH / columns)
        cv2.rectangle(canvas.wall, (middle - 16, top - 46), (middle + 16, top - 14), trim, -1)
        cv2.rectangle(canvas.wall, (middle - 11, top - 40), (middle + 11, top - 16), (70, 55, 45), -1)
        cv2.line(canvas.wall, (middle, top - 40), (middle, top - 16), trim, 2)
    slope = np.array([[0, 0], [26, 0], [0, top - 14]], np.int32)
    cv2.fillPoly(silhouette, [slope], 0)
    cv2.fillPoly(silhouette, [slope * [-1, 1] + [WIDTH - 1, 0]], 0)


def _paint_fittings(canvas: _Canvas, spec: Specification, height: int, random: np.random.Generator) -> None:
    """Poster, ornaments and sign."""
    if spec.poster is not None:
        design, place = spec.poster
        print_, x, y = parts.poster(design), int(place * WIDTH), height - 118
        canvas.wall[y : y + print_.shape[0], x : x + print_.shape[1]] = print_
        canvas.holes[y : y + print_.shape[0], x : x + print_.shape[1]] = 255
    for ornament in spec.ornaments:
        size = int(ornament.size * WIDTH)
        x = clear_of_edges(spec, ornament.x * WIDTH - size, 2 * size, 3) + size
        centre = (int(x), int(ornament.y * height))
        parts.paint_ornament(canvas.relief, centre, size, ornament.glyph, spec.palette)
        cv2.circle(canvas.raised, centre, size, 255, -1)
    _paint_sign(canvas, spec, height, random)


def _paint_sign(canvas: _Canvas, spec: Specification, height: int, random: np.random.Generator) -> None:
    fonts = [
        cv2.FONT_HERSHEY_SIMPLEX,
        cv2.FONT_HERSHEY_DUPLEX,
        cv2.FONT_HERSHEY_COMPLEX,
        cv2.FONT_HERSHEY_TRIPLEX,
    ]
    font = fonts[random.integers(len(fonts))]
    low, high = _sign_span(spec)
    (wide, _), _ = cv2.getTextSize(spec.sign, font, 1.4, 3)
    scale = 1.4 * min(1.0, (high - low - 40) / wide)
    (wide, tall), _ = cv2.getTextSize(spec.sign, font, scale, 3)
    x = int(max(low + 14, min(spec.sign_at[0] * WIDTH, high - wide - 14)))
    y = int(spec.sign_at[1] * height)
    corners = (x - 10, y - tall - 12), (x + wide + 10, y + 12)
    board = colour(spec.palette.accent, 0.6, random.uniform(0.2, 0.8))
    ink = colour(spec.palette.accent + 0.5, 0.2, random.choice([0.1, 0.95]))
    cv2.rectangle(canvas.relief, *corners, board, -1)
    cv2.rectangle(canvas.relief, *corners, ink, 2)
    cv2.putText(canvas.relief, spec.sign, (x, y), font, scale, ink, 3, cv2.LINE_AA)
    cv2.rectangle(canvas.raised, *corners, 255, -1)


def _sign_span(spec: Specification) -> tuple[float, float]:
    """From where to where on the facade the sign may hang: beside the bay or on it, never across its edge."""
    if spec.bay is None:
        return 0.0, float(WIDTH)
    edges = [0.0, spec.bay.left * WIDTH, spec.bay.right * WIDTH, float(WIDTH)]
    spans = list(pairwise(edges))
    wanted = next(span for span in spans if spec.sign_at[0] * WIDTH < span[1])
    widest = max(spans, key=lambda span: span[1] - span[0])
    return wanted if wanted[1] - wanted[0] > 150 else widest


def _weather(canvas: _Canvas, random: np.random.Generator) -> None:
    """Stains at four scales, the building's own, and the shadow that relief throws on the wall."""
    shape = canvas.holes.shape
    # The broad stains are computed at half the size, which nobody sees and takes a quarter of the time.
    half = (shape[0] // 2 + 1, shape[1] // 2)
    broad = np.ones(half, np.float32)
    for strength, cell in ((0.16, 45), (0.12, 15), (0.10, 6)):
        broad += np.float32(strength) * parts.smooth_noise(half, cell, random)
    gain = cv2.resize(broad, shape[::-1], interpolation=cv2.INTER_LINEAR)
    gain += np.float32(0.06) * parts.smooth_noise(shape, 4, random)
    canvas.relief[:] = _scaled(canvas.relief, gain)
    shadow = cv2.GaussianBlur(canvas.raised, (9, 9), 0)
    shadow = np.roll(shadow, (9, 3), (0, 1)).astype(np.float32) * np.float32(0.4 / 255)
    canvas.wall[:] = _scaled(canvas.wall, gain * (1 - shadow))


def _scaled(image: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return cv2.multiply(np.ascontiguousarray(image), cv2.merge([gain, gain, gain]), dtype=cv2.CV_8U)


def _assemble(canvas: _Canvas, silhouette: np.ndarray, side: np.ndarray, spec: Specification) -> Model:
    top = _top(spec)
    opaque = np.full(side.shape[:2], 255, np.uint8)
    layers = [
        Layer(_premultiplied(canvas.recess, silhouette), 0, RECESS_DEPTH),
        Layer(_premultiplied(canvas.wall, cv2.min(canvas.holes, silhouette)), 0, 0.0),
    ]
    bay = None
    raised = cv2.min(canvas.raised, silhouette)
    if spec.bay is not None:
        left, right = int(spec.bay.left * WIDTH), int(spec.bay.right * WIDTH)
        columns = slice(left, right)
        front = canvas.wall[:, columns].copy()
        for picture, shows in ((canvas.recess, canvas.holes == 0), (canvas.relief, raised > 0)):
            front[shows[:, columns]] = picture[:, columns][shows[:, columns]]
        layers.append(Layer(_premultiplied(front, silhouette[:, columns]), left, -spec.bay.depth))
        depth = int(spec.bay.depth)
        cheek = Layer(_premultiplied(side[:, :depth], opaque[:, :depth]), 0, 0.0)
        bay = Block(left, right, top, -spec.bay.depth, cheek)
        raised[:, columns] = 0  # relief on the bay is part of the bay's front
    layers.append(Layer(_premultiplied(canvas.relief, raised), 0, RELIEF_DEPTH))
    if spec.bay is not None:
        layers[2], layers[3] = layers[3], layers[2]  # the bay stands out further than relief on the wall
    body = Block(0, WIDTH, top, 0.0, Layer(_premultiplied(side, opaque), 0, 0.0))
    return Model(height=_height(spec), layers=tuple(layers), body=body, bay=bay)


def _premultiplied(image: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """uint8 BGRA whose colours are scaled by alpha, so that resampling mixes no hidden colour in."""
    image, alpha = np.ascontiguousarray(image), np.ascontiguousarray(alpha)
    coloured = cv2.multiply(image, cv2.cvtColor(alpha, cv2.COLOR_GRAY2BGR), scale=1 / 255)
    return cv2.merge([*cv2.split(coloured), alpha])
