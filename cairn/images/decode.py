"""From an image file's bytes to pixels, and from pixels to a query's crop.

Pixels are those **stored in the file: an EXIF orientation is not applied.** The revisited-Oxford code
(`Image.open(…).convert('RGB')`, python/example_process_images.py) and most evaluation scripts do the same,
boxes are given in stored pixels, and width and height in the manifest are the stored ones. (`cv2.imread`, in
the extraction code of AMES, would turn such images; benchmark files carry no such tag.)
"""

from typing import TYPE_CHECKING

from cairn.errors import ImageError, InputError
from cairn.images.headers import Header, as_stored, read_header

if TYPE_CHECKING:
    import numpy as np

    from cairn.benchmarks.structure import Box

MAX_PIXELS = 1 << 28
"""Largest image, 268 megapixels (a 200-megapixel phone fits): a few kilobytes can claim to hold billions."""


def decode_bgr(
    data: bytes, image_id: str, reduced: int = 1, recorded: tuple[int, int] | None = None
) -> "np.ndarray":
    """Decode an image file to uint8 [height, width, 3] in the order blue, green, red.

    Grey images get three equal channels, an alpha channel is dropped, 16 bits are scaled to 8. `reduced` (1, 2,
    4 or 8) decodes a JPEG to that fraction of its sides, other formats whole. `recorded` is the height and width
    that a manifest recorded for exactly these bytes (see ImageSource.read): their structure was checked then and
    is not walked again, which takes half as long as decoding. ImageError, naming the image, for a file that is
    corrupt, truncated, of an unknown format or above MAX_PIXELS.
    """
    import cv2

    modes = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}
    if reduced == 1 or data[:2] != b"\xff\xd8":
        return _decode(data, image_id, cv2.IMREAD_COLOR, recorded)
    if recorded is None:
        inspect(data, image_id)
    return _pixels(data, image_id, modes[reduced])


def decode_gray(data: bytes, image_id: str, recorded: tuple[int, int] | None = None) -> "np.ndarray":
    """Decode an image file to uint8 [height, width]: luma, for a JPEG its own Y channel. Errors as above."""
    import cv2

    return _decode(data, image_id, cv2.IMREAD_GRAYSCALE, recorded)


def inspect(data: bytes, image_id: str) -> Header:
    """Format and size of an image file whose structure is complete. ImageError, naming it, otherwise."""
    try:
        header = read_header(data)
    except ValueError as error:
        raise ImageError(f"image {image_id}: {error}") from None
    if header.width * header.height > MAX_PIXELS:
        raise ImageError(
            f"image {image_id}: {header.width} × {header.height} pixels are more than {MAX_PIXELS:,}"
        )
    return header


def check_decodable(data: bytes, image_id: str) -> Header:
    """Like `inspect`, and decode the file once (a JPEG at an eighth, which still reads all its data)."""
    import cv2

    header = inspect(data, image_id)
    if header.format == "JPEG":
        _pixels(data, image_id, cv2.IMREAD_REDUCED_GRAYSCALE_8)
    else:
        decode_gray(data, image_id)
    return header


def close_truncated_jpeg(data: bytes) -> bytes:
    """A truncated JPEG with the end marker it lacks, so that decoders fill the missing part with grey.

    For benchmarks whose official code accepts truncated files (the revisited-Oxford code sets Pillow's
    LOAD_TRUNCATED_IMAGES). Everywhere else a truncated file is an error.
    """
    return data + b"\xff\xd9"


def crop(image: "np.ndarray", box: "Box", query_id: str) -> "np.ndarray":
    """The part of `image` [height, width, …] inside `box` (x1, y1, x2, y2 in stored pixels), as a view.

    Rounded as in the revisited-Oxford code, which calls Pillow's `Image.crop`: each corner to the nearest
    integer, halves to even; x2 and y2 are the first column and row outside. InputError, naming the query,
    where the rounded box is empty or leaves the image (Pillow would pad with black).
    """
    height, width = image.shape[:2]
    x1, y1, x2, y2 = crop_pixels(box, width, height, query_id)
    return image[y1:y2, x1:x2]


def crop_pixels(box: "Box", width: int, height: int, query_id: str) -> tuple[int, int, int, int]:
    """The integer box x1, y1, x2, y2 that `crop` takes from an image of `width` × `height` pixels."""
    from cairn.benchmarks.structure import check_box

    check_box(box, f"query {query_id}")
    x1, y1, x2, y2 = (round(corner) for corner in box)
    shown = ", ".join(f"{corner:g}" for corner in box)
    if x1 < 0 or y1 < 0 or x2 > width or y2 > height:
        raise InputError(f"query {query_id}: box ({shown}) leaves its image of {width} × {height} pixels")
    if x1 >= x2 or y1 >= y2:
        raise InputError(f"query {query_id}: box ({shown}) holds no pixel")
    return x1, y1, x2, y2


def _decode(data: bytes, image_id: str, mode: int, recorded: tuple[int, int] | None) -> "np.ndarray":
    if recorded is None:
        header = inspect(data, image_id)
        height, width = header.height, header.width
    else:
        height, width = recorded
    pixels = _pixels(data, image_id, mode)
    if pixels.shape[:2] != (height, width):
        raise ImageError(
            f"image {image_id}: decodes to {pixels.shape[1]} × {pixels.shape[0]} pixels, "
            f"its {'header says' if recorded is None else 'manifest says'} {width} × {height}"
        )
    return pixels


def _pixels(data: bytes, image_id: str, mode: int) -> "np.ndarray":
    import cv2
    import numpy as np

    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        pixels = cv2.imdecode(np.frombuffer(as_stored(data), np.uint8), mode | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise ImageError(f"image {image_id}: cannot be decoded ({error.err})") from None
    finally:
        cv2.utils.logging.setLogLevel(level)
    if pixels is None:
        raise ImageError(f"image {image_id}: cannot be decoded; the file is corrupt")
    return pixels
