"""Sharding: every image has one place, shards are even, and a new image touches one of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.store.shards import assign_shards, shard_count, shard_name, shard_of


def test_counts_never_fall_and_grow_by_one() -> None:
    counts = np.array([shard_count(images) for images in range(300_000)])
    assert counts[0] == 1 and set(np.diff(counts)) <= {0, 1}


@pytest.mark.parametrize(
    ("images", "count"),
    [(0, 1), (511, 1), (512, 2), (4096, 16), (262_144, 16), (1_005_994, 62), (10**8, 6104)],
)
def test_counts(images: int, count: int) -> None:
    assert shard_count(images) == count


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20), st.integers(1, 10_000))
def test_one_more_shard_takes_from_one_other(image_id: str, count: int) -> None:
    before, after = shard_of(image_id, count), shard_of(image_id, count + 1)
    assert 0 <= before < count
    split = count - (1 << (count.bit_length() - 1))
    assert after == before or (after == count and before == split)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1200), st.integers(0, 10**9))
def test_a_new_image_touches_its_shard_and_at_most_the_one_that_is_split(images: int, seed: int) -> None:
    ids = [f"{seed}/{n}.jpg" for n in range(images + 1)]
    before = [[ids[position] for position in shard] for shard in assign_shards(ids[:-1])]
    after = [[ids[position] for position in shard] for shard in assign_shards(ids)]
    if len(before) == len(after):
        home = shard_of(ids[-1], len(after))
        changed = [shard for shard in range(len(after)) if before[shard] != after[shard]]
        assert changed == [home] and after[home] == [*before[home], ids[-1]]
    else:
        changed = [shard for shard in range(len(before)) if before[shard] != after[shard]]
        assert len(after) == len(before) + 1 and len(changed) <= 2


def test_every_image_is_somewhere_and_sizes_are_even() -> None:
    ids = [f"photos/{n:06d}.jpg" for n in range(20_000)]
    shards = assign_shards(ids)
    assert sorted(position for shard in shards for position in shard) == list(range(20_000))
    assert all(shard == sorted(shard) for shard in shards)
    sizes = [len(shard) for shard in shards]
    assert len(sizes) == 16 and max(sizes) < 1.15 * min(sizes)


def test_assignment_does_not_depend_on_the_process() -> None:
    assert [shard_of(name, 16) for name in ("a.jpg", "ü.jpg", "")] == [10, 11, 4]


def test_names_sort() -> None:
    assert [shard_name(n) for n in (0, 61, 12_345)] == ["0000.parquet", "0061.parquet", "12345.parquet"]
