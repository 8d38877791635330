"""What a building is: a specification drawn from a key, before anything is painted.

A building is put together from *shared* parts (window styles, ornaments, materials, posters come from small
pools, so that parts alone do not identify it) and from what is its own: layout, sign, stains, the state of
each window. Look-alikes share most parts of a landmark and nothing of its own.
"""

from dataclasses import dataclass, replace

import numpy as np

from cairn.benchmarks.toytown.randomness import generator_for

WIDTH = 640  # a facade is 640 texture pixels wide; all lengths in the town are in these units
WINDOW_STYLES = 36
ORNAMENTS = 48
POSTERS = 14
MATERIALS = ("brick", "ashlar", "stucco", "timber", "tile")
TOPS = ("cornice", "pediment", "crenel", "balustrade", "gable", "mansard")

# Hue, saturation and value of the walls one meets in towns; buildings vary around them.
WALL_COLOURS = (
    (0.01, 0.58, 0.56),  # red brick
    (0.04, 0.52, 0.70),  # terracotta
    (0.07, 0.38, 0.46),  # brown stone
    (0.10, 0.34, 0.80),  # sandstone
    (0.12, 0.62, 0.84),  # ochre
    (0.13, 0.22, 0.92),  # cream
    (0.22, 0.34, 0.66),  # moss
    (0.32, 0.30, 0.64),  # sage
    (0.47, 0.36, 0.66),  # verdigris
    (0.56, 0.40, 0.78),  # pale blue
    (0.61, 0.30, 0.46),  # slate
    (0.75, 0.24, 0.70),  # lilac
    (0.93, 0.32, 0.78),  # rose
    (0.98, 0.52, 0.50),  # oxblood
    (0.09, 0.06, 0.62),  # grey stone
    (0.11, 0.05, 0.92),  # whitewash
)

# Words over doors that any street has: a sign tells less than one would hope.
COMMON_SIGNS = (
    "HOTEL",
    "BAKERY",
    "BOOKS",
    "CAFE",
    "PHARMACY",
    "TAILOR",
    "RADIO",
    "MUSIC",
    "WINES",
    "OPTICIAN",
)


@dataclass(frozen=True)
class Palette:
    hue: float
    saturation: float
    value: float
    accent: float  # hue of frames, signs and ornaments


@dataclass(frozen=True)
class Floor:
    height: float  # relative to the other floors
    window: int
    columns: int
    frieze: int | None
    balcony: bool


@dataclass(frozen=True)
class Ornament:
    glyph: int
    x: float  # centre, share of the facade's width
    y: float  # share of its height
    size: float  # radius, share of its width


@dataclass(frozen=True)
class Bay:
    """The part of the facade that stands out towards the street."""

    left: float
    right: float
    depth: float  # texture pixels


@dataclass(frozen=True)
class Specification:
    key: str  # decides everything that is the building's own
    palette: Palette
    material: str
    grain: float
    aspect: float  # height over width
    floors: tuple[Floor, ...]
    top: str
    door: int
    door_at: float
    sign: str
    sign_at: tuple[float, float]
    ornaments: tuple[Ornament, ...]
    bay: Bay | None
    poster: tuple[int, float] | None  # design and horizontal place


def specify(*key: object, sign: str | None = None) -> Specification:
    """The building that belongs to `key`; `sign` is what stands over its door, else a common or odd word."""
    random = generator_for("building", *key)
    return Specification(
        key="/".join(map(str, key)),
        palette=_palette(random),
        material=str(random.choice(MATERIALS)),
        grain=float(random.uniform(0.7, 1.6)),
        aspect=float(random.uniform(0.62, 0.95)),
        floors=tuple(_floor(random) for _ in range(random.integers(2, 5))),
        top=str(random.choice(TOPS)),
        door=int(random.integers(WINDOW_STYLES)),
        door_at=float(random.uniform(0.2, 0.8)),
        sign=_sign(random) if sign is None else sign,
        sign_at=(float(random.uniform(0.12, 0.6)), float(random.uniform(0.35, 0.8))),
        ornaments=tuple(_ornament(random) for _ in range(random.integers(2, 6))),
        bay=_bay(random),
        poster=_poster(random),
    )


def look_alike(
    model: Specification, share: float, same_palette: float, *key: object, sign: str | None = None
) -> Specification:
    """Another building with about `share` of the parts of `model`.

    With probability `same_palette` it also has the palette of `model`. Sign, stains and the state of its
    windows are its own.
    """
    random = generator_for("look-alike", *key)
    new = specify("look-alike", *key, sign=sign)

    def keep(probability: float = share) -> bool:
        return bool(random.random() < probability)

    palette = new.palette
    if keep(same_palette):
        palette = replace(
            model.palette,
            hue=model.palette.hue + float(random.normal(0, 0.02)),
            value=model.palette.value + float(random.normal(0, 0.06)),
        )
    floors = model.floors if keep() else model.floors[::-1]
    return replace(
        new,
        palette=replace(palette, accent=model.palette.accent if keep() else new.palette.accent),
        material=model.material if keep() else new.material,
        grain=model.grain if keep() else new.grain,
        aspect=model.aspect if keep() else new.aspect,
        top=model.top if keep() else new.top,
        door=model.door if keep() else new.door,
        bay=model.bay if keep() else new.bay,
        poster=model.poster if keep() else new.poster,
        floors=tuple(_altered_floor(floor, keep, share, random) for floor in floors),
        ornaments=tuple(
            _altered_ornament(ornament, other, keep, share, random)
            for ornament, other in zip(model.ornaments, new.ornaments * 3, strict=False)
        ),
    )


def _palette(random: np.random.Generator) -> Palette:
    hue, saturation, value = WALL_COLOURS[random.integers(len(WALL_COLOURS))]
    return Palette(
        hue=hue + float(random.normal(0, 0.02)),
        saturation=max(0.0, saturation + float(random.normal(0, 0.05))),
        value=min(0.95, value + float(random.normal(0, 0.07))),
        accent=float(random.random()),
    )


def _floor(random: np.random.Generator) -> Floor:
    return Floor(
        height=float(random.uniform(0.8, 1.3)),
        window=int(random.integers(WINDOW_STYLES)),
        columns=int(random.integers(3, 8)),
        frieze=int(random.integers(ORNAMENTS)) if random.random() < 0.4 else None,
        balcony=bool(random.random() < 0.35),
    )


def _altered_floor(floor: Floor, keep, share: float, random: np.random.Generator) -> Floor:
    new = _floor(random)
    return Floor(
        height=floor.height if keep() else new.height,
        window=floor.window if keep() else new.window,
        columns=floor.columns if keep(share * 0.7) else new.columns,
        frieze=floor.frieze if keep() else new.frieze,
        balcony=floor.balcony if keep() else new.balcony,
    )


def _ornament(random: np.random.Generator) -> Ornament:
    return Ornament(
        glyph=int(random.integers(ORNAMENTS)),
        x=float(random.uniform(0.08, 0.92)),
        y=float(random.uniform(0.1, 0.9)),
        size=float(random.uniform(0.04, 0.095)),
    )


def _altered_ornament(
    ornament: Ornament, other: Ornament, keep, share: float, random: np.random.Generator
) -> Ornament:
    """The same ornament somewhere else, now and then in the same place, or another one."""
    chosen = ornament if keep(share * 0.8) else other
    if keep(share * 0.4):
        return replace(chosen, x=ornament.x, y=ornament.y)
    return replace(chosen, x=float(random.uniform(0.08, 0.92)), y=float(random.uniform(0.1, 0.9)))


def _bay(random: np.random.Generator) -> Bay | None:
    width, middle, depth = random.uniform(0.24, 0.42), random.uniform(0.2, 0.8), random.uniform(35, 90)
    if random.random() < 0.3:
        return None
    return Bay(left=max(0.0, middle - width / 2), right=min(1.0, middle + width / 2), depth=float(depth))


def _poster(random: np.random.Generator) -> tuple[int, float] | None:
    design, x = int(random.integers(POSTERS)), float(random.uniform(0.05, 0.85))
    return (design, x) if random.random() < 0.4 else None


def _sign(random: np.random.Generator) -> str:
    if random.random() < 0.3:
        return str(random.choice(COMMON_SIGNS))
    consonants, vowels = list("BCDFGHKLMNPRSTVZ"), list("AEIOU")
    syllables = [f"{random.choice(consonants)}{random.choice(vowels)}" for _ in range(random.integers(2, 4))]
    return "".join(syllables) + str(random.choice(["", "N", "R", "S", "X"]))
