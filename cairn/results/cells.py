"""The numbers of a two-stage method that mixes logits with similarities: one cell reported, others as diagnostics.

Protocol: Suma et al., AMES, ECCV 2024, official code `src/utils/metrics.py` (see `cairn.rerank.two_stage`). Each
difficulty of the ground truth is scored on its own list, from whose shortlist the images that it ignores were
moved; beside it stands the list that knows no junk, which is what a deployed system would return.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.metrics.evaluate import score_ranking
from cairn.metrics.interval import mean_interval
from cairn.metrics.result import PerQuery, Row, ScoredRun
from cairn.rerank.pairs import Logits, read_pairs, rerank_all
from cairn.rerank.rankings import write_reranked
from cairn.rerank.two_stage import UNAWARE, Cell, RankedQuery, RerankedQuery, chained, settings_of
from cairn.results.names import FIRST_STAGE, later_stage

if TYPE_CHECKING:
    import pyarrow as pa

GAIN = "minus-unaware"
"""Ending of the metric that says by how much the junk-aware number exceeds the one without."""
DIAGNOSTIC = "@diagnostic"
"""Ending of the stage of a cell that is no result: choosing the best of many on the test set proves nothing."""


@dataclass(frozen=True)
class Cells:
    """What a second stage of stored logits gives.

    `scored`: stage → its run; `diagnostics`: the same for other cells, rows only; `deployed`: slug and list of
    the stage that a deployed system would return.
    """

    scored: Mapping[str, ScoredRun]
    diagnostics: Mapping[str, tuple[Row, ...]]
    deployed: tuple[str, list[RerankedQuery]]


def score_cells(
    pairs: Path,
    ranked: Sequence[RankedQuery],
    truth: GroundTruth,
    metric: str,
    mixing: Mapping[str, Any],
    earlier: str | None = None,
    first: str = FIRST_STAGE,
) -> Cells:
    """Score the cell that `mixing` names, and its diagnostics, from the logits in `pairs` (a `pairs.parquet`).

    `ranked` is the ranking that the logits belong to, `first` the stage of the search, `earlier` the slug of the
    stage that gave `ranked` where it is not the search; `mixing` as in `cairn.rerank.parameters.parts`. Where
    nothing is ever ignored, the two protocols give the same list, and one stage stands for both. Raises
    ArtifactError where files do not fit.
    """
    logits = read_pairs(pairs, ranked)
    cell = Cell("ames", mixing["shortlist"], mixing["mix"], mixing["temperature"])
    unaware = Cell(cell.name, cell.shortlist, cell.mix, cell.temperature, junk_aware=False)
    settings = settings_of(truth.relevance)
    grades = {grade for images in truth.relevance.values() for grade in images.values()}
    differ = "junk" in grades or len(settings) > 1

    def slug(of: Cell) -> str:
        return later_stage(of.slug, first) if earlier is None else chained(earlier, of.slug)

    lists = rerank_all(ranked, truth.relevance, logits, unaware, UNAWARE)
    plain = _scored(ranked, lists, truth, metric)
    scored: dict[str, ScoredRun] = {}
    if mixing["junk_aware"] and differ:
        aware = _aware(ranked, logits, truth, metric, cell, settings)
        scored[slug(cell)] = _with_gains(aware, plain)
    deployed = slug(unaware if differ or not mixing["junk_aware"] else cell)
    scored[deployed] = plain
    grid = mixing["diagnostics"]
    diagnostics = {}
    reported = cell if mixing["junk_aware"] else unaware
    for other in reported.diagnostics(grid["mixes"], grid["temperatures"]):
        if mixing["junk_aware"] and differ:
            found = _aware(ranked, logits, truth, metric, other, settings)
        else:
            found = _scored(
                ranked, rerank_all(ranked, truth.relevance, logits, other, UNAWARE), truth, metric
            )
        diagnostics[f"{slug(other)}{DIAGNOSTIC}"] = found.rows
    return Cells(scored, diagnostics, (deployed, lists))


def write_deployed(path: Path, ranked: Sequence[RankedQuery], cells: Cells) -> None:
    """Write the list that a deployed system would return, as `reranked.parquet` of other methods."""
    stage, lists = cells.deployed
    write_reranked(path, ranked, lists, stage)


def _aware(
    ranked: Sequence[RankedQuery],
    logits: Sequence[Logits],
    truth: GroundTruth,
    metric: str,
    cell: Cell,
    settings: Sequence[str],
) -> ScoredRun:
    """Each slice from the list of its own setting: `easy` and `hard` from theirs, every other from `medium`, or
    `all` where there is one grade of positives."""
    runs = {
        setting: _scored(ranked, rerank_all(ranked, truth.relevance, logits, cell, setting), truth, metric)
        for setting in settings
    }
    rest = "medium" if "medium" in runs else settings[0]

    def belongs(slice_name: str, setting: str) -> bool:
        return (slice_name if slice_name in runs else rest) == setting

    rows = tuple(row for s, run in runs.items() for row in run.rows if belongs(row.slice, s))
    values = tuple(each for s, run in runs.items() for each in run.per_query if belongs(each.slice, s))
    return ScoredRun(runs[rest].protocol, rows, values)


def _with_gains(aware: ScoredRun, plain: ScoredRun) -> ScoredRun:
    """The junk-aware rows and, for every mean average precision, what they gain over the list that knows no junk."""
    before = {(each.slice, each.metric): each for each in plain.per_query}
    gains = []
    for each in aware.per_query:
        other = before.get((each.slice, each.metric))
        if other is not None and each.metric.startswith("map") and other.query_ids == each.query_ids:
            gains.append(_gain(each, other))
    return ScoredRun(aware.protocol, (*aware.rows, *gains), aware.per_query)


def _gain(aware: PerQuery, plain: PerQuery) -> Row:
    difference = aware.values - plain.values
    counted = difference[~np.isnan(difference)]
    value = float(counted.mean()) if len(counted) else None
    return Row(aware.slice, f"{aware.metric}-{GAIN}", value, len(counted), *mean_interval(difference, seed=0))


def _scored(
    ranked: Sequence[RankedQuery], lists: Sequence[RerankedQuery], truth: GroundTruth, metric: str
) -> ScoredRun:
    size = ranked[0].gallery_size if ranked else 0
    return score_ranking(_table(ranked, lists), truth, metric, size, where="re-ranked list")


def _table(ranked: Sequence[RankedQuery], lists: Sequence[RerankedQuery]) -> "pa.Table":
    import pyarrow as pa

    pairs = list(zip(ranked, lists, strict=True))
    # Where images that are ignored are moved behind all others, ranks no longer tell what is missing.
    gone = any(query.missing for query in ranked)
    absent = {"absent": np.concatenate([~q.present[new.order] for q, new in pairs])} if gone else {}

    def column(parts: Iterator[Any]) -> Any:
        return np.concatenate([np.zeros(0), *parts])

    return pa.table(
        {
            "query_id": pa.array([query.query_id for query, new in pairs for _ in new.order], pa.string()),
            "rank": pa.array(column(new.rank for _, new in pairs).astype(np.int64)),
            "image_id": pa.array(
                [query.image_ids[i] for query, new in pairs for i in new.order], pa.string()
            ),
            "score": pa.array(column(new.score for _, new in pairs).astype(np.float32)),
            "global_score": pa.array(
                column(query.score[new.order] for query, new in pairs).astype(np.float32)
            ),
            **absent,
        }
    )
