"""Query expansion, database augmentation and score normalisation against direct computations."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ParameterError
from cairn.rerank.expansion import alpha_expanded
from cairn.search.exact import exact_search
from cairn.search.expanding import augmented, expanded, joined, normalised
from cairn.search.options import Augmentation, Expansion, Normalisation, Options
from cairn.store.descriptors import MISSING, DescriptorStore, open_shards, write_shard
from cairn.store.missing import present


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def stored(folder: Path, rows: np.ndarray, shards: int = 2) -> DescriptorStore:
    folder.mkdir(exist_ok=True)
    for number in range(shards):
        part = rows[number::shards]
        ids = [f"i{row:04d}" for row in range(number, len(rows), shards)]
        write_shard(folder / f"{number:04d}.parquet", ids, part, {"encoder": "test"})
    return open_shards(folder)


def drawn(seed: int, count: int, dim: int = 16) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((count, dim)) + 0.3).astype(np.float32)


def manifest_rows(store: DescriptorStore) -> np.ndarray:
    return np.array([int(name[1:]) for name in store.ids])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0, 5))
def test_alpha_expansion_is_the_rerankers(seed: int, count: int, alpha: float):
    query, near = drawn(seed, 1), drawn(seed + 1, count)
    found = joined(query, near[None], np.ones((1, count), bool), "alpha", alpha)[0]
    np.testing.assert_allclose(found, alpha_expanded(query[0], near, alpha), atol=2e-6)


def test_average_counts_neighbours_of_negative_similarity_too():
    query, near = drawn(0, 1), -drawn(1, 3)
    found = joined(query, near[None], np.ones((1, 3), bool), "average", 3.0)
    np.testing.assert_allclose(found, unit(query + near.sum(axis=0)), atol=1e-6)
    assert not joined(0 * query, near[None], np.ones((1, 3), bool), "average", 3.0).any()
    absent = joined(query, near[None], np.array([[True, False, False]]), "average", 3.0)
    np.testing.assert_allclose(absent, unit(query + near[:1]), atol=1e-6)


@pytest.mark.parametrize("method", ["average", "alpha"])
def test_queries_are_expanded_with_their_best_images_in_manifest_order(tmp_path: Path, method: str):
    rows, queries = drawn(2, 101), drawn(3, 5)
    store = stored(tmp_path / "gallery", rows)
    options = Expansion.model_validate({"method": method, "neighbours": 4, "alpha": 2})
    found = expanded(queries, store, manifest_rows(store), options)
    for query, vector in zip(queries, found, strict=True):
        similarity = rows @ query
        best = np.argsort(-similarity, kind="stable")[:4]
        weights = np.ones(4) if method == "average" else np.maximum(similarity[best], 0) ** 2
        expected = query + (weights[:, None] * rows[best]).sum(axis=0)
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=2e-6)


def test_the_gallery_is_augmented_with_others_not_with_itself(tmp_path: Path):
    rows = drawn(4, 60)
    rows[50:] = rows[0]  # eleven copies: the image itself may be behind its duplicates
    store = stored(tmp_path / "gallery", rows)
    options = Augmentation(method="average", neighbours=3)
    (tmp_path / "out").mkdir()
    found = augmented(store, manifest_rows(store), options, tmp_path / "gallery", tmp_path / "out")
    assert found.ids == store.ids
    assert found.dtype == store.dtype
    array = found.array()
    for row, name in enumerate(found.ids):
        own = int(name[1:])
        similarity = rows @ rows[own]
        similarity[own] = -2
        best = np.argsort(-similarity, kind="stable")[:3]
        expected = rows[own] + rows[best].sum(axis=0)
        np.testing.assert_allclose(array[row], expected / np.linalg.norm(expected), atol=2e-6)


def with_missing(folder: Path, rows: np.ndarray, missing: list[int], shards: int = 2) -> DescriptorStore:
    """`rows`, of which some could not be decoded."""
    rows = rows.copy()
    rows[missing] = 0
    for number in range(shards):
        places = range(number, len(rows), shards)
        own = {f"i{row:04d}": "truncated" for row in places if row in missing}
        about = {"encoder": "test"} | ({MISSING: json.dumps(own)} if own else {})
        write_shard(folder / f"{number:04d}.parquet", [f"i{row:04d}" for row in places], rows[places], about)
    return open_shards(folder)


@pytest.mark.parametrize("method", ["average", "alpha"])
def test_missing_images_are_no_neighbours_and_are_not_augmented(tmp_path: Path, method: str):
    # The first image is like no other, so that zeros would be the nearest to it.
    rows = unit(np.random.default_rng(9).standard_normal((12, 6)) + 2).astype(np.float32)
    rows[0] *= -1
    gone, kept = [4, 7], [0, 1, 2, 3, 5, 6, 8, 9, 10, 11]
    folders = [tmp_path / name for name in ("all", "less", "out", "out-less")]
    for folder in folders:
        folder.mkdir()
    store, less = with_missing(folders[0], rows, gone), with_missing(folders[1], rows[kept], [])
    numbers, missing = manifest_rows(store), store.missing_rows()
    assert [store.ids[row] for row in missing] == ["i0004", "i0007"]
    expansion = Expansion.model_validate({"method": method, "neighbours": 3})
    queries = np.concatenate([rows[:1], rows[5:7]])
    np.testing.assert_array_equal(
        expanded(queries, store, numbers, expansion, missing),
        expanded(queries, less, manifest_rows(less), expansion),
    )
    augmentation = Augmentation.model_validate({"method": method, "neighbours": 3})
    found = augmented(store, numbers, augmentation, folders[0], folders[2])
    alone = augmented(less, manifest_rows(less), augmentation, folders[1], folders[3])
    assert found.missing == store.missing
    assert not found.take(found.missing_rows()).any()
    np.testing.assert_array_equal(
        found.take(found.rows_of([f"i{row:04d}" for row in kept])),
        alone.take(alone.rows_of([f"i{row:04d}" for row in range(len(kept))])),
    )


def test_where_all_others_are_missing_nothing_is_joined(tmp_path: Path):
    rows = drawn(5, 4)
    (tmp_path / "out").mkdir()
    store = with_missing(tmp_path, rows, [1, 2, 3])
    query = drawn(6, 1)
    found = expanded(query, store, manifest_rows(store), Expansion(method="average"), store.missing_rows())
    np.testing.assert_allclose(found, unit(query + rows[:1]), atol=1e-6)
    array = augmented(store, manifest_rows(store), Augmentation(), tmp_path, tmp_path / "out").array()
    np.testing.assert_allclose(array[store.row_of["i0000"]], rows[0], atol=1e-6)


def test_more_neighbours_than_images_take_all_there_are(tmp_path: Path):
    rows = drawn(5, 3)
    store = stored(tmp_path / "gallery", rows, 1)
    found = expanded(rows[:1], store, manifest_rows(store), Expansion(method="average", neighbours=10))
    np.testing.assert_allclose(found, unit(rows[:1] + rows.sum(axis=0)), atol=1e-6)
    (tmp_path / "out").mkdir()
    array = augmented(
        store,
        manifest_rows(store),
        Augmentation(method="average", neighbours=10),
        tmp_path / "gallery",
        tmp_path / "out",
    ).array()
    np.testing.assert_allclose(array, unit(np.repeat(rows.sum(axis=0)[None], 3, axis=0)), atol=1e-6)


def test_normalised_scores_are_discs_and_leave_ranks_alone(tmp_path: Path):
    rows, queries, training = drawn(6, 40), drawn(7, 3), drawn(8, 25)
    store = stored(tmp_path / "gallery", rows)
    judged = [np.array([1, 4])] * 3
    found = exact_search(queries, store, manifest_rows(store), 10, judged)
    background = stored(tmp_path / "training", training)
    options = Normalisation(neighbours=2, factor=0.5)
    changed = normalised(found, queries, background, lambda block: block, options)
    for query, before, after in zip(queries, found, changed, strict=True):
        second = np.sort(training @ query)[-2]
        np.testing.assert_allclose(after.scores, before.scores - 0.5 * second, atol=1e-6)
        np.testing.assert_allclose(after.judged_scores, before.judged_scores - 0.5 * second, atol=1e-6)
        np.testing.assert_array_equal(after.rows, before.rows)
        np.testing.assert_array_equal(after.judged_ranks, before.judged_ranks)
    with pytest.raises(ParameterError, match="there are 25 training images"):
        normalised(found, queries, background, lambda block: block, Normalisation(neighbours=26))
    missing = tmp_path / "missing"
    missing.mkdir()
    less = present(with_missing(missing, np.concatenate([training, training[:5]]), [*range(25, 30)]))
    for before, after in zip(changed, normalised(found, queries, less, np.asarray, options), strict=True):
        np.testing.assert_array_equal(before.scores, after.scores)
    with pytest.raises(ParameterError, match="there are 25 training images"):
        normalised(found, queries, less, np.asarray, Normalisation(neighbours=26))


def test_every_option_is_in_the_name():
    assert Options().slug == ""
    options = Options(
        augmentation=Augmentation(method="average", neighbours=5),
        expansion=Expansion(neighbours=7, alpha=2.5),
        normalisation=Normalisation(),
    )
    assert options.slug == "dba-n5-alphaqe-n7-a2.5-norm-n1-f1"
    assert Options(expansion=Expansion(method="average")).slug == "aqe-n10"
