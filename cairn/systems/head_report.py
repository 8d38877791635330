"""The step `head_report`: do heads that saw the test score higher beyond their seeds, and what saw it at all?"""

import io
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.contamination.learning import (
    ALL,
    described_of_set,
    flagged_images,
    learning_manifest,
    read_facts,
    read_json,
)
from cairn.contamination.seeds import SeedAnalysis, analyse_seeds
from cairn.contamination.training_sets import DECON, MATCHED, STANDARD, AuditedUse, TrainingUse, audit_uses
from cairn.errors import ArtifactError
from cairn.files import atomic, write_json
from cairn.images.manifest import Manifest, read_manifest
from cairn.results.names import NONE, is_first
from cairn.results.table import read_results
from cairn.store.descriptors import open_shards
from cairn.store.missing import present
from cairn.systems.heads import read_heads

SEEDS_FILE, USES_FILE, REPORT_FILE = "seeds.json", "uses.json", "report.txt"
SCORES = "artifacts/scores"
ORDER = (DECON, MATCHED, STANDARD)
"""Protocols in the order in which they are compared: a difference is the later less the earlier one."""
CENTRING = ("mean", "projection", "whitening")
"""Arrays that centre, rotate or whiten a whole descriptor; what else is learned is the vocabulary."""
NORMALISED = re.compile(r"(^|-)norm-n\d")
"""In the name of a stage whose scores are normalised by training images (`cairn.search.options`)."""
SHOWN, REST = "shown", "rest"
"""Parts of a slice: the queries whose landmark a flagged class is named after, and the others."""

Runs = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Protocol → seed → cell → value in points."""


def report_heads(root: Path, runs: Iterable[Mapping[str, Any]], output: Path) -> None:
    """Write `seeds.json`, `uses.json` and, for people, `report.txt` about runs.

    Each has `benchmark` and `system` and may have `heads`, their protocols, and `training_set` (default: all). Reads
    the artifacts `scores`, `contamination`, `training`, `vocabulary`, `descriptors`, `readout`, `ranking`, `reranker`,
    `verification` and `heads` under `root`; what lies there of heads that are not listed is left alone.
    ArtifactError, naming the file, where one of them is missing or damaged.
    """
    listed: dict[tuple[str, str], list[str]] = {}
    uses: list[AuditedUse] = []
    for run in runs:
        pair = (run["benchmark"], run["system"])
        listed[pair] = [name for name in ORDER if name in run.get("heads", ())]
        uses += uses_of(root, *pair, listed[pair], run.get("training_set", ALL))
    pairs = list(listed)
    comparisons = []
    for system in dict.fromkeys(system for _, system in pairs):
        of_system = {run[0]: protocols for run, protocols in listed.items() if run[1] == system and protocols}
        if of_system:
            comparisons += compare_heads(root, of_system, system)
    plain = {
        f"{benchmark}/{system}": plain_cells(root, benchmark, system, _shown(root, benchmark))
        for benchmark, system in pairs
        if _shown(root, benchmark) and _scored(root, benchmark, system)
    }
    audits = [line for run, protocols in listed.items() if protocols for line in audit_lines(root, *run)]
    write_json(output / USES_FILE, {"uses": [use.as_json() for use in uses]})
    write_json(
        output / SEEDS_FILE, {"comparisons": [_json(*one) for one in comparisons], "without_head": plain}
    )
    with atomic(output / REPORT_FILE) as temporary:
        temporary.write_text(_text(audits, comparisons, plain, uses), "utf-8")


def compare_heads(
    root: Path, benchmarks: Mapping[str, Sequence[str]], system: str
) -> list[tuple[str, SeedAnalysis | str, dict[str, float]]]:
    """Of each two protocols of a system's heads: its name, the analysis (or why there is none), and, for every
    cell, the value without a head. `benchmarks` maps each to the protocols of its heads. Cells are `benchmark/slice`
    and, where the audit knows which queries training shows, `benchmark/slice/shown` and `…/rest`."""
    runs: dict[str, dict[str, dict[str, float]]] = {}
    without: dict[str, float] = {}
    selected_on = None
    for benchmark, listed in benchmarks.items():
        shown = _shown(root, benchmark)
        for protocol in listed:
            for seed, cells in head_cells(root, benchmark, system, protocol, shown).items():
                runs.setdefault(protocol, {}).setdefault(seed, {}).update(cells)
            chosen = read_heads(_folder(root, benchmark) / system / "heads" / protocol)["selection"]
            if chosen:
                selected_on = f"{chosen['benchmark'] or benchmark}/{chosen['slice']}"
        without |= plain_cells(root, benchmark, system, shown)
    found: list[tuple[str, SeedAnalysis | str, dict[str, float]]] = []
    protocols = [name for name in ORDER if name in runs]
    for first, second in itertools.combinations(protocols, 2):
        common = {
            name: [runs[name][seed] for seed in sorted(runs[name], key=int)] for name in (first, second)
        }
        if min(map(len, common.values())) < 2:
            found.append(
                (system, f"{first} and {second}: one seed each shows no spread; name two at least", without)
            )
            continue
        cells = next(iter(common.values()))[0]
        on = selected_on if selected_on in cells else None
        found.append((system, analyse_seeds(common, unit="points", selected_on=on), without))
    return found


def head_cells(
    root: Path, benchmark: str, system: str, protocol: str, shown: frozenset[str]
) -> dict[str, dict[str, float]]:
    """Seed → cell → points of the heads of one protocol, from its scores artifact."""
    folder = Path(root) / SCORES / benchmark / f"{system}.{protocol}"
    cells: dict[str, dict[str, float]] = {}
    metric = _headline(folder)
    for row in read_results(folder / "scores.parquet"):
        if row.name.metric == metric and is_first(row.name.stage):
            cells.setdefault(row.name.seed, {})[f"{benchmark}/{row.name.slice}"] = 100 * row.value
    for seed, part in _split(folder / "head_per_query.parquet", metric, shown, "seed").items():
        cells.setdefault(seed, {}).update({f"{benchmark}/{name}": value for name, value in part.items()})
    return cells


def plain_cells(root: Path, benchmark: str, system: str, shown: frozenset[str]) -> dict[str, float]:
    """Cell → points of the system without a head, at its first stage."""
    folder = Path(root) / SCORES / benchmark / system
    metric = _headline(folder)
    cells = {
        f"{benchmark}/{row.name.slice}": 100 * row.value
        for row in read_results(folder / "scores.parquet")
        if row.name.metric == metric and is_first(row.name.stage)
    }
    parts = _split(folder / "per_query.parquet", metric, shown, None)
    return cells | {f"{benchmark}/{name}": value for name, value in parts.get(NONE, {}).items()}


def audit_lines(root: Path, benchmark: str, system: str) -> list[str]:
    """What the audits of classes and images say of a system with heads, in sentences."""
    facts = read_facts(_folder(root, benchmark) / "contamination")
    if not facts["audited"]:
        return [f"{benchmark}: {facts['note']}."]
    sets = "; ".join(
        f"{name}: {one['classes']:,} classes with {one['images']:,} images"
        for name, one in facts["sets"].items()
    )
    lines = [
        f"{benchmark}, classes by name ({facts['stance']}): {facts['reconciliation']}.",
        f"Training sets: {sets}.",
    ]
    images = read_json(_folder(root, benchmark) / system / "verification" / "image_audit.json")
    if not images["audited"]:
        return [*lines, f"{benchmark}/{system}: {images['note']}."]
    every, recall = images["precision"][0], images["recall"]
    parts = [
        f"{benchmark}/{system}, pictures, at {images['threshold_inliers']} inliers",
        f"confirmed {_share(every['image_precision'])}, of {_count(every['class_precision'])} classes at least one",
    ]
    if recall:
        parts.append(f"the flagged classes hold {_share(recall)}")
    return [*lines, ": ".join([parts[0], "; ".join(parts[1:])]) + "."]


def uses_of(
    root: Path, benchmark: str, system: str, protocols: Iterable[str], training_set: str
) -> list[AuditedUse]:
    """What a system learns from images, and whether it saw flagged ones: pretraining, vocabulary, centring and
    whitening, read-out, score normalisation, re-ranker (from `training_set`), and the head of each of `protocols`."""
    folder = _folder(root, benchmark)
    training = read_manifest(folder / "training" / "training.parquet")
    contamination = folder / "contamination"
    flagged = flagged_images(training, contamination)
    source = read_facts(contamination)["training"]
    name = f"{benchmark}/{system}"
    uses = []
    encoder = read_json(folder / system / "descriptors" / "descriptors.json")
    pretraining = encoder["facts"].get("pretraining", "not declared")
    if pretraining != "none":
        uses.append(TrainingUse(name, "pretraining", None, str(pretraining)))
    learned = read_json(folder / system / "vocabulary" / "vocabulary.json")
    if learned["learns"]:
        which = learned.get("training_set", "all")
        images = _images(training, contamination, which)
        centring = [array for array in learned["arrays"] if array in CENTRING]
        others = [array for array in learned["arrays"] if array not in CENTRING]
        for use, arrays in (("vocabulary", others), ("centring and whitening", centring)):
            if arrays:
                uses.append(TrainingUse(name, use, images, f"{source}, {which} ({', '.join(arrays)})"))
    described = folder / system / "training-descriptors"
    readout = folder / system / "readout" / "readout.json"
    if readout.is_file() and (origin := read_json(readout).get("learned_from")):
        images = _training_ids(described) if origin == "training" else None
        uses.append(TrainingUse(name, "read-out", images, source if images else f"the {origin} itself"))
    if NORMALISED.search(read_json(folder / system / "ranking" / "ranking.json")["stage"]):
        uses.append(TrainingUse(name, "score normalisation", _training_ids(described), source))
    reranker = read_json(folder / system / "reranker" / "training.json")
    if reranker["method"] is not None:
        images = _images(training, contamination, training_set)
        uses.append(TrainingUse(name, f"re-ranker {reranker['method']}", images, f"{source}, {training_set}"))
    for protocol in protocols:
        missing = open_shards(described).missing
        images = list(described_of_set(training, contamination, protocol, missing).classes)
        uses.append(TrainingUse(name, f"head {protocol}", images, f"{source}, {protocol}"))
    if not uses:
        uses.append(TrainingUse(name, "nothing", (), "-"))
    if flagged is None:  # nothing was audited: what was seen is not known
        uses = [TrainingUse(one.system, one.use, None, f"{one.origin}; not audited") for one in uses]
    return audit_uses(uses, flagged or ())


SHOWN_KEY = "queries_whose_landmark_training_shows"


def _folder(root: Path, benchmark: str) -> Path:
    return Path(root) / "artifacts" / benchmark


def _shown(root: Path, benchmark: str) -> frozenset[str]:
    """The queries whose landmark a flagged class is named after."""
    return frozenset(read_facts(_folder(root, benchmark) / "contamination").get(SHOWN_KEY, {}))


def _scored(root: Path, benchmark: str, system: str) -> bool:
    return (Path(root) / SCORES / benchmark / system / "scores.parquet").is_file()


def _headline(folder: Path) -> str:
    from cairn.results.show import HEADLINES

    metrics = {row.name.metric for row in read_results(folder / "scores.parquet")}
    if not metrics:
        raise ArtifactError(f"{folder}: there is no number in it")
    return next((name for name in HEADLINES if name in metrics), min(metrics))


def _split(path: Path, metric: str, shown: frozenset[str], key: str | None) -> dict[str, dict[str, float]]:
    """Seed (`-` where `key` is None) → `slice/shown` and `slice/rest` → mean over such queries, in points."""
    import pyarrow.parquet as pq

    if not shown:
        return {}
    values: dict[tuple[str, str], list[float]] = {}
    for row in pq.ParquetFile(path).read().to_pylist():
        if row["metric"] == metric and is_first(row["stage"]) and row["value"] is not None:
            part = f"{row['slice']}/{SHOWN if row['query_id'] in shown else REST}"
            values.setdefault((row[key] if key else NONE, part), []).append(row["value"])
    found: dict[str, dict[str, float]] = {}
    for (seed, part), members in sorted(values.items()):
        found.setdefault(seed, {})[part] = 100 * float(np.mean(members))
    return found


def _training_ids(described: Path) -> list[str]:
    """The training images that have a descriptor, those that could not be decoded left out."""
    return present(open_shards(described)).ids


def _images(training: Manifest, contamination: Path, which: str) -> list[str]:
    learning = learning_manifest(training, contamination, which)
    return [learning.image_id[row] for row in learning.rows(train=True).tolist()]


def _json(system: str, analysis: SeedAnalysis | str, without: Mapping[str, float]) -> dict[str, Any]:
    if isinstance(analysis, str):
        return {"system": system, "note": analysis}
    return {"system": system, **analysis.as_json(), "without_head": dict(without)}


def _count(share: Mapping[str, Any]) -> str:
    return f"{share['part']:,} of {share['whole']:,}"


def _share(share: Mapping[str, Any]) -> str:
    return f"{_count(share)} {share['denominator']}"


def _text(
    audits: Sequence[str],
    comparisons: Sequence[tuple[str, SeedAnalysis | str, Mapping[str, float]]],
    plain: Mapping[str, Mapping[str, float]],
    uses: Sequence[AuditedUse],
) -> str:
    from rich.console import Console
    from rich.table import Table

    from cairn.contamination.show import seed_tables, uses_table

    written = io.StringIO()
    console = Console(file=written, width=120, color_system=None, force_terminal=False, legacy_windows=False)
    for line in dict.fromkeys(audits):
        console.print(line)
    console.print()
    for system, analysis, without in comparisons:
        if isinstance(analysis, str):
            console.print(f"{system}: {analysis}")
            continue
        console.print(f"{system}: heads {' and '.join(analysis.protocols)}")
        for part in seed_tables(analysis):
            console.print(part)
        cells = [f"{one.cell} {without[one.cell]:.1f}" for one in analysis.cells if one.cell in without]
        console.print(f"Without a head: {', '.join(cells)}.\n")
    table = Table(header_style="bold")
    for name in ("system", "slice", SHOWN, REST):
        table.add_column(name, justify="left" if name in ("system", "slice") else "right")
    for name, cells in plain.items():
        benchmark = name.partition("/")[0]
        for cell in sorted(cells):
            if f"{cell}/{SHOWN}" in cells and f"{cell}/{REST}" in cells:
                values = (f"{cells[f'{cell}/{part}']:.1f}" for part in (SHOWN, REST))
                table.add_row(name, cell.removeprefix(f"{benchmark}/"), *values)
    if table.row_count:
        console.print(
            "without a head, first stage: queries whose landmark training shows, and the rest (points)"
        )
        console.print(table)
        console.print()
    console.print(uses_table(uses))
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"
