"""Read-outs against numpy's own words: truncation, centring, whitening, what they refuse."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import InputError, ParameterError
from cairn.readout import ReadoutParameters
from cairn.readout.transform import Transform, learn_transform


class Rows:
    """Descriptors in memory, in blocks of 7 rows."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dim(self) -> int:
        return self.array.shape[1]

    def __len__(self) -> int:
        return len(self.array)

    def blocks(self):
        return iter([self.array[start : start + 7] for start in range(0, len(self.array), 7)])

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.array[rows]


def drawn(seed: int, count: int, dim: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((count, dim)) * np.linspace(1, 3, dim) + 0.5
    return l2(rows).astype(np.float16)


def l2(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def learned(gallery: np.ndarray, training: np.ndarray | None = None, **parameters: Any) -> Transform:
    source = None if training is None else Rows(training)
    checked = ReadoutParameters.model_validate(parameters)
    return learn_transform(checked, gallery.shape[1], source, Rows(gallery))


def test_truncation_keeps_the_first_numbers_and_normalises():
    rows = drawn(0, 9, 12)
    expected = l2(rows.astype(np.float64)[:, :5])
    np.testing.assert_allclose(learned(rows, dimension=5)(rows), expected, atol=2e-7)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["gallery", "training"]), st.sampled_from([None, 3, 8]))
def test_centring_subtracts_the_mean_of_its_source(seed: int, source: str, dimension: int | None):
    gallery, training = drawn(seed, 30, 8), drawn(seed + 1, 19, 8)
    gallery[3] = 0
    training[5] = 0
    whose = (gallery if source == "gallery" else training).astype(np.float64)
    mean = l2(whose[whose.any(axis=1)][:, :dimension]).mean(axis=0)
    expected = l2(l2(gallery.astype(np.float64)[:, :dimension]) - mean)
    expected[3] = 0
    found = learned(gallery, training, centre=source, dimension=dimension)(gallery)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert found.dtype == np.float32


@pytest.mark.parametrize(("count", "dim"), [(200, 6), (12, 20)])
def test_whitening_makes_its_source_white(count: int, dim: int):
    rows = drawn(3, count, dim)
    transform = learned(rows, rows, whiten={"source": "training"})
    assert transform.mean is not None
    assert transform.projection is not None
    kept = min(count - 1, dim)
    assert transform.projection.shape == (dim, kept)
    projected = (l2(rows.astype(np.float64)) - transform.mean) @ transform.projection
    np.testing.assert_allclose(projected.T @ projected / count, np.eye(kept), atol=2e-3)
    np.testing.assert_allclose(transform(rows), l2(projected), atol=1e-4)


def test_whitening_agrees_with_the_eigenvectors_of_the_covariance():
    training, gallery = drawn(4, 300, 5), drawn(5, 40, 5)
    found = learned(gallery, training, whiten={"dimension": 3, "strength": 0.5})(gallery)
    rows = l2(training.astype(np.float64))
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    values, vectors = values[::-1][:3], vectors[:, ::-1][:, :3]
    expected = l2((l2(gallery.astype(np.float64)) - rows.mean(axis=0)) @ (vectors / values**0.25))
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-4)  # a component's sign is free


def test_whitening_learns_from_evenly_spaced_images_where_there_are_too_many():
    rows = drawn(6, 100, 4)
    few = learned(rows, rows, whiten={"images": 25})
    same = learned(rows[::4], rows[::4], whiten={})
    np.testing.assert_array_equal(few.projection, same.projection)  # type: ignore[arg-type]


def test_nothing_asked_for_is_the_identity_even_of_rows_that_are_no_unit_vectors():
    rows = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    transform = learned(rows)
    assert transform.identity
    np.testing.assert_array_equal(transform(rows), rows)


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"dimension": 9}, ParameterError, "readout.dimension = 9: descriptors have 8"),
        ({"centre": "training"}, InputError, "no training descriptors"),
        ({"whiten": {"source": "gallery", "dimension": 8}}, ParameterError, "at most 5"),
    ],
)
def test_what_cannot_be_learned_is_refused(parameters: dict[str, Any], error: type, words: str):
    with pytest.raises(error, match=words):
        learned(drawn(0, 6, 8), **parameters)


def test_training_descriptors_of_another_dimension_are_refused():
    with pytest.raises(InputError, match="training descriptors have 7 numbers, the gallery's 8"):
        learned(drawn(0, 6, 8), drawn(1, 6, 7), centre="training")


def test_a_mean_of_images_without_features_is_refused():
    with pytest.raises(InputError, match="without features"):
        learned(np.zeros((4, 8), np.float16), centre="gallery")


def test_names_say_what_was_done_and_marks_what_was_learned_on_the_gallery():
    def slug(**parameters: Any) -> tuple[str, str]:
        checked = ReadoutParameters.model_validate(parameters)
        return checked.slug, checked.mark

    assert slug() == ("plain", "")
    assert slug(dimension=1024, centre="gallery") == ("dim1024-centred.gallery", "centred.gallery")
    assert slug(centre="training") == ("centred.training", "")
    whiten = {"source": "gallery", "dimension": 256, "strength": 0.5}
    assert slug(whiten=whiten) == ("whitened.gallery-d256-w0.5", "whitened.gallery")
    with pytest.raises(ValueError, match="leave centre out"):
        slug(centre="gallery", whiten={})


def test_whitening_can_be_switched_on():
    assert ReadoutParameters(whiten=True) == ReadoutParameters(whiten={"source": "training"})  # type: ignore[arg-type]
    assert ReadoutParameters(whiten=False).identity  # type: ignore[arg-type]
