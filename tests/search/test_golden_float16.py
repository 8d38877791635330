"""Golden cases through a real float16 store and exact search: no rank moves, the authors' figures to 1e-9."""

import json
from pathlib import Path

import numpy as np
import pytest

from cairn.metrics import revisitop
from cairn.search.exact import exact_search
from cairn.store.descriptors import open_queries, open_shards, write_shard
from cairn.store.shards import assign_shards, shard_name

PARTS = 3
STEP = 2.0**-11


def stored(scores: np.ndarray, folder: Path) -> np.ndarray:
    """Write descriptors whose inner products are `scores` (float32 [queries, images]); images of each store row.

    float16 holds 11 bits of a score, so an image has three numbers for each query (what is left, times 2^11, is the
    next), and a query has the powers of 2^-11 there and zeros elsewhere. All of it is exact in float32.
    """
    count, images = scores.shape
    gallery = np.zeros((images, PARTS * count), np.float16)
    queries = np.zeros((count, PARTS * count), np.float16)
    rest = scores.astype(np.float32).copy()
    for part in range(PARTS):
        piece = (rest / np.float32(STEP**part)).astype(np.float16)
        rest -= piece.astype(np.float32) * np.float32(STEP**part)
        gallery[:, part * count : (part + 1) * count] = piece.T
        queries[np.arange(count), part * count + np.arange(count)] = STEP**part
    assert not rest.any()
    names = [f"image-{row:05d}" for row in range(images)]
    order = []
    for number, members in enumerate(assign_shards(names)):
        write_shard(folder / shard_name(number), [names[row] for row in members], gallery[members], {})
        order += members
    ids = [f"query-{number}" for number in range(count)]
    write_shard(folder / "queries.parquet", ids, queries, {}, id_column="query_id")
    return np.array(order)


@pytest.mark.parametrize("case", ["plain", "edge"])
def test_no_rank_moves(shared: Path, tmp_path: Path, case: str):
    golden = json.loads((shared / "golden" / f"revisitop_{case}.json").read_text())
    scores = np.load(shared / "golden" / f"revisitop_{case}.npz")["scores"]
    order = stored(scores, tmp_path)
    gallery, queries = open_shards(tmp_path), open_queries(tmp_path)
    assert gallery.mapped and gallery.dtype == np.float16 and len(gallery) == scores.shape[1]
    row_of = np.argsort(order)
    grades = ("easy", "hard", "junk")
    truth = [{grade: np.array(one[grade], np.int64) for grade in grades} for one in golden["gnd"]]
    judged = [row_of[np.concatenate(list(one.values()))] for one in truth]
    found = exact_search(queries.array(), gallery, order, scores.shape[1], judged)
    for one, line in zip(found, scores, strict=True):
        assert one.rows.tolist() == np.argsort(-line, kind="stable").tolist()
        assert one.scores.tolist() == sorted(line.tolist(), reverse=True)
    query = np.repeat(np.arange(len(truth)), [len(each) for each in judged])
    grade = np.concatenate([np.repeat(list(one), [len(each) for each in one.values()]) for one in truth])
    rank = np.concatenate([one.judged_ranks for one in found])
    by_rank = np.lexsort((rank, query))
    query, grade, rank = query[by_rank], grade[by_rank], rank[by_rank]
    for letter, setup in zip("EMH", ("easy", "medium", "hard"), strict=True):
        positives, junk = revisitop.SETUPS[setup]
        number = np.array([sum(len(one[name]) for name in positives) for one in truth])
        flags = np.isin(grade, positives), np.isin(grade, junk)
        values = revisitop.score_setup(query, rank, *flags, number, ()).average_precision
        expected = golden["expected"][letter]
        assert values[number > 0].mean() == pytest.approx(expected["map"], abs=1e-9)
        given = [value for value in expected["aps"] if value is not None]
        assert values[number > 0].tolist() == pytest.approx(given, abs=1e-9)
