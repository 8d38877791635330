"""Scores the stages of one run: its ranking and, where there is one, its re-ranking."""

import json
import shutil
from pathlib import Path
from typing import Any

from cairn.benchmarks.structure import GroundTruth, read_ground_truth
from cairn.errors import ArtifactError
from cairn.files import atomic
from cairn.images.manifest import read_manifest
from cairn.metrics.evaluate import parse_protocol, score_ranking
from cairn.metrics.micro_ap import MAX_DIM
from cairn.metrics.result import ScoredRun, per_query_table
from cairn.results.gathering import ABOUT_FILE
from cairn.results.names import NONE, NumberName
from cairn.results.table import Result, write_results


def score_run(
    benchmark: str,
    system: str,
    *,
    ranking: Path,
    reranking: Path,
    tail: Path | None = None,
    ground_truth: Path,
    manifest: Path,
    metric: str,
    output: Path,
) -> None:
    """Write `scores.parquet` (one row per number), `per_query.parquet` and `benchmark.json` under `output`.

    `ranking` and `reranking` are artifacts of a run: the stages that `ranking.json` and `reranking.json` name
    (none where its `stage` is null). Values are fractions, intervals 95% bootstrap over queries. A number that
    does not exist (no query has a positive) has no row. Raises `ArtifactError` where the files do not fit.
    """
    _check_track2(metric, ranking)
    truth = read_ground_truth(ground_truth)
    gallery_size = read_manifest(manifest / "manifest.parquet").gallery_size
    rows: list[Result] = []
    per_query: list[Any] = []
    for stage, path in stages(ranking, reranking):
        scored = _scored(path, truth, metric, gallery_size)
        for row in scored.rows:
            if row.value is None:
                continue
            name = NumberName(benchmark, system, NONE, NONE, stage, row.slice, row.metric)
            unit = "score" if row.metric.startswith("threshold") else "fraction"
            rows.append(
                Result(name, row.value, row.n_queries, gallery_size, unit=unit, low=row.low, high=row.high)
            )
        per_query.append(_labelled(per_query_table(scored), stage))
    if tail is not None:
        rows += tail_rows(benchmark, system, tail, gallery_size)
    shutil.copyfile(ground_truth / ABOUT_FILE, output / ABOUT_FILE)
    write_results(output / "scores.parquet", rows)
    _write_table(output / "per_query.parquet", per_query)


def tail_rows(benchmark: str, system: str, tail: Path, gallery_size: int) -> list[Result]:
    """The estimates of a tail artifact as numbers: stage `tail-ESTIMATOR-sS-nN`, slice `all`.

    `default` carries its interval for these queries (the one for new queries stands in `tail.json`).
    """
    facts = json.loads((tail / "tail.json").read_text("utf-8"))
    rows = []
    for estimator, value in facts["estimates"].items():
        asked = facts["parameters"]
        stage = f"tail-{estimator}-s{facts['sample']}-n{asked['gallery']}"
        low, high = facts["ci95"]["fixed_queries"] if estimator == "default" else (None, None)
        name = NumberName(benchmark, system, NONE, NONE, stage, "all", asked["metric"])
        rows.append(Result(name, value, facts["queries"], gallery_size, low=low, high=high))
    return rows


def stages(ranking: Path, reranking: Path) -> list[tuple[str, Path]]:
    """Stage slug and ranking file of each stage of a run."""
    first = json.loads((ranking / "ranking.json").read_text("utf-8"))
    found = [(first["stage"], ranking / "ranking.parquet")]
    facts = json.loads((reranking / "reranking.json").read_text("utf-8"))
    if facts.get("stage"):
        found.append((facts["stage"], reranking / "reranked.parquet"))
    return found


def _scored(path: Path, truth: GroundTruth, metric: str, gallery_size: int) -> ScoredRun:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{path}: not a readable ranking ({str(error).splitlines()[0]})") from None
    return score_ranking(table, truth, metric, gallery_size, where=str(path))


def _check_track2(metric: str, ranking: Path) -> None:
    """DISC21's track 2 admits descriptors of 256 dimensions at most: ArtifactError for more."""
    if "disc21-track2" not in {asked.name for asked in parse_protocol(metric)}:
        return
    path = ranking / "ranking.json"
    dim = json.loads(path.read_text("utf-8")).get("dim")
    if not isinstance(dim, int) or dim > MAX_DIM:
        raise ArtifactError(
            f"{path}: descriptors of {dim or 'unknown'} dimensions; track 2 of DISC21 admits {MAX_DIM}: cut them "
            "or choose the metric disc21"
        )


def _labelled(table: Any, stage: str) -> Any:
    import pyarrow as pa

    return table.add_column(
        0, pa.field("stage", pa.string(), nullable=False), pa.array([stage] * table.num_rows, pa.string())
    )


def _write_table(path: Path, tables: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic(path) as temporary:
        pq.write_table(pa.concat_tables(tables), temporary, compression="zstd")
