"""Lists in the out-of-distribution gallery of FORB, some of whose images have no descriptor."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cairn.benchmarks.structure import OUTSIDE, GroundTruth, Query
from cairn.errors import ArtifactError
from cairn.metrics.evaluate import score_ranking
from cairn.metrics.forb import NOTHING
from cairn.report.curves import curve_rows
from cairn.rerank.expansion import rerank_expanded
from cairn.rerank.outside import outside_lists, read_outside, write_outside
from cairn.rerank.reciprocal import rerank_reciprocal
from cairn.rerank.superglobal import rerank_superglobal
from cairn.rerank.two_stage import RankedQuery, shortlist
from cairn.store.missing import absence

SIZE = 12
INSIDE = {"i00", "i03", "i05", "i07"}
NAMES = [f"i{row:02d}" for row in range(SIZE)]
MANIFEST: Any = SimpleNamespace(image_id=NAMES, gallery_size=SIZE)
TRUTH = GroundTruth(
    (Query("q", "q"),), {"q": {"i00": "positive"}}, {}, {name: {OUTSIDE: "no"} for name in INSIDE}
)


def ranked(missing: list[int], top: int = SIZE) -> RankedQuery:
    """The query's first images, with falling scores that are all below 0; the missing ones come last."""
    order = np.array([row for row in range(SIZE) if row not in missing] + missing)
    score = np.concatenate([-np.linspace(0.1, 0.6, SIZE - len(missing)), np.full(len(missing), -1)])
    rows = np.arange(SIZE)[:top]
    names = tuple(NAMES[row] for row in order[rows])
    return RankedQuery("q", names, order[rows], rows, score[rows].astype(np.float32), SIZE, len(missing))


@pytest.mark.parametrize("top", [SIZE, SIZE - 2])
def test_missing_images_are_on_no_list(top: int):
    [found] = outside_lists([ranked([2, 5], top)], TRUTH, MANIFEST, 100)
    assert found.image_ids == ("i01", "i04", "i06", "i08", "i09", "i10", "i11")
    assert (found.gallery_size, found.missing) == (7, 0)
    assert len(shortlist(found, np.zeros(7, bool), 100)) == 7


def test_a_list_that_is_cut_still_says_so():
    with pytest.raises(ArtifactError, match=r"6 of its first 9 images .* raise search\.top"):
        outside_lists([ranked([2, 5], 9)], TRUTH, MANIFEST, 7)
    [found] = outside_lists([ranked([2, 5], 9)], TRUTH, MANIFEST, 6)
    assert len(shortlist(found, np.zeros(6, bool), 6)) == 6


@pytest.mark.parametrize("unseen", [False, True], ids=["images", "query"])
def test_where_none_is_left_the_threshold_is_that_of_no_candidate(tmp_path: Path, unseen: bool):
    outside = [row for row in range(SIZE) if NAMES[row] not in INSIDE]
    query = ranked(outside)
    if unseen:
        query = RankedQuery(*(getattr(ranked([]), name) for name in list(vars(query))[:-1]), SIZE)
    lists = outside_lists([query], TRUTH, MANIFEST, 5)
    assert [len(one.rank) for one in lists] == [0]
    queries, rows = np.ones((1, 4), np.float32) / 2, np.zeros((SIZE, 4), np.float32)
    stages = {
        method.__name__: method(lists, queries, lambda asked: rows[asked], *options)
        for method, *options in ((rerank_superglobal,), (rerank_expanded, 5), (rerank_reciprocal, 5))
    }
    write_outside(tmp_path / "outside.parquet", lists, stages)
    for stage in stages:
        assert read_outside(tmp_path, stage) == {"q": NOTHING}


@pytest.mark.parametrize(("missing", "unseen"), [([], []), ([1, 2], []), ([], ["q"])])
def test_thresholds_of_a_first_stage_leave_out_what_is_missing(missing, unseen):
    import pyarrow as pa

    query = ranked(missing)
    score = np.where(query.rank >= SIZE - len(missing), 0.5, query.score)  # as if zeros had been the best
    table = pa.table(
        {
            "query_id": ["q"] * SIZE,
            "rank": query.rank,
            "image_id": list(query.image_ids),
            "score": score.astype(np.float32),
        }
    ).replace_schema_metadata(absence(len(missing), unseen))
    outside = [
        value
        for name, value, rank in zip(query.image_ids, query.score.tolist(), query.rank, strict=True)
        if name not in INSIDE and rank < SIZE - len(missing)
    ]
    expected = NOTHING if unseen else max(outside)
    points = [one for one in curve_rows(table, TRUTH, "forb", SIZE) if one["curve"] == "thresholds"]
    assert points[0]["score"] == pytest.approx(expected)
    run = score_ranking(table, TRUTH, "forb", SIZE)
    positive = float(query.score[query.image_ids.index("i00")])
    share = np.mean([positive >= (expected if rate < 1 else NOTHING) for rate in np.linspace(0, 1, 11)])
    assert run.value("overall", "t-map@1") == pytest.approx(share)
