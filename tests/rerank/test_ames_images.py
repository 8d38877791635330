"""Preprocessing and selection of AMES's local descriptors, after the authors' rules."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ImageError, InputError
from cairn.rerank.ames_images import (
    crop,
    feature_rows,
    grid_positions,
    positions_as_published,
    positions_in_image,
    prepare_image,
    select_descriptors,
)
from cairn.rerank.checkpoints import Detector, load_detector, save_state


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def test_scale_is_of_the_whole_image_and_each_side_is_quantised_apart():
    image = picture(300, 400)
    assert prepare_image(image, "a", longest=280).shape == (3, 210, 280)
    # Scale 0.7: the crop of 100 x 130 becomes 70 x 91 before quantisation, 5 x 6.5 -> 5 x 6 patches (even).
    assert prepare_image(image, "a", (20, 30, 150, 130), longest=280).shape == (3, 70, 84)
    # 33 columns scale to 23.1, 1.65 patches: two; 3 rows scale to 2.1: one patch at least.
    assert prepare_image(image, "a", (0, 0, 33, 3), longest=280).shape == (3, 14, 28)


@given(st.integers(20, 90), st.integers(20, 90), st.integers(14, 120))
@settings(max_examples=25, deadline=None)
def test_sides_are_multiples_of_the_patch_nearest_to_the_scaled_side(height: int, width: int, longest: int):
    prepared = prepare_image(picture(height, width), "a", longest=longest)
    for side, made in zip((height, width), prepared.shape[1:], strict=True):
        assert made % 14 == 0 and made >= 14
        assert abs(made - max(14, side * longest / max(height, width))) <= 7.001


def test_interpolation_colour_and_order_of_channels():
    image = picture(56, 84)
    smaller = cv2.resize(image, (42, 28), interpolation=cv2.INTER_AREA)
    larger = cv2.resize(image, (168, 112), interpolation=cv2.INTER_LINEAR)
    rgb_mean, rgb_deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for resized, longest in ((smaller, 42), (larger, 168), (image, 84)):
        expected = (resized[:, :, ::-1] / 255 - rgb_mean) / rgb_deviation
        prepared = prepare_image(image, "a", longest=longest)
        assert prepared.dtype == np.float32 and prepared.flags.c_contiguous
        np.testing.assert_allclose(prepared, expected.transpose(2, 0, 1), atol=2e-6)


def test_boxes_are_cut_towards_zero_and_empty_ones_named():
    image = picture(10, 20)
    np.testing.assert_array_equal(crop(image, "a", (2.9, 1.9, 7.9, 5.9)), image[1:5, 2:7])
    np.testing.assert_array_equal(crop(image, "a", (-3.0, 0, 99, 99)), image)
    with pytest.raises(ImageError, match=r"image a: the query box .* covers no pixel of 20 x 10"):
        crop(image, "a", (5, 5, 5.5, 9))


def test_grid_is_row_by_row():
    np.testing.assert_allclose(
        grid_positions(28, 42), [[r, c] for r in (0.25, 0.75) for c in (1 / 6, 0.5, 5 / 6)], atol=1e-7
    )


def test_positions_of_queries():
    crop_positions = np.array([[0.5, 0.25]], np.float32)
    box = (10.0, 20.0, 50.0, 120.0)
    np.testing.assert_allclose(positions_in_image(crop_positions, box, 200, 400), [[70 / 400, 20 / 200]])
    # The published files swap the axes of the box.
    np.testing.assert_allclose(positions_as_published(crop_positions, box, 200, 400), [[30 / 200, 45 / 400]])


def test_without_a_detector_tokens_are_weighted_by_their_norm():
    tokens = np.diag([3.0, 1.0, 2.0, 5.0, 4.0, 0.5]).astype(np.float32)
    found = select_descriptors(tokens, (28, 42), "a", top=4)
    np.testing.assert_allclose(found.weights, [5, 4, 3, 2])
    np.testing.assert_array_equal(found.descriptors, tokens[[3, 4, 0, 2]])
    np.testing.assert_allclose(found.positions, grid_positions(28, 42)[[3, 4, 0, 2]])
    rows = feature_rows(found, 6)
    assert rows.shape == (6, 11)
    np.testing.assert_array_equal(rows[:, 3], [0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(rows[:4, 5:], found.descriptors)
    np.testing.assert_array_equal(rows[4:, [0, 1, 2, 4]], 0)


def test_detector(tmp_path: Path):
    torch.manual_seed(0)
    detector = Detector(5).eval()
    with torch.no_grad():
        detector.bn.running_mean.copy_(torch.randn(5))
        detector.bn.running_var.copy_(torch.rand(5) + 0.5)
        detector.bn.weight.copy_(torch.randn(5))
        detector.bn.bias.copy_(torch.randn(5))
    save_state(detector, tmp_path / "detector.pt")
    loaded = load_detector(tmp_path / "detector.pt")
    tokens = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    found = select_descriptors(tokens, (28, 42), "a", loaded, top=6)

    state = {key: value.double().numpy() for key, value in detector.state_dict().items()}
    x = tokens @ state["conv1.weight"][:, :, 0, 0].T + state["conv1.bias"]
    scale = state["bn.weight"] / np.sqrt(state["bn.running_var"] + 1e-5)
    x = (x - state["bn.running_mean"]) * scale + state["bn.bias"]
    score = np.maximum(x, 0) @ state["conv2.weight"][0, :, 0, 0] + state["conv2.bias"]
    weights, order = np.log1p(np.exp(score)), np.argsort(-score)
    np.testing.assert_allclose(found.weights, weights[order], rtol=1e-5)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(found.descriptors, unit[order], atol=1e-6)
    with pytest.raises(InputError, match="image a: patch tokens of 4 dimensions; the detector takes 5"):
        select_descriptors(tokens[:, :4], (28, 42), "a", loaded)


def test_tokens_that_do_not_fit_the_image_are_named():
    with pytest.raises(InputError, match=r"image a: \(5, 3\) patch tokens .* expected 6"):
        select_descriptors(np.ones((5, 3), np.float32), (28, 42), "a")
