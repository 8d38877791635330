"""Global descriptors: bit-exact, mapped only where right, readable by others, refused when damaged."""

import os
import pickle
import resource
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError, CairnError
from cairn.store.descriptors import ROWS_PER_GROUP, open_queries, open_shards, write_shard
from cairn.store.footer import codecs_are_known
from cairn.store.shards import assign_shards, shard_name

METADATA = {"model": "tower", "revision": "abc123"}


def vectors(rows: int, dim: int, dtype=np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(dtype)


def names(rows: int) -> list[str]:
    return [f"photos/{n:06d}.jpg" for n in range(rows)]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40)
    | st.sampled_from([ROWS_PER_GROUP - 1, ROWS_PER_GROUP, ROWS_PER_GROUP + 1, 20_000]),
    dim=st.integers(1, 17) | st.sampled_from([63, 64, 128]),
    dtype=st.sampled_from([np.float16, np.float32]),
)
def test_round_trip_is_mapped_and_bit_exact(rows: int, dim: int, dtype, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("descriptors")
    array = vectors(rows, dim, dtype)
    write_shard(folder / "0000.parquet", names(rows), array, METADATA)
    store = open_shards(folder)
    assert store.mapped and store.dtype == dtype and store.dim == dim
    assert store.image_ids == names(rows) and store.metadata == METADATA
    blocks = list(store.blocks())
    assert [len(block) for block in blocks[:-1]] == [ROWS_PER_GROUP] * (len(blocks) - 1)
    assert all(not block.flags.writeable for block in blocks)
    assert np.concatenate(blocks).tobytes() == array.tobytes() == store.array().tobytes()
    assert pq.read_table(folder / "0000.parquet").column(
        1
    ).combine_chunks().flatten().to_numpy().tobytes() == (array.tobytes())


def test_shards_make_one_matrix(tmp_path: Path) -> None:
    ids, array = names(1300), vectors(1300, 24)
    shards = assign_shards(ids)
    assert len(shards) == 5
    for number, rows in enumerate(shards):
        own = {"shard.batch-halved": "yes"} if number == 2 else {}
        write_shard(tmp_path / shard_name(number), [ids[row] for row in rows], array[rows], METADATA | own)
    write_shard(tmp_path / "queries.parquet", ["q1", "q0"], array[:2], METADATA, id_column="query_id")
    store = open_shards(tmp_path)
    assert sorted(store.ids) == ids and store.metadata == METADATA
    assert store.shard_metadata[2] == {"shard.batch-halved": "yes"} and store.shard_metadata[0] == {}
    order = store.rows_of(ids)
    np.testing.assert_array_equal(store.array()[order], array)
    np.testing.assert_array_equal(store.take(order), array)
    wanted = np.random.default_rng(1).integers(0, 1300, 500)
    np.testing.assert_array_equal(store.take(wanted), store.array()[wanted])
    assert store.take([]).shape == (0, 24)
    with pytest.raises(ArtifactError, match=r"no descriptor for missing\.jpg"):
        store.rows_of([ids[3], "missing.jpg"])
    with pytest.raises(IndexError):
        store.take([1300])
    queries = open_queries(tmp_path)
    assert queries.ids == ["q1", "q0"]
    np.testing.assert_array_equal(queries.array(), array[:2])


def test_many_shards_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10_000, 9_999, 2):
        write_shard(tmp_path / shard_name(number), [str(number)], vectors(1, 4), {})
    assert open_shards(tmp_path).ids == ["2", "9999", "10000"]


def test_more_shards_than_files_a_process_may_open(tmp_path: Path) -> None:
    array = vectors(200, 4)
    for number in range(200):
        write_shard(tmp_path / shard_name(number), [str(number)], array[number : number + 1], {})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))  # noqa: PTH208
    try:
        store = open_shards(tmp_path)
        np.testing.assert_array_equal(store.array(), array)
        np.testing.assert_array_equal(store.take(np.arange(200)), array)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_part_reads_the_same_rows_in_another_process(tmp_path: Path) -> None:
    array = vectors(2 * ROWS_PER_GROUP + 30, 3)
    cuts = [0, ROWS_PER_GROUP + 5, ROWS_PER_GROUP + 5, len(array)]
    for number, (start, stop) in enumerate(pairwise(cuts)):
        ids = [str(row) for row in range(start, stop)]
        write_shard(tmp_path / shard_name(number), ids, array[start:stop], {})
    store = open_shards(tmp_path)
    for start, stop in [(0, len(array)), (5, 9), (8000, 8300), (100, 2 * ROWS_PER_GROUP + 7), (7, 7)]:
        part = pickle.loads(pickle.dumps(store.part(start, stop)))
        assert len(part) == stop - start and part.dim == 3
        np.testing.assert_array_equal(np.concatenate([array[:0], *part.blocks()]), array[start:stop])


def test_a_file_that_is_replaced_meanwhile_is_named(tmp_path: Path) -> None:
    write_shard(tmp_path / "0000.parquet", ["a"], vectors(1, 4), {})
    store = open_shards(tmp_path)
    write_shard(tmp_path / "0000.parquet", ["b"], vectors(1, 4, seed=1), {})
    for read in (store.array, lambda: store.take([0])):
        with pytest.raises(ArtifactError, match=r"0000\.parquet: changed while it was being read"):
            read()


def test_a_codec_that_does_not_exist_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "0000.parquet"
    write_shard(path, names(20), vectors(20, 4), METADATA)
    whole = path.read_bytes()
    with path.open("rb") as stream:
        assert codecs_are_known(stream, len(whole))
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    # A 32-bit field that is 0, such as the codec of a column, becomes 21.
    places = [at for at in range(footer, len(whole) - 8) if whole[at : at + 2] == b"\x15\x00"]
    crashed = []
    for at in places:
        path.write_bytes(whole[: at + 1] + b"\x2a" + whole[at + 2 :])
        with path.open("rb") as stream:
            if codecs_are_known(stream, len(whole)):
                continue
        crashed.append(at)
        with pytest.raises(ArtifactError):
            open_shards(tmp_path).array()
    assert len(crashed) >= 2  # those of the ids and of the descriptors


def test_rows_are_found_whether_few_or_most_are_asked_for(tmp_path: Path) -> None:
    ids, array = names(3000), vectors(3000, 2)
    write_shard(tmp_path / "0000.parquet", ids, array, {})
    store = open_shards(tmp_path)
    order = np.random.default_rng(0).permutation(3000)
    assert store.rows_of([ids[row] for row in order]).tolist() == order.tolist()
    assert store.rows_of([ids[row] for row in order[:7]]).tolist() == order[:7].tolist()
    for number in (4, 2000):
        with pytest.raises(ArtifactError, match="no descriptor for nowhere; extract again"):
            store.rows_of([*ids[:number], "nowhere", "nothing"])


def test_bytes_are_the_same_each_time(tmp_path: Path) -> None:
    for name, metadata in (("a", METADATA), ("b", dict(reversed(METADATA.items())))):
        write_shard(tmp_path / name / "0000.parquet", names(9000), vectors(9000, 8), metadata)
    fortran = np.asfortranarray(vectors(9000, 8))
    write_shard(tmp_path / "c" / "0000.parquet", names(9000), fortran, METADATA)
    contents = {(tmp_path / name / "0000.parquet").read_bytes() for name in "abc"}
    assert len(contents) == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_duckdb_reads_float_lists(dtype, tmp_path: Path) -> None:
    array = vectors(100, 8, dtype)
    write_shard(tmp_path / "0000.parquet", names(60), array[:60], METADATA)
    write_shard(tmp_path / "0001.parquet", names(100)[60:], array[60:], METADATA)
    write_shard(tmp_path / "queries.parquet", ["q"], array[:1], METADATA, id_column="query_id")
    table = f"read_parquet('{tmp_path}/[0-9]*.parquet')"
    with duckdb.connect() as connection:
        assert connection.sql(f"select typeof(descriptor) from {table} limit 1").fetchall() == [("FLOAT[]",)]
        rows = connection.sql(f"select image_id, descriptor from {table} order by image_id").fetchall()
        assert [row[0] for row in rows] == names(100)
        np.testing.assert_array_equal(
            np.array([row[1] for row in rows], np.float32), array.astype(np.float32)
        )
        best = connection.sql(
            f"select image_id, array_inner_product(d.descriptor::FLOAT[8], q.descriptor::FLOAT[8]) s "
            f"from {table} d, read_parquet('{tmp_path}/queries.parquet') q order by s desc limit 1"
        ).fetchall()[0]
    scores = array.astype(np.float32) @ array[0].astype(np.float32)
    assert best[0] == names(100)[int(scores.argmax())]
    assert best[1] == pytest.approx(scores.max(), rel=1e-5)


def foreign(path: Path, array: np.ndarray, kind: pa.DataType, **options) -> None:
    """The same descriptors as other programs might write them."""
    ids = names(len(array))
    pq.write_table(pa.table({"image_id": ids, "descriptor": pa.array(array.tolist(), kind)}), path, **options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (pa.list_(pa.float32()), {}),
        (pa.list_(pa.float32()), {"compression": "none", "use_dictionary": False}),
        (pa.list_(pa.float16()), {"compression": "zstd"}),
        (pa.list_(pa.float32(), 6), {"row_group_size": 7}),
        (pa.large_list(pa.float64()), {"data_page_version": "2.0"}),
    ],
)
def test_foreign_files_are_decoded(kind: pa.DataType, options, tmp_path: Path) -> None:
    array = vectors(50, 6)
    foreign(tmp_path / "0000.parquet", array, kind, **options)
    store = open_shards(tmp_path)
    assert not store.mapped and store.dim == 6
    assert store.dtype == (np.float16 if kind.value_type == pa.float16() else np.float32)
    np.testing.assert_array_equal(store.array(), array.astype(store.dtype))
    np.testing.assert_array_equal(store.take([49, 0]), array[[49, 0]].astype(store.dtype))


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"use_dictionary": True},
        {"data_page_version": "2.0"},
        {"data_page_size": 1000, "write_batch_size": 64},
        {"column_encoding": {"image_id": "PLAIN", "descriptor.list.element": "BYTE_STREAM_SPLIT"}},
        {"write_statistics": True},
    ],
)
def test_our_layout_mark_alone_does_not_make_a_file_mapped(options, tmp_path: Path) -> None:
    array = vectors(3000, 16, np.float32)
    write_shard(tmp_path / "0000.parquet", names(3000), array, METADATA)
    table = pq.read_table(tmp_path / "0000.parquet")
    plain = {
        "compression": "none",
        "use_dictionary": False,
        "write_statistics": False,
        "data_page_size": 1 << 30,
    }
    pq.write_table(table, tmp_path / "0000.parquet", row_group_size=1024, **(plain | options))
    assert b"cairn.layout" in pq.read_schema(tmp_path / "0000.parquet").metadata
    store = open_shards(tmp_path)
    assert not store.mapped
    np.testing.assert_array_equal(store.array(), array)


def test_what_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0000.parquet"
    array = vectors(3, 4, np.float32)
    broken = array.copy()
    broken[1, 2] = np.nan
    with pytest.raises(
        ArtifactError, match=r"descriptor of photos/000001\.jpg holds a value that is not finite"
    ):
        write_shard(path, names(3), broken, {})
    with np.errstate(over="ignore"):
        overflowing = (array * 1e6).astype(np.float16)
    with pytest.raises(ArtifactError, match="not finite"):
        write_shard(path, names(3), overflowing, {})
    with pytest.raises(ArtifactError, match="do not fit 2 ids"):
        write_shard(path, names(2), array, {})
    with pytest.raises(ArtifactError, match="float64; float16 or float32"):
        write_shard(path, names(3), array.astype(np.float64), {})
    with pytest.raises(ArtifactError, match="an id occurs twice"):
        write_shard(path, ["a", "a", "b"], array, {})
    assert list(tmp_path.iterdir()) == []


def test_an_empty_shard_is_possible(tmp_path: Path) -> None:
    write_shard(tmp_path / "0000.parquet", [], np.empty((0, 4), np.float16), METADATA)
    write_shard(tmp_path / "0001.parquet", ["a"], vectors(1, 4), METADATA)
    store = open_shards(tmp_path)
    assert store.ids == ["a"] and store.array().shape == (1, 4)
    (tmp_path / "0001.parquet").unlink()
    assert open_shards(tmp_path).array().shape == (0, 4)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((["b"], vectors(1, 5), METADATA), "descriptors of 5 values; 0000.parquet has 4"),
        ((["b"], vectors(1, 4, np.float32), METADATA), "float32 values; 0000.parquet has float16"),
        ((["b"], vectors(1, 4), METADATA | {"revision": "x"}), "metadata revision is 'x'; in 0000.parquet"),
        ((["b"], vectors(1, 4), {"model": "tower"}), "metadata revision is None"),
        ((["a"], vectors(1, 4), METADATA), "a has two descriptors"),
    ],
)
def test_shards_that_do_not_fit_are_refused(second, message: str, tmp_path: Path) -> None:
    write_shard(tmp_path / "0000.parquet", ["a"], vectors(1, 4), METADATA)
    write_shard(tmp_path / "0001.parquet", *second)
    with pytest.raises(ArtifactError, match=message):
        open_shards(tmp_path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"image_id": ["a"]}, "columns image_id; expected image_id and descriptor"),
        ({"image_id": ["a"], "descriptor": ["text"]}, "column descriptor has type string"),
        ({"image_id": ["a"], "descriptor": pa.array([[1, 2]])}, "has type list"),
        ({"image_id": ["a", None], "descriptor": [[1.0], [2.0]]}, "column image_id has 1 nulls"),
        ({"image_id": ["a", "b"], "descriptor": [[1.0], [1.0, 2.0]]}, "descriptors have 1 and 2 values"),
        ({"image_id": ["a", "b"], "descriptor": [[1.0], None]}, "has nulls"),
        ({"image_id": ["a"], "descriptor": [[1.0, None]]}, "a descriptor holds a null"),
        ({"image_id": ["a"], "descriptor": pa.array([[]], pa.list_(pa.float32()))}, "no values"),
    ],
)
def test_wrong_tables_are_refused(table, message: str, tmp_path: Path) -> None:
    pq.write_table(pa.table(table), tmp_path / "0000.parquet")
    with pytest.raises(ArtifactError, match=message) as caught:
        open_shards(tmp_path).array()
    assert "0000.parquet" in str(caught.value)


def test_missing_and_truncated_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no descriptor shards"):
        open_shards(tmp_path)
    with pytest.raises(ArtifactError, match=r"queries\.parquet: no such file"):
        open_queries(tmp_path)
    path = tmp_path / "0000.parquet"
    write_shard(path, names(100), vectors(100, 8), METADATA)
    whole = path.read_bytes()
    for length in (0, 3, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"0000\.parquet: not a readable Parquet file"):
            open_shards(tmp_path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_flipped_bytes_never_end_in_anything_but_a_cairn_error(data, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    path = folder / "0000.parquet"
    write_shard(path, names(20), vectors(20, 4), METADATA)
    content = bytearray(path.read_bytes())
    # Mostly the footer, where offsets, counts and types stand.
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for _ in range(data.draw(st.integers(1, 3))):
        from_end = data.draw(st.integers(1, footer) | st.integers(1, len(content)))
        content[-from_end] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        store = open_shards(folder)
        for block in store.blocks():
            assert block.shape[1] == store.dim
        store.array()
    except CairnError as error:
        assert "\n" not in str(error)
