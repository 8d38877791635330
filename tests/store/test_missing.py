"""A store without its missing images, and what a ranking says of them."""

import json
from pathlib import Path

import numpy as np

from cairn.store.descriptors import MISSING, open_shards, write_shard
from cairn.store.missing import Present, absence, present, read_absence


def test_a_store_without_its_missing_images(tmp_path: Path):
    rows = np.random.default_rng(0).standard_normal((20_000, 3)).astype(np.float16)
    gone = [0, 8191, 8192, 9000, *range(16_384, 20_000)]  # the whole last block among them
    rows[gone] = 0
    names = [f"i{row:05d}" for row in range(len(rows))]
    missing = {MISSING: json.dumps({names[row]: "truncated" for row in gone})}
    write_shard(tmp_path / "0000.parquet", names, rows, missing)
    write_shard(tmp_path / "0001.parquet", ["j"], rows[1:2], {})
    left = present(open_shards(tmp_path))
    assert isinstance(left, Present)
    kept = np.delete(np.arange(len(rows)), gone)
    assert left.ids == [*(names[row] for row in kept), "j"]
    assert (len(left), left.dim) == (len(kept) + 1, 3)
    whole = np.concatenate([rows[kept], rows[1:2]])
    np.testing.assert_array_equal(np.concatenate(list(left.blocks())), whole)
    np.testing.assert_array_equal(left.take(np.array([len(kept), 5, 0])), whole[[len(kept), 5, 0]])


def test_a_store_that_lacks_nothing_is_itself(tmp_path: Path):
    write_shard(tmp_path / "0000.parquet", ["a", "b"], np.zeros((2, 3), np.float16), {})
    store = open_shards(tmp_path)
    assert present(store) is store


def test_what_a_ranking_says_is_read_back():
    assert absence(0, []) == {} and read_absence(None) == (0, frozenset())
    for images, queries in ((3, []), (0, ["q"]), (2, ["q\u00e9", "r"])):
        written = {key.encode(): value.encode() for key, value in absence(images, queries).items()}
        assert read_absence({**written, b"stage": b"global"}) == (images, frozenset(queries))
