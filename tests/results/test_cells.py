"""Numbers of mixed lists: pairs of what has no descriptor are no predictions, wherever junk is moved."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.rerank.pairs import write_pairs
from cairn.rerank.two_stage import RankedQuery
from cairn.results.cells import score_cells

MIXING = {
    "shortlist": 3,
    "mix": 0.5,
    "temperature": 1.0,
    "junk_aware": True,
    "diagnostics": {"mixes": [], "temperatures": []},
}
NAMES = ("q0", "q1", "q2")
GRADES = {"i1": "easy", "i3": "hard", "i5": "junk", "i0": "junk"}
TRUTH = GroundTruth(tuple(Query(name, name) for name in NAMES), dict.fromkeys(NAMES, GRADES))


def ranked(size: int, missing: int, unseen: int) -> list[RankedQuery]:
    """Lists whose normalised scores lie below those of the missing images, which are the last ones."""
    lists = []
    for number, name in enumerate(NAMES):
        order = np.random.default_rng(number).permutation(size - missing)
        order = np.concatenate([order, np.arange(size - missing, size)])
        score = np.concatenate([-3 - np.arange(size - missing) / 7 - number / 5, np.full(missing, -1)])
        gone = size if number == unseen else missing
        score = score + 9 * (number == unseen)
        images = tuple(f"i{row}" for row in order)
        lists.append(RankedQuery(name, images, order, np.arange(size), score.astype(np.float32), size, gone))
    return lists


def values(tmp_path: Path, lists: list[RankedQuery]) -> dict[tuple[str, str, str], float | None]:
    rng = np.random.default_rng(3)
    logits = [
        (chosen, rng.standard_normal(len(chosen)).astype(np.float32))
        for query in lists
        for chosen in [np.arange(8 if query.missing < query.gallery_size else 0)]
    ]
    write_pairs(tmp_path / "pairs.parquet", lists, logits)
    cells = score_cells(tmp_path / "pairs.parquet", lists, TRUTH, "micro-ap", MIXING)
    return {
        (stage, row.slice, row.metric): row.value for stage, run in cells.scored.items() for row in run.rows
    }


def test_missing_images_are_no_predictions_in_any_list(tmp_path: Path):
    whole, less = (values(tmp_path, ranked(size, size - 8, -1)) for size in (10, 8))
    assert len({stage for stage, _, _ in whole}) == 2, "with and without knowledge of junk"
    assert whole == less


def test_a_query_without_a_descriptor_predicts_nothing(tmp_path: Path):
    first = ranked(8, 0, 2)
    last = replace(first[2], score=first[2].score - np.float32(90))
    found = values(tmp_path, first)
    assert found == values(tmp_path, [*first[:2], last]) and None not in found.values()
