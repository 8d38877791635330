"""A white sheet to put pictures, frames and words on; the same calls give the same pixels."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

Color = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Picture:
    """An image [height, width, 3] (uint8; blue, green, red) made smaller or larger by `scale`."""

    pixels: np.ndarray
    scale: float


class Canvas:
    """A sheet of `width` × `height` pixels; coordinates from its upper left corner, colours blue-green-red."""

    def __init__(self, width: int, height: int) -> None:
        self.pixels = np.full((height, width, 3), 255, np.uint8)

    def text(self, words: str, x: int, y: int, color: Color, size: int, weight: int = 400) -> int:
        """Write `words` with their baseline at `y`; the x coordinate where they end."""
        import cv2

        shown = _printable(words)
        end, self.pixels = cv2.putText(self.pixels, shown, (x, y), color, _font(), size, weight)
        return int(end[0])

    def frame(self, x: int, y: int, width: int, height: int, color: Color, thickness: int) -> None:
        """A frame whose outer edge is the given rectangle."""
        for inset in range(thickness):
            self._line(y + inset, x, x + width, color)
            self._line(y + height - 1 - inset, x, x + width, color)
            self._column(x + inset, y, y + height, color)
            self._column(x + width - 1 - inset, y, y + height, color)

    def rule(self, y: int, margin: int, color: Color) -> None:
        """A thin line across the sheet."""
        self._line(y, margin, self.pixels.shape[1] - margin, color)

    def paste(self, picture: Picture, x: int, y: int) -> None:
        """Put `picture` with its upper left corner at the given place."""
        rows, columns = picture.pixels.shape[:2]
        self.pixels[y : y + rows, x : x + columns] = picture.pixels

    def _line(self, y: int, x1: int, x2: int, color: Color) -> None:
        if 0 <= y < self.pixels.shape[0]:
            self.pixels[y, max(x1, 0) : max(x2, 0)] = color

    def _column(self, x: int, y1: int, y2: int, color: Color) -> None:
        if 0 <= x < self.pixels.shape[1]:
            self.pixels[max(y1, 0) : max(y2, 0), x] = color


def write_on(canvas: Canvas, words: str, x: int, y: int, width: int, color: Color, size: int) -> None:
    """Write `words` in lines no wider than `width`, the first with its baseline at `y`; at most six lines."""
    lines: list[str] = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    for number, line in enumerate(lines[:6]):
        last = " …" if number == 5 and len(lines) > 6 else ""
        canvas.text(line + last, x, y + number * (size + 5), color, size)


def text_width(words: str, size: int, weight: int = 400) -> int:
    """Width in pixels of a line of text."""
    import cv2

    x, _, width, _ = cv2.getTextSize((1 << 14, 1 << 10), _printable(words), (0, 0), _font(), size, weight)
    return int(x + width)


def fit(image: np.ndarray, width: int, height: int) -> Picture:
    """`image` [h, w, 3] as large as fits into `width` × `height`, proportions kept."""
    import cv2

    rows, columns = image.shape[:2]
    scale = min(width / columns, height / rows)
    size = (max(1, round(columns * scale)), max(1, round(rows * scale)))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return Picture(cv2.resize(image, size, interpolation=how), scale)


def png_bytes(pixels: np.ndarray) -> bytes:
    """`pixels` [height, width, 3] (uint8; blue, green, red) as a PNG file."""
    import cv2

    done, data = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 9])
    assert done
    return data.tobytes()


@functools.cache
def _font() -> Any:
    import cv2

    return cv2.FontFace("sans")


def _printable(words: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in words)
