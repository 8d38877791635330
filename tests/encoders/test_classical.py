"""RootSIFT, VLAD, PCA and the colour histogram against values computed by hand or otherwise."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cairn.encoders import load_encoder
from cairn.encoders.large_vocabulary import BLOCK, WORDS, learn_many_words, nearest_words
from cairn.encoders.pca import learn_pca, project
from cairn.encoders.rootsift import RootSift, root
from cairn.encoders.vlad import learn_words, nearest, unit, vlad
from cairn.errors import InputError, ParameterError
from cairn.store.local import LocalFeatures


def picture(seed: int, height: int = 120, width: int = 160) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8), np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


def local(descriptors: np.ndarray) -> LocalFeatures:
    count = len(descriptors)
    return LocalFeatures(
        np.zeros((count, 2), np.float32), np.ones(count, np.float32), np.ones(count, np.float32), descriptors
    )


def test_root_by_hand():
    descriptors = np.zeros((2, 128), np.uint8)
    descriptors[0, :3] = (9, 16, 0)
    assert np.allclose(root(descriptors)[0, :3], [np.sqrt(9 / 25), np.sqrt(16 / 25), 0])
    assert (root(descriptors)[1] == 0).all()
    assert root(descriptors).dtype == np.float32


@given(arrays.arrays(np.uint8, (3, 128)))
def test_root_has_norm_one_and_dot_products_are_hellinger(descriptors: np.ndarray):
    rooted = root(descriptors).astype(np.float64)
    sums = descriptors.sum(axis=1, dtype=np.float64)
    assert np.allclose(np.linalg.norm(rooted, axis=1), sums > 0, atol=1e-6)
    shares = descriptors / np.where(sums, sums, 1)[:, None]
    hellinger = np.sqrt(shares[:, None] * shares[None]).sum(axis=2)
    assert np.allclose(rooted @ rooted.T, hellinger, atol=1e-5)


def test_features_are_opencvs_strongest_in_a_fixed_order():
    image = picture(0)
    everything = RootSift(10_000, None, 0.02)(image)
    some = RootSift(40, None, 0.02)(image)
    assert len(everything) > 60 and len(some) == 40
    assert (np.diff(everything.weights) <= 0).all()
    for name in ("positions", "scales", "weights", "descriptors"):
        assert np.array_equal(getattr(some, name), getattr(everything, name)[:40])
    points, descriptors = cv2.SIFT_create(contrastThreshold=0.02).detectAndCompute(image, None)
    theirs = sorted((*p.pt, p.size, *map(float, d)) for p, d in zip(points, descriptors, strict=True))
    ours = sorted(
        (*map(float, p), float(s), *map(float, d))
        for p, s, d in zip(everything.positions, everything.scales, everything.descriptors, strict=True)
    )
    assert np.allclose(ours, theirs)
    assert everything.descriptors.dtype == np.uint8


def test_a_large_image_is_reduced_by_area_and_positions_are_those_of_the_reduced_one():
    image = picture(1, 240, 320)
    reduced = cv2.resize(image, (160, 120), interpolation=cv2.INTER_AREA)
    one, other = RootSift(100, 160, 0.02)(image), RootSift(100, None, 0.02)(reduced)
    assert np.array_equal(one.positions, other.positions)
    assert np.array_equal(one.descriptors, other.descriptors)


@pytest.mark.parametrize("shape", [(1, 1), (1, 400), (3, 2), (64, 64)])
def test_an_image_without_features_gives_none(shape: tuple[int, int]):
    found = RootSift(100, 64, 0.02)(np.full(shape, 200, np.uint8))
    assert len(found) == 0 and found.descriptors.shape == (0, 128) and found.positions.shape == (0, 2)


def test_vlad_by_hand():
    words = np.array([[0, 0], [10, 0]], np.float32)
    descriptors = np.array([[3, 4], [0, 1], [10, 2]], np.float32)
    # Word 0 gets (3, 4) + (0, 1) = (3, 5), word 1 gets (0, 2); the whole has norm √(9 + 25 + 4) = √38.
    plain = vlad(descriptors, words, power=1, intra=False, residuals=False)
    assert np.allclose(plain, np.array([3, 5, 0, 2]) / np.sqrt(38))
    # Normalised residuals: (0.6, 0.8) + (0, 1) = (0.6, 1.8) and (0, 1).
    normalised = vlad(descriptors, words, power=1, intra=False, residuals=True)
    assert np.allclose(normalised, np.array([0.6, 1.8, 0, 1]) / np.sqrt(0.36 + 3.24 + 1))
    # Intra: each word's part has norm 1 before the whole is normalised.
    intra = vlad(descriptors, words, power=1, intra=True, residuals=False)
    assert np.allclose(intra, np.array([3 / np.sqrt(34), 5 / np.sqrt(34), 0, 1]) / np.sqrt(2))
    # Power 0.5 keeps signs: residual (-4, 1) gives (-2, 1) / √5.
    negative = vlad(np.array([[-4, 1]], np.float32), words, power=0.5, intra=False, residuals=False)
    assert np.allclose(negative, np.array([-2, 1, 0, 0]) / np.sqrt(5))


def test_vlad_of_nothing_is_zero_and_of_a_word_itself_too():
    words = np.eye(4, dtype=np.float32)
    assert not vlad(np.zeros((0, 4), np.float32), words).any()
    assert not vlad(words[:1], words).any()


@settings(deadline=None)
@given(arrays.arrays(np.uint8, (7, 128)), st.permutations(range(7)))
def test_vlad_has_norm_one_and_does_not_depend_on_order(descriptors: np.ndarray, order: list[int]):
    words = root(np.random.default_rng(0).integers(0, 256, (3, 128)).astype(np.uint8))
    one = vlad(root(descriptors), words)
    assert np.isclose(np.linalg.norm(one), 1, atol=1e-5)
    assert np.allclose(one, vlad(root(descriptors[order]), words), atol=2e-3)


def test_nearest_takes_the_first_of_equally_near_words():
    words = np.array([[1, 0], [-1, 0], [1, 0]], np.float32)
    assert nearest(np.array([[0, 1], [2, 0], [-3, 0]], np.float32), words).tolist() == [0, 0, 1]


def test_words_are_the_centres_of_clusters_and_the_same_each_time():
    generator = np.random.default_rng(0)
    centres = np.array([[0, 0], [8, 0], [0, 8]], np.float32)
    points = np.repeat(centres, 50, axis=0) + generator.normal(0, 0.1, (150, 2)).astype(np.float32)
    words = learn_words(points, 3, iterations=10, seed=0)
    assert sorted(words.round().tolist()) == sorted(centres.tolist())
    assert np.array_equal(words, learn_words(points, 3, iterations=10, seed=0))


@pytest.mark.parametrize("words", [1, 30, WORDS + 40])
def test_many_words_are_compared_in_blocks_as_all_at_once(words: int):
    generator = np.random.default_rng(1)
    vocabulary = generator.integers(0, 3, (words, 8)).astype(
        np.float32
    )  # small whole numbers: exact, with ties
    descriptors = generator.integers(0, 3, (BLOCK + 70, 8)).astype(np.float32)
    expected = nearest(descriptors, vocabulary)
    assert np.array_equal(nearest_words(descriptors, vocabulary), expected)
    if words > WORDS:
        assert len(np.unique(vocabulary, axis=0)) < words, "or there is no tie"
    assert nearest_words(descriptors[:0], vocabulary).shape == (0,)


def test_many_words_are_centres_of_clusters_whatever_the_number_of_threads(
    capsys: pytest.CaptureFixture[str],
):
    generator = np.random.default_rng(0)
    centres = generator.normal(0, 10, (60, 4)).astype(np.float32)
    points = np.repeat(centres, 50, axis=0) + generator.normal(0, 0.1, (3000, 4)).astype(np.float32)
    words = learn_many_words(points, 200, iterations=10, seed=0, threads=1)
    assert words.shape == (200, 4) and words.dtype == np.float32
    distance = np.linalg.norm(points - words[nearest_words(points, words)], axis=1)
    by_faiss = learn_words(points, 200, iterations=10, seed=0)
    assert distance.mean() < 1.1 * np.linalg.norm(points - by_faiss[nearest(points, by_faiss)], axis=1).mean()
    assert np.array_equal(words, learn_many_words(points, 200, iterations=10, seed=0, threads=3))
    assert not np.array_equal(words, learn_many_words(points, 200, iterations=10, seed=1, threads=3))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("count", "dim"), [(40, 6), (6, 40)])
def test_pca_against_the_singular_value_decomposition(count: int, dim: int):
    generator = np.random.default_rng(0)
    data = (generator.normal(size=(count, dim)) * np.linspace(3, 0.3, dim)).astype(np.float32)
    mean, rotation = learn_pca(data, 4, 0.0)
    _, values, right = np.linalg.svd(data - data.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(right[:4] @ rotation), np.eye(4), atol=1e-4)
    _, whitening = learn_pca(data, 4, 1.0)
    deviations = ((data - mean) @ whitening).std(axis=0)
    assert np.allclose(deviations, 1, atol=1e-3)
    projected = project(data, mean, rotation)
    assert projected.shape == (count, 4) and np.allclose(np.linalg.norm(projected, axis=1), 1, atol=1e-5)
    assert not project(np.zeros((1, dim), np.float32), mean, rotation).any()
    assert values[0] > values[3]


def test_pca_refuses_more_dimensions_than_images_tell():
    with pytest.raises(ParameterError, match=r"pca\.dimension = 6.*at most 5"):
        learn_pca(np.eye(6, 9, dtype=np.float32), 6, 0.0)


def test_histogram_by_hand():
    encoder = load_encoder("colour-histogram", {"bins": {"hue": 2, "saturation": 1, "value": 2}})
    image = np.zeros((2, 2, 3), np.uint8)
    image[0] = (255, 255, 255)  # white: hue 0, value 255; the other row is black: hue 0, value 0
    assert np.allclose(encoder.describe([encoder.prepare(image)], {}), [[np.sqrt(0.5), np.sqrt(0.5), 0, 0]])
    image[0, 0] = (255, 0, 0)  # blue: hue 120 of 180, in the upper half
    assert np.allclose(encoder.prepare(image), [np.sqrt(0.5), np.sqrt(0.25), 0, np.sqrt(0.25)])


def test_a_vocabulary_is_learned_and_describes():
    parameters = {
        "local": {"limit": 80},
        "vocabulary": {"words": 4, "dimension": 16, "sample": 500, "images": 5},
    }
    encoder = load_encoder("rootsift-vlad", parameters)
    images = [encoder.prepare(picture(seed)) for seed in range(8)]
    learned = encoder.learn(lambda: iter(images), len(images))
    assert learned["words"].shape == (4, 16) and learned["components"].shape == (128, 16)
    again = encoder.learn(lambda: iter(images), len(images))
    assert all(np.array_equal(learned[name], again[name]) for name in learned)
    rows = encoder.describe([*images, local(np.zeros((0, 128), np.uint8))], learned)
    assert rows.shape == (9, 64) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), [*[1] * 8, 0], atol=1e-5)
    reduced = load_encoder("rootsift-vlad", parameters | {"pca": {"dimension": 3, "whiten": 0.5}})
    learned = reduced.learn(lambda: iter(images), len(images))
    assert reduced.describe(images, learned).shape == (8, 3)
    assert not reduced.describe([local(np.zeros((0, 128), np.uint8))], learned).any()


def test_too_few_features_for_the_words_is_told():
    encoder = load_encoder("rootsift-vlad", {"vocabulary": {"words": 64}})
    with pytest.raises(
        InputError, match="64 words of 64 dimensions needs 65 features; the 2 training images gave 0"
    ):
        encoder.learn(lambda: iter([local(np.zeros((0, 128), np.uint8))] * 2), 2)


def test_unit_keeps_zero_rows():
    assert unit(np.array([[3, 4], [0, 0]], np.float32)).tolist() == [
        [np.float32(0.6), np.float32(0.8)],
        [0, 0],
    ]
