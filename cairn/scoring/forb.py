"""FORB: retrieval results per object type against the published ground truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import InputError, UsageError
from cairn.metrics import forb
from cairn.metrics.ragged import Floats, Ints
from cairn.metrics.result import PerQuery, ScoredRun, mean_row
from cairn.scoring.files import read_lines, read_records

SIZES = {
    "animated_cards": 12529,
    "photorealistic_cards": 1005,
    "bookcovers": 11209,
    "paintings": 1045,
    "currency": 1583,
    "logos": 709,
    "packaged_goods": 2858,
    "movie_posters": None,
}
"""Database images of each object type in the order of the whole gallery (official `ID_OFFSET`, differences)."""
SUBSET_SIZES = {
    "animated_cards": 9588,
    "photorealistic_cards": 935,
    "bookcovers": 7443,
    "paintings": 317,
    "currency": 1002,
    "logos": 329,
    "packaged_goods": 2302,
    "movie_posters": None,
}
"""The same of FORB_subset (FORB `metadata/README.md`)."""
DIFFICULTIES = ("easy", "medium", "hard")
IDS, SCORES = "candidate_db_ids", "global_scores"


@dataclass(frozen=True)
class ObjectRun:
    """One object type: its queries in order, positives and candidates by number in the whole gallery."""

    names: tuple[str, ...]
    difficulty: tuple[str | None, ...]
    n_positives: Ints  # [queries]
    query: Ints  # [candidates], ascending
    score: Floats  # [candidates]
    correct: np.ndarray  # [candidates], bool


def score(
    metadata: Path,
    results: Path,
    objects: Sequence[str] | None = None,
    subset: bool = False,
    before_reranking: bool = False,
) -> ScoredRun:
    """mAP@{1,5} and t-mAP@{1,5}: `overall`, per difficulty and per object type.

    `metadata` holds `{object}_gt.ndjson`, `results` holds `{object}_all.ndjson` and, for the thresholds,
    `{object}_oods.ndjson`. Candidate ids count from 0 over the concatenated object types. `before_reranking`
    takes the lists that re-ranked results keep of their first stage, as the official script can be told to.
    """
    metadata, results = Path(metadata), Path(results)
    chosen = list(SIZES) if not objects else list(dict.fromkeys(objects))
    if unknown := [name for name in chosen if name not in SIZES]:
        raise UsageError(f"unknown object type {unknown[0]!r}; known: {', '.join(SIZES)}")
    warnings: list[str] = []
    offsets, total = _offsets(metadata, SUBSET_SIZES if subset else SIZES, warnings)
    keys = tuple(f"{key}_before_reranking" for key in (IDS, SCORES)) if before_reranking else (IDS, SCORES)
    runs = {name: _read_object(metadata, results, name, offsets[name], total, keys) for name in chosen}
    asked = {name: len(run.names) for name, run in runs.items()}
    levels = _thresholds(results, asked, warnings, keys)
    per_query = list(_values(runs, levels))
    rows = tuple(mean_row(each) for each in per_query)
    return ScoredRun("forb", rows, tuple(per_query), tuple(warnings))


def _values(runs: dict[str, ObjectRun], levels: Floats | None):
    n_before = np.cumsum([0, *(len(run.names) for run in runs.values())])
    query = np.concatenate(
        [run.query + start for run, start in zip(runs.values(), n_before[:-1], strict=True)]
    )
    score = np.concatenate([run.score for run in runs.values()])
    correct = np.concatenate([run.correct for run in runs.values()])
    n_positives = np.concatenate([run.n_positives for run in runs.values()])
    names = [name for run in runs.values() for name in run.names]
    difficulty = [level for run in runs.values() for level in run.difficulty]
    scores = forb.score(query, score, correct, n_positives, levels)
    none = np.full(len(names), np.nan)
    values = {f"map@{k}": each.average_precision for k, each in zip(forb.KS, scores, strict=True)}
    for k, each in zip(forb.KS, scores, strict=True):
        cut = each.threshold_average_precision
        values[f"t-map@{k}"] = none if cut is None else cut
    slices = {"overall": np.arange(len(names))}
    slices |= {level: np.flatnonzero([each == level for each in difficulty]) for level in DIFFICULTIES}
    slices |= {
        name: np.arange(start, end)
        for name, start, end in zip(runs, n_before[:-1], n_before[1:], strict=True)
    }
    for part, members in slices.items():
        for metric, each in values.items():
            yield PerQuery(part, metric, tuple(names[i] for i in members), each[members])


def _read_object(
    metadata: Path, results: Path, name: str, offset: int, total: int | None, keys: tuple[str, ...]
) -> ObjectRun:
    truth: dict[int, tuple[list[int], str | None]] = {}
    path = metadata / f"{name}_gt.ndjson"
    for line, record in read_records(path):
        where = f"{path}:{line}"
        number = _query_id(where, record, truth)
        difficulty = record.get("difficulty")
        if difficulty not in (*DIFFICULTIES, None):
            raise InputError(
                f"{where}: query {number}: difficulty {difficulty!r:.40}; expected {DIFFICULTIES}"
            )
        ids = _integers(where, number, "groundtruth_ids", record, 1)
        truth[number] = ids, difficulty
    if not truth:
        raise InputError(f"{path}: no query; expected records with query_id, groundtruth_ids, difficulty")
    place = {number: row for row, number in enumerate(truth)}
    candidates: dict[int, tuple[list[int], list[float]]] = {}
    path = results / f"{name}_all.ndjson"
    for line, record in read_records(path):
        where = f"{path}:{line}"
        number = _query_id(where, record, candidates)
        if number not in truth:
            raise InputError(f"{where}: query {number} is not in {name}_gt.ndjson")
        candidates[number] = _candidates(where, number, record, total, keys)
    missing = next((number for number in truth if number not in candidates), None)
    if missing is not None:
        raise InputError(f"{path}: query {missing} has no record; every query of {name}_gt.ndjson needs one")
    counts = [len(candidates[number][0]) for number in truth]
    correct = [
        image in wanted
        for number, (ids, _) in truth.items()
        # Ground-truth ids count from 1 within the object type.
        for wanted in [{each + offset - 1 for each in ids}]
        for image in candidates[number][0]
    ]
    return ObjectRun(
        tuple(f"{name}/{number}" for number in truth),
        tuple(difficulty for _, difficulty in truth.values()),
        np.array([len(ids) for ids, _ in truth.values()], np.int64),
        np.repeat(np.arange(len(place)), counts).astype(np.int64),
        np.array([value for number in truth for value in candidates[number][1]], np.float64),
        np.array(correct, bool),
    )


def _thresholds(
    results: Path, asked: dict[str, int], warnings: list[str], keys: tuple[str, ...]
) -> Floats | None:
    present = [name for name in SIZES if (results / f"{name}_oods.ndjson").exists()]
    tops = []
    for name in present:
        path = results / f"{name}_oods.ndjson"
        seen: dict[int, bool] = {}
        for line, record in read_records(path):
            number = _query_id(f"{path}:{line}", record, seen)
            seen[number] = True
            _, values = _candidates(f"{path}:{line}", number, record, None, keys)
            tops.append(max(values, default=forb.NOTHING))
        if len(seen) != asked.get(name, len(seen)):
            warnings.append(
                f"{path.name} has {len(seen):,} queries where {name}_gt.ndjson has {asked[name]:,}: "
                "the thresholds come from those it has"
            )
    if not tops:
        warnings.append(
            "no query in any {object}_oods.ndjson of the results: t-mAP needs them and has no value"
        )
        return None
    if len(present) < len(SIZES):
        warnings.append(
            f"thresholds from {len(present)} of {len(SIZES)} object types ({', '.join(present)}); "
            "the official ones need all eight"
        )
    return forb.thresholds(np.array(tops))


def _offsets(
    metadata: Path, sizes: dict[str, int | None], warnings: list[str]
) -> tuple[dict[str, int], int | None]:
    """First gallery number of each object type, and the gallery's size where it is known.

    Sizes are counted in `{object}_database.ndjson` where that file is there, else the published ones.
    """
    counted: dict[str, int | None] = dict(sizes)
    differing = []
    for name, published in sizes.items():
        path = metadata / f"{name}_database.ndjson"
        if path.exists():
            counted[name] = sum(1 for _ in read_lines(path))
            if published is not None and counted[name] != published:
                differing.append(name)
    if differing:
        fits = all(counted[name] == SUBSET_SIZES[name] for name in differing if sizes is SIZES)
        warnings.append(
            f"{differing[0]}_database.ndjson has {counted[differing[0]]:,} images where "
            f"{'FORB' if sizes is SIZES else 'FORB_subset'} has {sizes[differing[0]]:,}; gallery numbers follow "
            f"the files at hand{' (this looks like FORB_subset: see --subset)' if fits and sizes is SIZES else ''}"
        )
    offsets, total = {}, 0
    for name in sizes:
        offsets[name] = total
        total += counted[name] or 0
    listing = metadata / "all_database_images.txt"
    if listing.exists():
        return offsets, sum(1 for _ in read_lines(listing))
    return offsets, total if all(size is not None for size in counted.values()) else None


def _query_id(where: str, record: dict[str, Any], seen: dict[int, Any]) -> int:
    number = record.get("query_id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise InputError(f"{where}: query_id is {number!r:.40}; expected a whole number")
    if number in seen:
        raise InputError(f"{where}: query {number} occurs twice")
    return number


def _integers(where: str, query: int, key: str, record: dict[str, Any], least: int) -> list[int]:
    values = record.get(key)
    if not isinstance(values, list) or not all(
        isinstance(v, int) and not isinstance(v, bool) for v in values
    ):
        raise InputError(f"{where}: query {query}: {key} must be a list of whole numbers")
    if wrong := [value for value in values if value < least]:
        raise InputError(f"{where}: query {query}: {key} holds {wrong[0]}; ids start at {least}")
    return values


def _candidates(
    where: str, query: int, record: dict[str, Any], total: int | None, keys: tuple[str, ...]
) -> tuple[list[int], list[float]]:
    id_key, score_key = keys
    ids = _integers(where, query, id_key, record, 0)
    values = record.get(score_key)
    if not isinstance(values, list) or len(values) != len(ids):
        raise InputError(
            f"{where}: query {query}: {score_key} must be a list as long as {id_key} ({len(ids)})"
        )
    for image, value in zip(ids, values, strict=True):
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            raise InputError(f"{where}: query {query}, image {image}: the score {value!r:.40} is not finite")
        if total is not None and image >= total:
            raise InputError(
                f"{where}: query {query}: image {image} does not exist; the gallery has {total:,}"
            )
    if len(set(ids)) < len(ids):
        repeated = next(image for image in ids if ids.count(image) > 1)
        raise InputError(f"{where}: query {query}: image {repeated} is a candidate twice")
    return ids, [float(value) for value in values]
