"""Scores the stages of one run: its ranking and, where there is one, its re-ranking."""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cairn.benchmarks.structure import GroundTruth, read_ground_truth
from cairn.errors import ArtifactError
from cairn.files import atomic, write_json
from cairn.images.manifest import read_manifest
from cairn.metrics.evaluate import parse_protocol, score_ranking
from cairn.metrics.micro_ap import MAX_DIM
from cairn.metrics.result import Row, ScoredRun, per_query_table
from cairn.rerank.outside import read_outside
from cairn.rerank.pairs import PAIRS_FILE
from cairn.rerank.rankings import EARLIER_FILE, FACTS_FILE, RERANKED_FILE, first_stage, read_ranking
from cairn.results.cells import GAIN, score_cells, write_deployed
from cairn.results.gathering import ABOUT_FILE
from cairn.results.names import NONE, NumberName
from cairn.results.table import Result, read_json_object, write_results

CURVES_FILE = "curves.parquet"
DIAGNOSTICS_FILE = "diagnostics.parquet"


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
    mixing: Mapping[str, Any] | None = None,
    output: Path,
) -> None:
    """Write `scores.parquet` (one row per number), `per_query.parquet` and `benchmark.json` under `output`.

    Protocols with curves (copy detection, t-mAP), and a tail estimate, have a `curves.parquet` too: see
    `cairn.report.curves`.
    `ranking` and `reranking` are artifacts of a run: the stages that `ranking.json` and `reranking.json` name (none
    where they are null). Where the second stage left logits, they are mixed as `mixing` says (see
    `cairn.results.cells`): the list that a deployed system would return is `reranked.parquet`, and what other
    cells would give stands in `diagnostics.parquet`, apart from the results. Values are fractions, intervals
    95% bootstrap over queries. A number that does not exist (no query has a positive) has no row. Raises
    `ArtifactError` where the files do not fit.
    """
    _check_track2(metric, ranking)
    truth = read_ground_truth(ground_truth)
    gallery_size = read_manifest(manifest / "manifest.parquet").gallery_size
    first = first_stage(ranking)
    rows: list[Result] = []
    per_query: list[Any] = []
    curves: list[dict[str, Any]] = []

    def place(stage: str) -> NumberName:
        return NumberName(benchmark, system, NONE, NONE, stage, "all", "all")

    for stage, path in stages(ranking, reranking):
        scored = _scored(path, truth, metric, gallery_size, read_outside(reranking, stage))
        rows += _rows(scored.rows, place(stage), gallery_size)
        per_query.append(_labelled(per_query_table(scored), stage))
        curves += [{"stage": stage, **point} for point in _curves(path, truth, metric, gallery_size)]
    if mixing is not None:
        facts = read_facts(reranking)
        earlier = facts.get("earlier")
        before = reranking / EARLIER_FILE if earlier else ranking / "ranking.parquet"
        ranked = read_ranking(before, gallery_size)
        cells = score_cells(reranking / PAIRS_FILE, ranked, truth, metric, mixing, earlier, first)
        for stage, scored in cells.scored.items():
            rows += _rows(scored.rows, place(stage), gallery_size)
            per_query.append(_labelled(per_query_table(scored), stage))
        write_deployed(output / RERANKED_FILE, ranked, cells)
        write_json(output / FACTS_FILE, {"stage": cells.deployed[0]})
        others = cells.diagnostics.items()
        found = [row for stage, of in others for row in _rows(of, place(stage), gallery_size)]
        write_results(output / DIAGNOSTICS_FILE, found)
    if tail is not None:
        rows += tail_rows(benchmark, system, tail, gallery_size)
        curves += tail_curve(tail)
    shutil.copyfile(ground_truth / ABOUT_FILE, output / ABOUT_FILE)
    second = [reranking] if mixing is None else [ranking, reranking]
    rows = [_with_inputs(row, {first: [ranking]}, second, tail, ground_truth, manifest) for row in rows]
    write_results(output / "scores.parquet", rows)
    _write_table(output / "per_query.parquet", per_query)
    if curves:
        _write_curves(output / CURVES_FILE, curves)


def _with_inputs(
    row: Result,
    lists: dict[str, list[Path]],
    others: list[Path],
    tail: Path | None,
    ground_truth: Path,
    manifest: Path,
) -> Result:
    """`row` with the inputs that it was computed from: by `lists` for the stages there, else `others`."""
    if row.name.stage.startswith("tail-") and tail is not None:
        used = [tail, manifest]
    else:
        used = [*lists.get(row.name.stage, others), ground_truth, manifest]
    return replace(row, computed_from=tuple(sorted(path.as_posix() for path in used)))


def score_heads(
    benchmark: str,
    system: str,
    head: str,
    *,
    ranking: Path,
    ground_truth: Path,
    manifest: Path,
    metric: str,
    output: Path,
) -> None:
    """Write `scores.parquet` and `head_per_query.parquet` (seed beside stage) of a system's heads of one protocol.

    `ranking` has a folder per seed with its `ranking.parquet`. The numbers carry `head` and the seed.
    """
    from cairn.store.seeds import seeds_of

    truth = read_ground_truth(ground_truth)
    gallery_size = read_manifest(manifest / "manifest.parquet").gallery_size
    rows: list[Result] = []
    per_query: list[Any] = []
    for seed in seeds_of(ranking):
        scored = _scored(ranking / seed / "ranking.parquet", truth, metric, gallery_size)
        stage = first_stage(ranking / seed)
        rows += _rows(
            scored.rows, NumberName(benchmark, system, head, seed, stage, "all", "all"), gallery_size
        )
        table = _labelled(per_query_table(scored), stage)
        for name, value in (("seed", seed), ("head", head)):
            table = _with_column(table, name, value)
        per_query.append(table)
    shutil.copyfile(ground_truth / ABOUT_FILE, output / ABOUT_FILE)
    write_results(output / "scores.parquet", rows)
    _write_table(output / "head_per_query.parquet", per_query)


def _rows(found: Iterable[Row], place: NumberName, gallery_size: int) -> list[Result]:
    """The numbers that exist, called as `place` with their own slice and metric."""
    rows = []
    for row in found:
        if row.value is not None:
            name = replace(place, slice=row.slice, metric=row.metric)
            unit = "score" if row.metric.startswith("threshold") else "fraction"
            unit = "difference" if row.metric.endswith(GAIN) else unit
            rows.append(
                Result(name, row.value, row.n_queries, gallery_size, unit=unit, low=row.low, high=row.high)
            )
    return rows


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


def tail_curve(tail: Path) -> list[dict[str, Any]]:
    """The curve of a tail artifact, metric against N, as rows of `curves.parquet`; none where it has none."""
    facts = json.loads((tail / "tail.json").read_text("utf-8"))
    return [
        {
            "stage": f"tail-{point['series']}",
            "curve": "tail",
            "slice": "all",
            "metric": facts["parameters"]["metric"],
            "x": float(point["n"]),
            "y": point["map"],
            "low": point.get("low"),
            "high": point.get("high"),
        }
        for point in facts.get("curve") or []
    ]


def stages(ranking: Path, reranking: Path, mixed: Path | None = None) -> list[tuple[str, Path]]:
    """Stage slug and ranking file of each stage of a run, in their order.

    `mixed` is the run's scores artifact, which holds the last list where it was mixed from stored logits.
    """
    found = [(first_stage(ranking), ranking / "ranking.parquet")]
    facts = read_facts(reranking)
    if facts.get("earlier"):
        found.append((facts["earlier"], reranking / EARLIER_FILE))
    if facts.get("stage"):
        found.append((facts["stage"], reranking / RERANKED_FILE))
    if mixed is not None and (mixed / FACTS_FILE).is_file():
        found.append((read_facts(mixed)["stage"], mixed / RERANKED_FILE))
    return found


def read_facts(folder: Path) -> dict[str, Any]:
    """What `reranking.json` in a folder says. ArtifactError where it is missing or damaged."""
    facts = read_json_object(folder / FACTS_FILE)
    if facts is None:
        raise ArtifactError(f"{folder / FACTS_FILE}: missing or damaged; run the step that writes it")
    return facts


def _scored(
    path: Path, truth: GroundTruth, metric: str, gallery_size: int, outside: Mapping[str, float] | None = None
) -> ScoredRun:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{path}: not a readable ranking ({str(error).splitlines()[0]})") from None
    return score_ranking(table, truth, metric, gallery_size, where=str(path), outside=outside)


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


def _curves(path: Path, truth: GroundTruth, metric: str, gallery_size: int) -> list[dict[str, Any]]:
    from cairn.report.curves import curve_rows, has_curves
    from cairn.store.tables import read_table

    if not has_curves(metric):
        return []
    import pyarrow as pa

    return curve_rows(
        read_table(path, pa.schema([]), extra_columns=True), truth, metric, gallery_size, where=str(path)
    )


def _write_curves(path: Path, curves: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    from cairn.store.tables import write_table

    names = ("stage", "curve", "slice", "metric")
    fields = [pa.field(name, pa.string(), nullable=False) for name in names]
    fields += [pa.field(name, pa.float64(), nullable=False) for name in ("x", "y")]
    fields += [pa.field(name, pa.float64()) for name in ("score", "low", "high")]
    write_table(pa.Table.from_pylist(curves, schema=pa.schema(fields)), path)


def _labelled(table: Any, stage: str) -> Any:
    return _with_column(table, "stage", stage)


def _with_column(table: Any, name: str, value: str) -> Any:
    """The table with a first column that holds one text."""
    import pyarrow as pa

    return table.add_column(
        0, pa.field(name, pa.string(), nullable=False), pa.array([value] * table.num_rows, pa.string())
    )


def _write_table(path: Path, tables: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic(path) as temporary:
        pq.write_table(pa.concat_tables(tables), temporary, compression="zstd")
