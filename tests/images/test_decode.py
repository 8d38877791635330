"""Decoding: right pixels for good files, one clear error for bad ones, and crops as Pillow makes them."""

import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ImageError, InputError
from cairn.images.decode import (
    check_decodable,
    close_truncated_jpeg,
    crop,
    decode_bgr,
    decode_gray,
    inspect,
)
from tests.images.pictures import draw, encode

SUFFIXES = [".jpg", ".png", ".webp", ".tif", ".bmp"]


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp"])
def test_lossless_formats_give_the_pixels_back(suffix: str) -> None:
    pixels = draw(1)
    np.testing.assert_array_equal(decode_bgr(encode(pixels, suffix), "a"), pixels)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_header_agrees_with_the_decoder(suffix: str) -> None:
    data = encode(draw(2, 61, 37), suffix)
    header = inspect(data, "a")
    assert (header.width, header.height) == (61, 37) == decode_gray(data, "a").shape[::-1]
    assert check_decodable(data, "a") == header


@pytest.mark.parametrize(
    "parameters", [(cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 2)]
)
def test_progressive_and_restart_jpegs_are_complete(parameters: tuple[int, int]) -> None:
    data = encode(draw(3, 200, 160), ".jpg", *parameters)
    assert decode_bgr(data, "a").shape == (160, 200, 3)
    with pytest.raises(ImageError, match="image a: truncated JPEG"):
        decode_bgr(data[:-200], "a")


def test_lossless_webp_and_extended_webp_sizes() -> None:
    lossless = encode(draw(4, 61, 37), ".webp", cv2.IMWRITE_WEBP_QUALITY, 101)
    assert lossless[12:16] == b"VP8L"
    assert decode_bgr(lossless, "a").shape == (37, 61, 3)
    alpha = np.dstack([draw(4, 61, 37), np.linspace(0, 255, 61 * 37).reshape(37, 61).astype(np.uint8)])
    extended = encode(alpha, ".webp", cv2.IMWRITE_WEBP_QUALITY, 80)
    assert extended[12:16] == b"VP8X"
    assert decode_bgr(extended, "a").shape == (37, 61, 3)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=25, deadline=None)
@given(share=st.floats(0, 0.999))
def test_a_truncated_file_is_never_decoded(suffix: str, share: float) -> None:
    data = encode(draw(5, 96, 64), suffix)
    with pytest.raises(ImageError, match=r"image town\.jpg"):
        decode_bgr(data[: int(len(data) * share)], "town.jpg")


def test_a_thumbnail_with_an_end_marker_does_not_hide_truncation() -> None:
    data = encode(draw(6, 200, 160))
    thumbnail = encode(draw(6, 16, 12))
    segment = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 8) + b"Exif\0\0" + thumbnail
    whole = data[:2] + segment + data[2:]
    assert inspect(whole, "a").width == 200
    with pytest.raises(ImageError, match="truncated JPEG"):
        inspect(whole[: len(segment) + 700], "a")


def test_bytes_behind_the_end_marker_are_allowed() -> None:
    data = encode(draw(7))
    np.testing.assert_array_equal(decode_bgr(data + b"phone's own notes", "a"), decode_bgr(data, "a"))


def test_a_truncated_jpeg_can_be_closed_on_purpose() -> None:
    data = encode(draw(8, 200, 160))
    closed = close_truncated_jpeg(data[: len(data) * 2 // 3])
    half = decode_bgr(closed, "a")
    np.testing.assert_array_equal(half[:32], decode_bgr(data, "a")[:32])
    assert (half[-16:, :, 0] == half[-1, -1, 0]).all()


def exif(orientation: int) -> bytes:
    tiff = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x112, 3, 1, orientation, 0, 0)
    return b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff


def test_orientation_is_not_applied() -> None:
    data = encode(draw(9))
    turned = data[:2] + exif(6) + data[2:]
    turning = cv2.imdecode(np.frombuffer(turned, np.uint8), cv2.IMREAD_COLOR)
    assert turning.shape == (48, 32, 3), "the tag is there: OpenCV would turn the image"
    np.testing.assert_array_equal(decode_bgr(turned, "a"), decode_bgr(data, "a"))
    np.testing.assert_array_equal(decode_gray(turned, "a"), decode_gray(data, "a"))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_of_a_tiff_is_not_applied_either(orientation: int) -> None:
    from io import BytesIO

    from PIL import Image

    pixels = draw(9)
    buffer = BytesIO()
    Image.fromarray(pixels[:, :, ::-1]).save(buffer, "TIFF", tiffinfo={274: orientation})
    turned = buffer.getvalue()
    if orientation > 1:
        data = np.frombuffer(turned, np.uint8)
        turning = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        assert not np.array_equal(turning, pixels), "OpenCV turns it, told not to"
    np.testing.assert_array_equal(decode_bgr(turned, "a"), pixels)
    assert check_decodable(turned, "a") == inspect(turned, "a")


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


def test_bombs_are_refused_before_decoding() -> None:
    with pytest.raises(ImageError, match="image a: 100000 × 100000 pixels are more than 268,435,456"):
        decode_bgr(png_claiming(100_000, 100_000), "a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a JPEG, PNG, WebP, TIFF or BMP file"),
        (b"GIF89a" + b"\0" * 99, "not a JPEG"),
        (b"\xff\xd8", "truncated JPEG"),
        (b"\xff\xd8\xff\xd9", "no frame header"),
        (b"\xff\xd8\xff\xc0\x00", "ends inside its header"),
        (png_claiming(4, 0), "damaged PNG"),
        (png_claiming(400, 400), "cannot be decoded"),
        (b"RIFF\x04\0\0\0WEBP", "unknown first chunk"),
        (b"II*\0\xff\xff\xff\xff", "ends inside its header"),
    ],
)
def test_bad_files_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message) as caught:
        decode_bgr(data, "a.jpg")
    assert "a.jpg" in str(caught.value) and "\n" not in str(caught.value)


def test_a_flipped_byte_in_a_png_is_found() -> None:
    data = bytearray(encode(draw(10), ".png"))
    data[len(data) // 2] ^= 1
    with pytest.raises(ImageError, match="checksum is wrong"):
        inspect(bytes(data), "a")


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=80, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes_end_in_pixels_or_an_image_error(suffix: str, changes) -> None:
    data = bytearray(encode(draw(11), suffix))
    for position, value in changes:
        data[position % min(len(data), 400)] = value
    try:
        pixels = decode_bgr(bytes(data), "a")
    except ImageError as error:
        assert "\n" not in str(error)
    else:
        assert pixels.dtype == np.uint8 and pixels.ndim == 3


corners = st.integers(0, 60).map(lambda quarter: quarter / 4)


@settings(max_examples=200, deadline=None)
@given(corners, corners, corners, corners)
def test_crops_are_pillows(x1: float, y1: float, x2: float, y2: float) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = draw(12, 16, 16)
    box = (x1, y1, x2, y2)
    try:
        ours = crop(pixels, box, "q")
    except InputError as error:
        assert "query q: box" in str(error)
        assert round(x1) >= round(x2) or round(y1) >= round(y2) or x1 >= x2 or y1 >= y2
        return
    np.testing.assert_array_equal(ours, np.asarray(image.fromarray(pixels).crop(box)))


def test_halves_round_to_even_and_edges_count_as_inside() -> None:
    pixels = draw(13, 20, 10)
    assert crop(pixels, (0.5, 1.5, 20.4, 10.5), "q").shape == (8, 20, 3)
    assert crop(pixels, (-0.5, 0, 2.5, 10), "q").shape == (10, 2, 3)


@pytest.mark.parametrize("box", [(-1, 0, 5, 5), (0, 0, 21, 5), (0, 0, 5, 11), (30, 0, 40, 5)])
def test_a_box_outside_the_image_names_the_query(box) -> None:
    with pytest.raises(InputError, match=r"query q7: box .* leaves its image of 20 × 10 pixels"):
        crop(draw(13, 20, 10), box, "q7")


def test_an_empty_box_names_the_query() -> None:
    with pytest.raises(InputError, match=r"query q7: box \(0.1, 0, 0.4, 5\) holds no pixel"):
        crop(draw(13, 20, 10), (0.1, 0, 0.4, 5), "q7")
