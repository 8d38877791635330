"""Sizes and pixels of each rule, against the libraries whose behaviour it names."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cairn.images.preprocessing import Preprocessing, output_size, prepare, reduction, target_size

Image = pytest.importorskip("PIL.Image")
SIDES = st.integers(1, 3000)


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@given(height=SIDES, width=SIDES, size=st.integers(1, 1500))
@settings(deadline=None, max_examples=200)
def test_longest_without_enlarging_is_pillows_thumbnail(height: int, width: int, size: int):
    rules = Preprocessing(resize="longest", size=size, enlarge=False, rounding="nearest")
    image = Image.new("1", (width, height))
    image.thumbnail((size, size))
    assert target_size(height, width, rules) == (image.height, image.width)


@given(height=SIDES, width=SIDES, size=st.integers(1, 1500))
@settings(deadline=None, max_examples=200)
def test_shorter_is_torchvisions_resize(height: int, width: int, size: int):
    # torchvision.transforms.functional._compute_resized_output_size
    short, long = (width, height) if width <= height else (height, width)
    new = {True: (int(size * long / short), size), False: (size, int(size * long / short))}[width <= height]
    assert target_size(height, width, Preprocessing(resize="shorter", size=size)) == new


@given(height=SIDES, width=SIDES, multiple=st.sampled_from([1, 14, 16]), scale=st.floats(0.2, 2))
@settings(deadline=None, max_examples=200)
def test_quantised_sides_are_the_nearest_multiples(height: int, width: int, multiple: int, scale: float):
    rules = Preprocessing(resize="longest", size=700, multiple=multiple)
    found = target_size(height, width, rules, scale)
    assert all(side >= 1 and side % multiple == 0 for side in found)
    if multiple > 1:
        factor = 700 * scale / max(height, width)
        for side, exact in zip(found, (height * factor, width * factor), strict=True):
            assert abs(side - exact) <= multiple / 2 + 1e-6 or side == multiple


@pytest.mark.parametrize("filter_name", ["bicubic", "bilinear", "lanczos", "nearest"])
def test_pixels_are_pillows(filter_name: str):
    image = picture(60, 90)
    rules = Preprocessing(resize="shorter", size=32, interpolation=filter_name)  # type: ignore[arg-type]
    expected = Image.fromarray(image[:, :, ::-1].copy()).resize(
        (48, 32), Image.Resampling[filter_name.upper()]
    )
    assert np.array_equal(prepare(image, rules), np.asarray(expected))


def test_area_linear_is_opencvs():
    import cv2

    image = picture(60, 90)
    down = Preprocessing(resize="longest", size=45, interpolation="area-linear")
    up = Preprocessing(resize="longest", size=180, interpolation="area-linear")
    assert np.array_equal(
        prepare(image, down), cv2.resize(image, (45, 30), interpolation=cv2.INTER_AREA)[:, :, ::-1]
    )
    assert np.array_equal(
        prepare(image, up), cv2.resize(image, (180, 120), interpolation=cv2.INTER_LINEAR)[:, :, ::-1]
    )


@pytest.mark.parametrize(("height", "width"), [(40, 40), (41, 60), (20, 61), (31, 20), (7, 5)])
def test_the_centre_crop_pads_and_rounds_as_torchvision(height: int, width: int):
    image, side = picture(height, width), 32
    rules = Preprocessing(resize="none", crop=side)
    # torchvision.transforms.functional.center_crop: pad left, top, right, bottom; then round half to even.
    left = (side - width) // 2 if side > width else 0
    top = (side - height) // 2 if side > height else 0
    right = (side - width + 1) // 2 if side > width else 0
    bottom = (side - height + 1) // 2 if side > height else 0
    padded = np.zeros((height + top + bottom, width + left + right, 3), np.uint8)
    padded[top : top + height, left : left + width] = image[:, :, ::-1]
    y, x = round((padded.shape[0] - side) / 2), round((padded.shape[1] - side) / 2)
    assert np.array_equal(prepare(image, rules), padded[y : y + side, x : x + side])
    assert output_size(height, width, rules) == (side, side)


def test_a_part_keeps_the_scale_of_its_whole_image():
    rules = Preprocessing(
        resize="longest",
        size=1024,
        enlarge=False,
        rounding="nearest",
        relative_to="whole",
        interpolation="lanczos",
    )
    image, whole = picture(300, 200), (1536, 2048)
    expected = Image.fromarray(image[:, :, ::-1].copy())
    # imresize(img, self.imsize * max(img.size) / imfullsize), cirtorch
    expected.thumbnail((1024 * 300 / 2048,) * 2, Image.Resampling.LANCZOS)
    assert np.array_equal(prepare(image, rules, whole=whole), np.asarray(expected))
    assert target_size(300, 200, rules, whole=(300, 200)) == (300, 200)
    assert target_size(300, 200, rules) == (300, 200)


def test_reduced_decoding_keeps_twice_the_size_needed():
    rules = Preprocessing(resize="shorter", size=224, reduced=True)
    assert [reduction(side, side * 2, rules) for side in (300, 895, 896, 1792, 9000)] == [1, 1, 2, 4, 8]
    assert reduction(9000, 9000, Preprocessing(resize="shorter", size=224)) == 1
    for side in range(300, 4000, 97):
        factor = reduction(side, side, rules)
        assert factor == 1 or math.ceil(side / factor) >= 2 * 224


def test_a_strip_that_would_fill_the_memory_is_refused():
    with pytest.raises(
        ValueError, match=r"1 × 40000 pixels would become 224 × 8960000, more than 268,435,456"
    ):
        prepare(np.zeros((1, 40_000, 3), np.uint8), Preprocessing(resize="shorter", size=224))
    one = prepare(np.zeros((1, 1, 3), np.uint8), Preprocessing(resize="shorter", size=24))
    assert one.shape == (24, 24, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"std": (0.2, 0.0, 0.2)},
        {"mean": (0.5, math.nan, 0.5)},
        {"std": (0.2, math.inf, 0.2)},
        {"resize": "pixels"},
        {"resize": "patches", "multiple": 16, "crop": 32},
        {"resize": "pixels", "multiple": 32, "size": 10, "least": 20},
        {"resize": "largest"},
        {"sise": 3},
    ],
)
def test_contradictions_are_refused(wrong: dict):
    with pytest.raises(ValidationError):
        Preprocessing(**wrong)
