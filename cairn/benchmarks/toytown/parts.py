"""Shared parts of buildings, painted: materials, windows, ornaments, posters.

Images are uint8 BGR arrays that the functions paint on in place; lengths are texture pixels. A part's form
belongs to its style (drawn from the style's number, the same on every building), its colours to the building.
"""

import colorsys
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.specification import Palette, Specification

Colour = tuple[int, int, int]
MORTAR = -0.28  # tone of the joints between stones, against 0 of the average stone
RECESS_MARGIN = 16  # the picture behind a window opening reaches this far beyond it: parallax uncovers it


def colour(hue: float, saturation: float, value: float) -> Colour:
    """Blue, green, red in 0-255 from hue (cyclic), saturation and value in 0-1 (clipped)."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, min(1, max(0, saturation)), min(1, max(0, value)))
    return (int(blue * 255), int(green * 255), int(red * 255))


def shaded(paint: Colour, factor: float) -> Colour:
    """`paint` made darker or lighter by `factor`."""
    blue, green, red = (int(min(255, channel * factor)) for channel in paint)
    return (blue, green, red)


def wall_colour(palette: Palette) -> Colour:
    return colour(palette.hue, palette.saturation, palette.value)


def trim_colour(palette: Palette, lighter: float = 0.2) -> Colour:
    """Colour of cornices and surrounds: the wall's, paler."""
    return colour(palette.hue + 0.02, palette.saturation * 0.4, min(0.97, max(0.15, palette.value + lighter)))


def smooth_noise(shape: tuple[int, int], cell: int, random: np.random.Generator) -> np.ndarray:
    """Noise in about [-1, 1], float32 of `shape`, whose features are `cell` pixels large."""
    height, width = shape
    small = random.uniform(-1, 1, (height // cell + 2, width // cell + 2)).astype(np.float32)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


def paint_material(image: np.ndarray, spec: Specification, random: np.random.Generator) -> None:
    """Cover the wall with brick, ashlar, tile, timber or stucco; each stone has a tone of its own."""
    height, width = image.shape[:2]
    columns = np.arange(width)
    if spec.material in ("brick", "ashlar", "tile"):
        course, length = {"brick": (9, 24), "ashlar": (30, 62), "tile": (16, 16)}[spec.material]
        course, length = max(5, int(course * spec.grain)), max(8, int(length * spec.grain))
        courses = np.arange(height // course + 1)
        shift = 0 * courses if spec.material == "tile" else (courses % 2) * (length // 2)
        along = columns[None, :] + shift[:, None]
        stones = random.normal(0, 0.22, (len(courses), width // length + 2)).astype(np.float32)
        lines = np.take_along_axis(stones, along // length, axis=1)
        lines[along % length >= length - 2] = MORTAR
        tone = np.repeat(lines, course, axis=0)[:height]
        tone[np.arange(height) % course >= course - 2] = MORTAR
    elif spec.material == "timber":
        plank = int(26 * spec.grain)
        tones = random.normal(0, 0.16, width // plank + 1).astype(np.float32)
        profile = np.where(columns % plank >= plank - 2, np.float32(-0.3), tones[columns // plank])
        tone = np.repeat(profile[None, :], height, axis=0)
    else:
        tone = np.zeros((height, width), np.float32)
    image[:] = tinted(wall_colour(spec.palette), 1 + np.float32(0.8) * tone)


def tinted(paint: Colour, gain: np.ndarray) -> np.ndarray:
    """uint8 (height, width, 3): `paint` made darker or lighter by `gain` (height, width)."""
    return cv2.merge([cv2.convertScaleAbs(np.maximum(gain, 0), alpha=channel) for channel in paint])


@dataclass(frozen=True)
class WindowStyle:
    shape: str
    panes_across: int
    panes_down: int
    border: int
    surround: str
    trim_lighter: float
    frame_value: float


@cache
def window_style(number: int) -> WindowStyle:
    random = generator_for("window", number)
    return WindowStyle(
        shape=str(random.choice(["rectangle", "arch", "pointed", "round", "twin"])),
        panes_across=int(random.integers(1, 4)),
        panes_down=int(random.integers(1, 5)),
        border=int(random.integers(3, 8)),
        surround=str(random.choice(["none", "lintel", "pediment", "shutters", "quoins"])),
        trim_lighter=float(random.choice([-0.25, 0.25])),
        frame_value=float(random.uniform(0.15, 0.95)),
    )


@dataclass(frozen=True)
class Opening:
    """A window's place in the wall: left, top, width, height."""

    x: int
    y: int
    width: int
    height: int

    def outline(self, shape: str, grow: int) -> np.ndarray:
        """Polygon (n, 2) int32 of the opening, grown by `grow` pixels on each side."""
        left, top = self.x - grow, self.y - grow
        right, bottom = self.x + self.width + grow, self.y + self.height + grow
        middle = (left + right) / 2
        if shape in ("arch", "twin"):
            radius, angle = (right - left) / 2, np.linspace(np.pi, 2 * np.pi, 13)
            arc = np.stack([middle + radius * np.cos(angle), top + radius + radius * np.sin(angle)], 1)
            return np.vstack([arc, [[right, bottom], [left, bottom]]]).astype(np.int32)
        if shape == "pointed":
            shoulder = top + (bottom - top) // 3
            points = [(left, bottom), (left, shoulder), (middle, top), (right, shoulder), (right, bottom)]
            return np.array(points).astype(np.int32)
        if shape == "round":
            angle = np.linspace(0, 2 * np.pi, 24)
            x = middle + (right - left) / 2 * np.cos(angle)
            y = (top + bottom) / 2 + (bottom - top) / 2 * np.sin(angle)
            return np.stack([x, y], 1).astype(np.int32)
        return np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.int32)


def paint_window(
    wall: np.ndarray,
    holes: np.ndarray,
    recess: np.ndarray,
    opening: Opening,
    style: WindowStyle,
    palette: Palette,
    random: np.random.Generator,
) -> None:
    """Paint one window: surround on `wall`, opening as 0 in `holes` (uint8), glass and frame on `recess`."""
    trim = trim_colour(palette, style.trim_lighter)
    frame = colour(palette.accent, 0.35, style.frame_value)
    _paint_surround(wall, opening, style, trim, frame)
    cv2.fillPoly(holes, [opening.outline(style.shape, 0)], 0)
    _paint_glass(recess, opening, style, frame, random)
    if style.shape == "twin":
        middle = opening.x + opening.width // 2
        cv2.rectangle(
            recess, (middle - 3, opening.y), (middle + 3, opening.y + opening.height), shaded(trim, 0.8), -1
        )


def _paint_surround(
    wall: np.ndarray, opening: Opening, style: WindowStyle, trim: Colour, frame: Colour
) -> None:
    x, y, width, height = opening.x, opening.y, opening.width, opening.height
    border = style.border
    if style.surround == "shutters":
        for left in (x - width // 2 - 2, x + width + 2):
            cv2.rectangle(wall, (left, y), (left + width // 2, y + height), frame, -1)
            for slat in range(y + 3, y + height, 6):
                cv2.line(wall, (left + 2, slat), (left + width // 2 - 2, slat), shaded(frame, 0.7), 1)
    if style.surround == "quoins":
        for number, stone in enumerate(range(y, y + height, 12)):
            reach = 6 if number % 2 == 0 else 12
            cv2.rectangle(wall, (x - reach, stone), (x + width + reach, stone + 10), trim, -1)
    outer = opening.outline(style.shape, border)
    cv2.fillPoly(wall, [outer], trim, cv2.LINE_AA)
    cv2.polylines(wall, [outer], True, shaded(trim, 0.5), 1, cv2.LINE_AA)
    middle = x + width // 2
    if style.surround == "lintel":
        cv2.rectangle(wall, (x - 8, y - border - 8), (x + width + 8, y - border), trim, -1)
        cv2.rectangle(wall, (middle - 5, y - border - 12), (middle + 5, y - border + 2), frame, -1)
    if style.surround == "pediment":
        peak = [(x - 8, y - border), (x + width + 8, y - border), (middle, y - border - 18)]
        cv2.fillPoly(wall, [np.array(peak, np.int32)], trim, cv2.LINE_AA)
        cv2.polylines(wall, [np.array(peak, np.int32)], True, frame, 2, cv2.LINE_AA)
    sill = y + height + border
    cv2.rectangle(wall, (x - border - 2, sill - 1), (x + width + border + 2, sill + 4), shaded(trim, 0.7), -1)


def _paint_glass(
    recess: np.ndarray, opening: Opening, style: WindowStyle, frame: Colour, random: np.random.Generator
) -> None:
    """Glass with a blind, a curtain or a reflection (the building's own), then the glazing bars."""
    x, y, width, height = opening.x, opening.y, opening.width, opening.height
    right, bottom = x + width, y + height
    value = random.choice([0.12, 0.2, 0.3, 0.5]) + random.normal(0, 0.04)
    glass = colour(0.58 + random.normal(0, 0.05), random.uniform(0.05, 0.5), value)
    margin = RECESS_MARGIN
    cv2.rectangle(recess, (x - margin, y - margin), (right + margin, bottom + margin), glass, -1)
    state, hue, extent = random.random(), random.random(), random.uniform(0.2, 0.75)
    if state < 0.3:
        blind = colour(hue, 0.2, random.uniform(0.5, 0.95))
        cv2.rectangle(recess, (x - margin, y - margin), (right + margin, y + int(height * extent)), blind, -1)
    elif state < 0.5:
        curtain = [(x - 2, y), (x + int(width * extent), y), (x - 2, bottom)]
        cv2.fillPoly(recess, [np.array(curtain, np.int32)], colour(hue, 0.25, 0.8), cv2.LINE_AA)
    elif state < 0.7:
        gleam = colour(0.58, 0.1, 0.8)
        cv2.line(recess, (x, bottom - 4), (right, y + int(height * extent)), gleam, 2, cv2.LINE_AA)
    for pane in range(1, style.panes_across):
        bar = x + width * pane // style.panes_across
        cv2.line(recess, (bar, y - margin), (bar, bottom + margin), frame, 2)
    for pane in range(1, style.panes_down):
        bar = y + height * pane // style.panes_down
        cv2.line(recess, (x - margin, bar), (right + margin, bar), frame, 2)


def paint_ornament(
    image: np.ndarray, centre: tuple[int, int], size: int, glyph: int, palette: Palette
) -> None:
    """A rosette, crest or clock: layers of spokes, rings, dots and stars on a disc of radius `size`."""
    random = generator_for("ornament", glyph)
    disc = colour(palette.accent + 0.1, 0.2, random.uniform(0.2, 0.95))
    cv2.circle(image, centre, size, disc, -1, cv2.LINE_AA)
    for _ in range(random.integers(3, 6)):
        corners, radius = int(random.integers(3, 13)), size * random.uniform(0.25, 1)
        hue = palette.accent + random.choice([0, 0.5])
        paint = colour(hue, 0.45, random.uniform(0.05, 1))
        angle = random.uniform(0, 6) + 2 * np.pi * np.arange(corners) / corners
        points = (np.array(centre) + radius * np.stack([np.cos(angle), np.sin(angle)], 1)).astype(np.int32)
        kind = random.integers(4)
        if kind == 0:
            for point in points:
                cv2.line(image, centre, (int(point[0]), int(point[1])), paint, 2, cv2.LINE_AA)
        elif kind == 1:
            cv2.polylines(image, [points], True, paint, 2, cv2.LINE_AA)
        elif kind == 2:
            for point in points:
                dot = max(2, int(size * 0.16))
                cv2.circle(image, (int(point[0]), int(point[1])), dot, paint, -1, cv2.LINE_AA)
        else:
            star = np.ascontiguousarray(points[::2] if corners > 5 else points)
            cv2.fillPoly(image, [star], paint, cv2.LINE_AA)


@cache
def poster(design: int) -> np.ndarray:
    """A printed poster, uint8 (96, 68, 3): exactly the same wherever it hangs, so that it matches itself."""
    random = generator_for("poster", design)
    height, width = 96, 68
    hue = random.random()
    image = np.empty((height, width, 3), np.uint8)
    image[:] = colour(hue, random.uniform(0.1, 0.7), random.uniform(0.3, 0.95))
    palette = Palette(hue, 0.6, 0.6, float(random.random()))
    for _ in range(5):
        centre = (int(random.integers(8, 60)), int(random.integers(12, 70)))
        paint_ornament(image, centre, int(random.integers(7, 18)), int(random.integers(1000, 2000)), palette)
    words = str(random.choice(["CIRCUS", "REGATTA", "JAZZ", "FAIR", "OPERA", "DERBY", "EXPO", "REVUE"]))
    ink = colour(hue + 0.5, 0.5, random.choice([0.08, 0.98]))
    cv2.putText(image, words, (4, 86), cv2.FONT_HERSHEY_DUPLEX, 0.5, ink, 1, cv2.LINE_AA)
    cv2.rectangle(image, (0, 0), (width - 1, height - 1), (235, 235, 235), 2)
    return image
