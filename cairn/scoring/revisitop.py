"""Revisited Oxford and Paris: ground truth in `gnd_*.pkl` (as INSTRE has it), run as a score or rank matrix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cairn.errors import InputError, UsageError
from cairn.metrics import revisitop
from cairn.metrics.ragged import Ints
from cairn.metrics.ranks import ranks_by_counting, ranks_in_order
from cairn.metrics.result import PerQuery, ScoredRun, scored
from cairn.progress import track
from cairn.scoring.files import read_json
from cairn.untrusted import load_array, load_pickle

REVISITED = ("easy", "hard", "junk")
INSTRE = ("ok", "junk")


@dataclass(frozen=True)
class Gnd:
    """A ground truth in the revisited layout."""

    path: Path
    images: tuple[str, ...]  # imlist: the gallery without distractors
    queries: tuple[str, ...]  # qimlist
    lists: tuple[Mapping[str, Ints], ...]  # per query: image numbers of each grade, as listed
    boxes: tuple[tuple[float, ...] | None, ...]  # per query: bbx, x1 y1 x2 y2 in pixels
    warnings: tuple[str, ...]


def read_gnd(path: Path, grades: Sequence[str] | None = REVISITED) -> Gnd:
    """Read `gnd_*.pkl`, or `.json` with the same keys: imlist, qimlist, gnd[i].{bbx, *grades}.

    `grades` None takes what the entries have: easy, hard and junk, or ok and junk (junk may be missing there).
    Raises InputError, naming query and image, for missing keys, numbers outside imlist, and wrong types.
    """
    path = Path(path)
    data = read_json(path) if path.suffix.lower() == ".json" else load_pickle(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: a {type(data).__name__} was found; expected imlist, qimlist and gnd")
    for key in ("imlist", "qimlist", "gnd"):
        if not isinstance(data.get(key), list):
            raise InputError(f"{path}: the list {key!r} is missing; expected imlist, qimlist and gnd")
    images, queries = (_names(path, key, data[key]) for key in ("imlist", "qimlist"))
    if len(data["gnd"]) != len(queries):
        raise InputError(f"{path}: gnd has {len(data['gnd'])} entries for {len(queries)} queries in qimlist")
    if not queries:
        raise InputError(f"{path}: qimlist is empty")
    if grades is None:
        first = data["gnd"][0]
        grades = INSTRE if isinstance(first, dict) and "ok" in first else REVISITED
    lists, boxes, overlapping = [], [], []
    for number, entry in enumerate(data["gnd"]):
        where = f"{path}: query {queries[number]} (gnd[{number}])"
        if not isinstance(entry, dict):
            raise InputError(f"{where}: expected {', '.join(grades)}, found a {type(entry).__name__}")
        if grades == INSTRE:
            entry = {"junk": [], **entry}
        of_query = {grade: _numbers(where, grade, entry.get(grade), len(images)) for grade in grades}
        everything = np.concatenate(list(of_query.values()))
        if len(np.unique(everything)) != len(everything):
            overlapping.append(queries[number])
        lists.append(of_query)
        boxes.append(_box(where, entry.get("bbx")))
    warnings = (
        [
            f"{path.name}: {len(overlapping)} queries list an image twice (first: {overlapping[0]}); "
            "it is counted as often as it is listed, as the official code does"
        ]
        if overlapping
        else []
    )
    return Gnd(path, images, queries, tuple(lists), tuple(boxes), tuple(warnings))


def score(gnd: Path, scores: Path | None = None, ranks: Path | None = None) -> ScoredRun:
    """Easy, Medium and Hard mAP and mP@{1,5,10} of scores [query, gallery] or ranks [gallery, query].

    The gallery is imlist, in its order, then distractors if there are more columns (rows of ranks). Among equal
    scores the lower gallery number ranks first.
    """
    truth = read_gnd(gnd)
    run, warnings = judged_ranks(truth, scores, ranks)
    values = []
    for setup, (positives, junk) in revisitop.SETUPS.items():
        result = score_grades(truth, run, positives, junk)
        values.append(PerQuery(setup, "map", run.names, result.average_precision))
        for column, kappa in enumerate(revisitop.KAPPAS):
            values.append(PerQuery(setup, f"mp@{kappa}", run.names, result.precision_at[:, column]))
    return scored("revisitop", values, warnings)


@dataclass(frozen=True)
class Run:
    """The judged images of every query with their ranks, sorted by query, then rank."""

    names: tuple[str, ...]
    query: Ints
    rank: Ints
    image: Ints


def score_grades(
    truth: Gnd, run: Run, positives: Sequence[str], junk: Sequence[str]
) -> revisitop.SetupScores:
    flags = []
    for grades in (positives, junk):
        flag = np.zeros(len(run.query), bool)
        for number, lists in enumerate(truth.lists):
            rows = slice(*np.searchsorted(run.query, [number, number + 1]))
            flag[rows] = np.isin(run.image[rows], np.concatenate([lists[grade] for grade in grades]))
        flags.append(flag)
    n_positives = np.array([sum(len(lists[grade]) for grade in positives) for lists in truth.lists])
    return revisitop.score_setup(run.query, run.rank, flags[0], flags[1], n_positives)


def judged_ranks(truth: Gnd, scores: Path | None, ranks: Path | None) -> tuple[Run, list[str]]:
    warnings = list(truth.warnings)
    judged = [np.unique(np.concatenate(list(lists.values()))) for lists in truth.lists]
    ranks_of = ranks_by_counting if scores is not None else ranks_in_order
    found = [ranks_of(row, judged[number]) for number, row in checked_rows(truth, scores, ranks, warnings)]
    query = np.repeat(np.arange(len(judged)), [len(images) for images in judged])
    image, rank = np.concatenate(judged), np.concatenate(found)
    listed = rank >= 0
    query, image, rank = query[listed], image[listed], rank[listed]
    order = np.lexsort((rank, query))
    return Run(query_names(truth), query[order], rank[order], image[order]), warnings


def checked_rows(
    truth: Gnd, scores: Path | None, ranks: Path | None, warnings: list[str]
) -> Iterator[tuple[int, np.ndarray]]:
    """Number of every query and its checked row of scores, or its ranked images; notes go to `warnings`."""
    if (scores is None) == (ranks is None):
        raise UsageError("give either --scores or --ranks")
    path = Path(scores or ranks or "")
    matrix = load_array(path)
    if scores is not None:
        _check_scores(path, matrix, truth)
    else:
        _check_ranks(path, matrix, truth, warnings)
    for number in track(range(len(truth.queries)), "ranking", unit="queries"):
        row = np.asarray(matrix[number] if scores is not None else matrix[:, number])
        if scores is not None:
            _check_finite(path, row, number, truth)
        else:
            _check_column(path, row, number, truth)
        yield number, row


def query_names(truth: Gnd) -> tuple[str, ...]:
    """The queries' names, numbered where two are alike."""
    if len(set(truth.queries)) == len(truth.queries):
        return truth.queries
    return tuple(f"{name}#{number}" for number, name in enumerate(truth.queries))


def _check_scores(path: Path, matrix: np.ndarray, truth: Gnd) -> None:
    n_queries, n_images = len(truth.queries), len(truth.images)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: an array of {matrix.dtype} with shape {matrix.shape}; "
            f"expected scores [query, gallery] = ({n_queries}, {n_images} or more)"
        )
    if matrix.shape[0] != n_queries or matrix.shape[1] < n_images:
        hint = "; it looks transposed" if matrix.shape[1] == n_queries else ""
        raise InputError(
            f"{path}: shape {matrix.shape}; expected scores [query, gallery] = "
            f"({n_queries}, {n_images} or more with distractors){hint}"
        )


def _check_finite(path: Path, row: np.ndarray, number: int, truth: Gnd) -> None:
    if row.dtype.kind == "f" and (bad := np.flatnonzero(~np.isfinite(row))).size:
        image = int(bad[0])
        name = truth.images[image] if image < len(truth.images) else f"distractor {image}"
        raise InputError(
            f"{path}: query {truth.queries[number]}, image {name}: the score is {row[image]}; must be finite"
        )


def _check_ranks(path: Path, matrix: np.ndarray, truth: Gnd, warnings: list[str]) -> None:
    n_queries, n_images = len(truth.queries), len(truth.images)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iu" or matrix.shape[1] != n_queries:
        hint = "; it looks transposed" if matrix.ndim == 2 and matrix.shape[0] == n_queries else ""
        raise InputError(
            f"{path}: an array of {matrix.dtype} with shape {matrix.shape}; expected image numbers "
            f"[gallery, query] = ({n_images} or more with distractors, {n_queries}){hint}"
        )
    if matrix.shape[0] < n_images:
        warnings.append(
            f"{path.name}: {matrix.shape[0]:,} of at least {n_images:,} gallery images are ranked; "
            "positives beyond count as not found, and junk beyond takes nothing away"
        )


def _check_column(path: Path, column: np.ndarray, number: int, truth: Gnd) -> None:
    """A column holds distinct image numbers; where all of imlist is ranked, each of 0 to rows - 1 once."""
    name = truth.queries[number]
    whole = len(column) >= len(truth.images)
    bad = np.flatnonzero((column < 0) | ((column >= len(column)) & whole))
    if bad.size:
        raise InputError(
            f"{path}: query {name}, rank {bad[0]}: image {column[bad[0]]} does not exist; "
            f"expected 0 to {len(column) - 1 if whole else 'the gallery size'}"
        )
    values, counts = np.unique(column, return_counts=True)
    if len(values) < len(column):
        repeated = int(values[counts > 1][0])
        image = truth.images[repeated] if repeated < len(truth.images) else f"distractor {repeated}"
        raise InputError(f"{path}: query {name}: image {image} ({repeated}) is ranked twice")


def _names(path: Path, key: str, values: list[Any]) -> tuple[str, ...]:
    for number, value in enumerate(values):
        if not isinstance(value, str) or not value:
            raise InputError(f"{path}: {key}[{number}] is {value!r:.40}; expected an image name")
    return tuple(values)


def _numbers(where: str, grade: str, values: Any, n_images: int) -> Ints:
    if isinstance(values, np.ndarray):
        values = values.ravel().tolist()
    if not isinstance(values, list | tuple):
        found = "missing" if values is None else f"a {type(values).__name__}"
        _fail(where, f"{grade} is {found}; expected a list of image numbers")
    for value in values:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if not isinstance(number, int) or isinstance(number, bool):
            _fail(where, f"{grade} holds {value!r:.40}; expected image numbers")
        if not 0 <= number < n_images:
            _fail(where, f"{grade} holds image {value!r:.40}; imlist has 0 to {n_images - 1}")
    return np.array(values, np.int64)


def _box(where: str, values: Any) -> tuple[float, ...] | None:
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        values = values.ravel().tolist()
    if (
        not isinstance(values, list | tuple)
        or len(values) != 4
        or not all(isinstance(v, int | float) and abs(v) < 1e15 for v in values)  # NaN fails too
    ):
        _fail(where, f"bbx is {values!r:.60}; expected four numbers x1, y1, x2, y2")
    return tuple(float(value) for value in values)


def _fail(where: str, message: str) -> NoReturn:
    raise InputError(f"{where}: {message}")
