"""mAP by counted ranks against the official definition by a full sort, and the bench that measures both."""

from pathlib import Path

import numpy as np
import pytest

from bench import bench_exact_map as bench
from cairn.store.descriptors import QUERIES_FILE, open_queries, open_shards, write_shard
from cairn.store.shards import assign_shards, shard_name


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A store of 9,000 descriptors of whole numbers: products are exact, and very many tie."""
    generator = np.random.default_rng(3)
    rows, queries = (generator.integers(-1, 2, (n, 12)).astype(np.float16) for n in (9_000, bench.QUERIES))
    ids = [f"image-{number:07d}" for number in range(9_000)]
    for number, members in enumerate(assign_shards(ids)):
        write_shard(tmp_path / shard_name(number), [ids[each] for each in members], rows[members], {})
    names = [f"query-{number:02d}" for number in range(bench.QUERIES)]
    write_shard(tmp_path / QUERIES_FILE, names, queries, {}, id_column="query_id")
    return tmp_path


def test_equals_the_official_definition_exactly(pool: Path):
    store, queries = open_shards(pool), open_queries(pool).array()
    numbers, row_of = bench.places(store, 9_000)
    judged = bench.judged_images(9_000)
    mine, found = bench.ours(queries, store, numbers, row_of, judged, 50)
    gallery = store.take(row_of).astype(np.float32)
    theirs = bench.official(queries.astype(np.float32), gallery, judged)
    order = np.argsort(-(queries.astype(np.float32) @ gallery.T), axis=1, kind="stable")
    assert [one.rows.tolist() for one in found] == order[:, :50].tolist()
    for setup in ("easy", "medium", "hard"):
        assert np.abs(mine[setup] - theirs[setup]).max() < 1e-12
        assert 0 < mine[setup].mean() < 1


def test_the_bench_runs_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bench.main(["--rows", "3000", "--rounds", "1", "--slow-rounds", "1", "--folder", str(tmp_path / "pool")])
    printed = capsys.readouterr().out
    for wanted in (
        "mAP hard",
        "reading once",
        "faiss.knn",
        "floor: reading + product",
        "anonymous memory, MiB",
    ):
        assert wanted in printed
