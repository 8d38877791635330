"""INQUIRE: a run of text queries against the published annotations, Fullrank and Rerank."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cairn.errors import InputError
from cairn.metrics import inquire
from cairn.metrics.ragged import Bools, Floats, Ints, count_per_query
from cairn.metrics.result import PerQuery, ScoredRun, scored
from cairn.scoring.files import (
    Table,
    check_depth,
    encode,
    first_repeat,
    number_column,
    read_table,
    unfinished,
)
from cairn.scoring.show import shown

ATTRIBUTES = {"supercategory": "supercategory", "category": "category", "iconic_group": "iconic-group"}
"""Columns that make slices, and how the slices are called."""
RUN = ("query_id", "image_path", "score")
RELEVANT = {"1": True, "0": False, "true": True, "false": False, "1.0": True, "0.0": False}
DEPTH = 50
UNFOUND = -100
"""The score that the official nDCG gives to positives which a list does not hold."""


@dataclass(frozen=True)
class Run:
    """A run's rows in the order given."""

    table: Table
    query: Ints  # [rows] number among the queries
    score: Floats  # [rows]


def read_queries(path: Path) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Number of every query id, and the columns that make slices, from `inquire_queries_{val,test}.csv`."""
    table = read_table(Path(path), ("query_id", *ATTRIBUTES), more_columns=True)
    ids: dict[str, int] = {}
    for row, name in enumerate(table.columns["query_id"]):
        if not name or name in ids:
            table.fail(row, f"query {name} occurs twice" if name else "the query id is empty")
        ids[name] = row
    if not ids:
        raise InputError(f"{path}: no query; expected rows below the header")
    return ids, {column: table.columns[column] for column in ATTRIBUTES}


def read_annotations(path: Path, queries: dict[str, int]) -> set[tuple[int, str]]:
    """The relevant (query number, image path) pairs of these queries, from `inquire_annotations.csv`."""
    table = read_table(Path(path), ("query_id", "image_path"), more_columns=True)
    pairs = zip(table.columns["query_id"], table.columns["image_path"], strict=True)
    return {(queries[query], image) for query, image in pairs if query in queries}


def read_run(path: Path, queries: dict[str, int]) -> Run:
    """Read `query_id,image_path,score`; InputError for unknown queries, repeated images, scores not finite."""
    table = read_table(Path(path), RUN)
    names, images = table.columns["query_id"], table.columns["image_path"]
    query, _ = encode(names, queries)
    if (unknown := np.flatnonzero(query < 0)).size:
        row = int(unknown[0])
        table.fail(row, f"query {names[row]!r:.60}, image {images[row]:.60}: the query does not exist")
    score = number_column(table, "score", ("query_id", "image_path"))
    image, _ = encode(images)
    repeated = first_repeat(query, image)
    if repeated is not None:
        table.fail(repeated, f"query {names[repeated]}, image {images[repeated]:.80}: occurs twice")
    return Run(table, query, score)


def score(queries: Path, annotations: Path, run: Path, k: int = DEPTH) -> ScoredRun:
    """AP@k, nDCG@k, MRR, precision@k and recall@k of the whole collection's `k` best images per query.

    Slices: `all`, then every supercategory, category and iconic group that is named (some queries have no iconic
    group). Means over queries; one without an annotated image is left out, one without a row in the run scores 0.
    """
    check_depth(k)
    ids, attributes = read_queries(queries)
    relevant = read_annotations(annotations, ids)
    rows = read_run(run, ids)
    pairs = zip(rows.query.tolist(), rows.table.columns["image_path"], strict=True)
    flags = np.fromiter((pair in relevant for pair in pairs), bool, len(rows.query))
    n_positives = np.bincount([number for number, _ in relevant], minlength=len(ids))
    result = inquire.score(rows.query, rows.score, flags, n_positives, k)
    metrics = {
        f"map@{k}": result.average_precision,
        f"ndcg@{k}": result.ndcg,
        "mrr": result.reciprocal_rank,
        f"precision@{k}": result.precision,
        f"recall@{k}": result.recall,
    }
    listed = count_per_query(rows.query, len(ids))
    warnings = [*_notes(rows, flags, listed, n_positives), *unfinished(queries, annotations, run)]
    if short := int(((listed < k) & (listed > 0) & (n_positives > 0)).sum()):
        theirs = inquire.score(rows.query, rows.score, flags, n_positives, k, inquire.own_depths(listed, k))
        warnings.append(
            f"{short:,} queries have fewer than {k} images; what is missing counts as irrelevant (taking each list's "
            f"own length for k, as the official function does, gives mAP {_percent(theirs.average_precision)}, nDCG "
            f"{_percent(theirs.ndcg)}, precision {_percent(theirs.precision)}, which are not values at {k})"
        )
    low = rows.score <= UNFOUND
    if low.any():
        warnings.append(
            f"{len(np.unique(rows.query[low])):,} queries have scores of {UNFOUND} or less, where the official nDCG "
            "puts the positives that were not found; here they come last, as its comment says they should"
        )
    return scored("inquire", _sliced(metrics, tuple(ids), attributes), warnings)


@dataclass(frozen=True)
class FixedLists:
    """`inquire_rerank.csv`: the images each query is asked about."""

    ids: dict[str, int]  # number of every query by its name: its query_id, or its text where there is none
    texts: tuple[str, ...] | None  # per query, None where the file has only ids
    relevant: dict[tuple[int, str], bool]  # by query number and image path
    attributes: dict[str, list[str]]  # per column that makes slices: a value per query


def read_fixed_lists(path: Path) -> FixedLists:
    """Read `inquire_rerank.csv`.

    Its columns: `query_id` or `query` (the text; `query_text` does, too) or both; `image_path`, `inat24_file_name`
    or `file_name`; `relevant` (0 or 1); and those that make slices, where it has them. InputError, naming the line,
    for a pair that occurs twice, a query with two texts or two values of a slice, another value of `relevant`.
    """
    table = read_table(Path(path), ("relevant",), more_columns=True)
    names = table.columns[_column(table, "query_id", "query", "query_text")]
    image_column = _column(table, "image_path", "inat24_file_name", "file_name")
    query, distinct = encode(names)
    ids = {name: number for number, name in enumerate(distinct)}
    if not ids:
        raise InputError(f"{path}: no row below the header")
    flags: dict[tuple[int, str], bool] = {}
    for row, pair in enumerate(zip(query.tolist(), table.columns[image_column], strict=True)):
        value = RELEVANT.get(table.columns["relevant"][row].strip().lower())
        if value is None:
            table.fail(row, f"relevant is {table.columns['relevant'][row]!r:.40}; expected 0 or 1")
        if pair in flags:
            table.fail(row, f"query {names[row]:.60}, image {pair[1]:.80}: occurs twice")
        flags[pair] = value
    attributes = {
        column: _of_query(table, column, query, len(ids)) for column in ATTRIBUTES if column in table.columns
    }
    text = next((column for column in ("query", "query_text") if column in table.columns), None)
    texts = tuple(_of_query(table, text, query, len(ids))) if text else None
    return FixedLists(ids, texts, flags, attributes)


def score_rerank(rerank: Path, run: Path) -> ScoredRun:
    """AP, nDCG and MRR over the fixed images of every query in `inquire_rerank.csv` (see `read_fixed_lists`).

    The run has to score each of its images, and no other.
    """
    lists = read_fixed_lists(rerank)
    ids, flags, distinct = lists.ids, lists.relevant, tuple(lists.ids)
    rows = read_run(run, ids)
    pairs = list(zip(rows.query.tolist(), rows.table.columns["image_path"], strict=True))
    for row, pair in enumerate(pairs):
        if pair not in flags:
            rows.table.fail(
                row, f"query {distinct[pair[0]]:.60}: image {pair[1]:.80} is not among its images"
            )
    scored_pairs = set(pairs)
    missing = next((pair for pair in flags if pair not in scored_pairs), None)
    if missing is not None:
        raise InputError(f"{run}: query {distinct[missing[0]]:.60}: image {missing[1]:.80} has no score")
    relevant = np.array([flags[pair] for pair in pairs], bool)
    n_positives = count_per_query(rows.query[relevant], len(ids))
    depth = int(count_per_query(rows.query, len(ids)).max(initial=1))
    result = inquire.score(rows.query, rows.score, relevant, n_positives, depth)
    metrics = {"map": result.average_precision, "ndcg": result.ndcg, "mrr": result.reciprocal_rank}
    warnings = [*_notes(rows, relevant, np.ones(len(ids)), n_positives), *unfinished(rerank, run)]
    return scored("inquire-rerank", _sliced(metrics, distinct, lists.attributes), warnings)


def _sliced(
    metrics: dict[str, Floats], names: tuple[str, ...], attributes: dict[str, list[str]]
) -> Iterator[PerQuery]:
    slices: dict[str, Bools] = {"all": np.ones(len(names), bool)}
    for column, title in ATTRIBUTES.items():
        values = np.array(attributes.get(column, []), object)
        # A query without a group is in none: pandas' groupby, which the authors use, drops it too.
        for value in sorted(set(values.tolist()) - {""}):
            slices[f"{title}:{value}"] = values == value
    for part, members in slices.items():
        chosen = tuple(names[i] for i in np.flatnonzero(members))
        for metric, values in metrics.items():
            yield PerQuery(part, metric, chosen, values[members])


def _percent(values: Floats) -> str:
    """The mean over the queries that count, as a table shows it."""
    counted = values[~np.isnan(values)]
    return shown("map", float(counted.mean()) if len(counted) else None)


def _notes(run: Run, relevant: Bools, listed: Ints | Floats, n_positives: Ints) -> list[str]:
    notes = []
    if missing := int(((listed == 0) & (n_positives > 0)).sum()):
        notes.append(f"{missing:,} queries have no row in the run and score 0")
    if empty := int((n_positives == 0).sum()):
        notes.append(f"{empty:,} queries have no relevant image and are left out")
    if len(relevant) and not relevant.any():
        example = run.table.columns["image_path"][0]
        notes.append(
            f"no image of the run is relevant to its query: are its paths (like {example:.80}) right?"
        )
    return notes


def _column(table: Table, *names: str) -> str:
    for name in names:
        if name in table.columns:
            return name
    raise InputError(f"{table.path}:1: none of the columns {', '.join(names)} is there")


def _of_query(table: Table, column: str, query: Ints, n_queries: int) -> list[str]:
    """A column's value of every query; InputError where a query has two."""
    values: list[str] = [""] * n_queries
    seen = [False] * n_queries
    for row, (number, value) in enumerate(zip(query.tolist(), table.columns[column], strict=True)):
        if seen[number] and values[number] != value:
            table.fail(row, f"the query has the {column} {values[number]!r} above and {value!r} here")
        values[number], seen[number] = value, True
    return values
