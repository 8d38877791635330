"""What an image file says about itself before it is decoded: format, size, and whether it is all there.

Decoders differ in what they do with a file that ends early (OpenCV's `imread` and many programs around
libjpeg fill the rest with grey and say nothing), so completeness is checked here and not left to them.
"""

import re
import struct
import zlib
from dataclasses import dataclass

_MARKER = re.compile(rb"\xff+[^\x00\xff\xd0-\xd7]")
# Start-of-frame markers: C0 to CF without DHT (C4), JPG (C8) and DAC (CC).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True)
class Header:
    """Format name, and width and height in pixels as stored (no EXIF orientation applied)."""

    format: str
    width: int
    height: int


def read_header(data: bytes) -> Header:
    """Read and check an image file's structure; ValueError says what is wrong with it.

    JPEG: the segments up to the end-of-image marker, which must be there (bytes behind it are allowed: phones
    put things there). PNG: every chunk and its CRC up to IEND. WebP: the RIFF length. BMP: the file length.
    TIFF: the first directory. What cannot be seen without decoding, such as flipped bits inside a JPEG's
    scan, is not found here.
    """
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            return _png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data[:4] in (b"II*\0", b"MM\0*"):
            return _tiff(data)
        if data[:2] == b"BM":
            return _bmp(data)
    except (struct.error, IndexError):
        raise ValueError("the file ends inside its header") from None
    raise ValueError("not a JPEG, PNG, WebP, TIFF or BMP file")


def _jpeg(data: bytes) -> Header:
    size = None
    position = 2
    while True:
        # Before the first scan segments follow one another; inside a scan the next marker is searched, since
        # there FF is followed by 00 or a restart number. So a thumbnail's end marker is never taken for ours.
        found = _MARKER.search(data, position)
        if found is None:
            raise ValueError("truncated JPEG (no end-of-image marker)")
        marker, position = data[found.end() - 1], found.end()
        if marker == 0xD9:
            break
        if marker in (0x01, 0xD8):
            continue
        (length,) = struct.unpack_from(">H", data, position)
        if length < 2 or position + length > len(data):
            raise ValueError("truncated or damaged JPEG (a segment runs past the end)")
        if marker in _FRAMES and size is None:
            height, width = struct.unpack_from(">HH", data, position + 3)
            size = width, height
        position += length
    if size is None:
        raise ValueError("damaged JPEG (no frame header)")
    return _checked("JPEG", *size)


def _png(data: bytes) -> Header:
    position = 8
    size = None
    while True:
        if position + 12 > len(data):
            raise ValueError("truncated PNG (no IEND chunk)")
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data):
            raise ValueError("truncated PNG (a chunk runs past the end)")
        (recorded,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(memoryview(data)[position + 4 : end - 4]) != recorded:
            raise ValueError("damaged PNG (a chunk's checksum is wrong)")
        if kind == b"IHDR" and size is None:
            size = struct.unpack_from(">II", data, position + 8)
        if kind == b"IEND":
            break
        position = end
    if size is None:
        raise ValueError("damaged PNG (no IHDR chunk)")
    return _checked("PNG", *size)


def _webp(data: bytes) -> Header:
    (length,) = struct.unpack_from("<I", data, 4)
    if length + 8 > len(data):
        raise ValueError("truncated WebP")
    kind = data[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
    elif kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (value & 0x3FFF for value in struct.unpack_from("<HH", data, 26))
    else:
        raise ValueError("damaged WebP (unknown first chunk)")
    return _checked("WebP", width, height)


def _bmp(data: bytes) -> Header:
    (length,) = struct.unpack_from("<I", data, 2)
    if length > len(data):
        raise ValueError("truncated BMP")
    width, height = struct.unpack_from("<ii", data, 18)
    return _checked("BMP", width, abs(height))


def _tiff(data: bytes) -> Header:
    order = "<" if data[:2] == b"II" else ">"
    (position,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, position)
    size = {}
    for entry in range(count):
        tag, kind, _, short = struct.unpack_from(order + "HHIH", data, position + 2 + 12 * entry)
        if tag in (256, 257):  # ImageWidth, ImageLength: one SHORT (3) or LONG (4)
            (long,) = struct.unpack_from(order + "I", data, position + 10 + 12 * entry)
            size[tag] = short if kind == 3 else long
    if len(size) != 2:
        raise ValueError("damaged TIFF (no width or height)")
    return _checked("TIFF", size[256], size[257])


def as_stored(data: bytes) -> bytes:
    """A file without the orientation that decoders apply even where they are told not to: OpenCV, for a TIFF."""
    if data[:4] not in (b"II*\0", b"MM\0*"):
        return data
    order = "<" if data[:2] == b"II" else ">"
    turned = bytearray(data)
    try:
        (position,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, position)
        for entry in range(position + 2, position + 2 + 12 * count, 12):
            if struct.unpack_from(order + "HH", data, entry) == (274, 3):
                struct.pack_into(order + "H", turned, entry + 8, 1)
    except struct.error:
        return data
    return bytes(turned)


def _checked(name: str, width: int, height: int) -> Header:
    if width < 1 or height < 1:
        raise ValueError(f"damaged {name} (size {width} × {height})")
    return Header(name, width, height)
