"""The inverted file against dense products; sparse files against what was written, and damage."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError
from cairn.search.inverted import build_inverted, inverted_search, read_inverted, write_inverted
from cairn.store.sparse import Bags, bags_of, read_bags, sparse_shards, write_bags

DIM = 30


def dense(seed: int, count: int, full: float = 0.2) -> np.ndarray:
    generator = np.random.default_rng(seed)
    # Few values, so that many scores tie.
    rows = generator.integers(1, 3, (count, DIM)) * (generator.random((count, DIM)) < full)
    rows[count // 2] = 0
    return rows.astype(np.float32)


def bags(rows: np.ndarray, prefix: str = "i", numbers: np.ndarray | None = None) -> Bags:
    numbers = np.arange(len(rows)) if numbers is None else numbers
    return bags_of([f"{prefix}{number:03d}" for number in numbers], iter(rows), DIM)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(0, 70))
def test_ranks_and_scores_are_those_of_all_products(seed: int, count: int, top: int):
    rows, queries = dense(seed, count), dense(seed + 1, 4, 0.5)
    order = np.random.default_rng(seed).permutation(count)
    row_of = {f"i{number:03d}": number for number in range(count)}
    shards = [
        bags(rows[part], numbers=part) for part in (order[: count // 2], order[count // 2 :]) if len(part)
    ]
    index = build_inverted(shards, row_of, DIM)
    asked = bags(queries, "q")
    judged = [np.arange(0, count, 3)] * 4
    found = inverted_search([asked.bag(row) for row in range(4)], index, top, judged)
    for query, one in zip(queries, found, strict=True):
        scores = rows @ query
        expected = np.lexsort((np.arange(count), -scores))
        np.testing.assert_array_equal(one.rows, expected[:top])
        np.testing.assert_array_equal(one.scores, scores[expected[:top]])
        ranks = np.argsort(expected)
        np.testing.assert_array_equal(one.judged_ranks, ranks[judged[0]])
        np.testing.assert_array_equal(one.judged_scores, scores[judged[0]])


def test_what_is_written_is_read_and_the_same_bytes_twice(tmp_path: Path):
    rows = dense(3, 20)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_bags(tmp_path / name / "sparse-0000.parquet", bags(rows), {"encoder": "test"})
    path = tmp_path / "a" / "sparse-0000.parquet"
    assert path.read_bytes() == (tmp_path / "b" / "sparse-0000.parquet").read_bytes()
    read = read_bags(path)
    restored = np.zeros_like(rows)
    for row in range(len(read)):
        words, weights = read.bag(row)
        restored[row, words] = weights
    np.testing.assert_array_equal(restored, rows)
    row_of = {one: row for row, one in enumerate(read.ids)}
    index = build_inverted(sparse_shards(tmp_path / "a"), row_of, DIM)
    write_inverted(index, tmp_path / "inverted.parquet")
    again = read_inverted(tmp_path / "inverted.parquet")
    assert (again.images, again.words) == (20, DIM)
    for name in ("start", "rows", "weights"):
        np.testing.assert_array_equal(getattr(again, name), getattr(index, name))


def test_images_without_descriptor_and_descriptors_without_image_are_named():
    rows = dense(4, 3)
    with pytest.raises(ArtifactError, match="no descriptor for i009"):
        build_inverted([bags(rows)], {"i000": 0, "i001": 1, "i002": 2, "i009": 3}, DIM)
    with pytest.raises(ArtifactError, match="i002 has a descriptor but is not in the gallery"):
        build_inverted([bags(rows)], {"i000": 0, "i001": 1}, DIM)


def test_damaged_sparse_files_are_refused(tmp_path: Path):
    path = tmp_path / "sparse-0000.parquet"
    write_bags(path, bags(dense(5, 6)), {})
    table = pq.read_table(path)
    words = table.column("word").to_pylist()
    words[0] = [DIM, *words[0][1:]]
    broken = table.set_column(1, table.schema.field("word"), pa.array(words, pa.large_list(pa.int32())))
    pq.write_table(broken, path)
    with pytest.raises(ArtifactError, match="out of range"):
        read_bags(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match=r"sparse-0000\.parquet: not a readable Parquet file"):
        read_bags(path)


def test_a_weight_that_is_not_finite_is_named(tmp_path: Path):
    rows = dense(6, 4)
    rows[3, 2] = np.inf
    with pytest.raises(ArtifactError, match="the descriptor of i003"):
        write_bags(tmp_path / "sparse-0000.parquet", bags(rows), {})
