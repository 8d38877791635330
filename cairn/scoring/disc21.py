"""DISC21 (Image Similarity Challenge): predicted matches against the ground truth of a query split."""

from pathlib import Path

import numpy as np

from cairn.errors import InputError
from cairn.metrics import micro_ap
from cairn.metrics.ragged import Floats, Ints, divide
from cairn.metrics.result import PerQuery, Row, ScoredRun, existing
from cairn.scoring.files import encode, first_repeat, number_column, read_table, unfinished


def read_truth(path: Path) -> tuple[list[str], dict[tuple[str, str], int], bool]:
    """Query ids in order, the true pairs, and whether distractor queries are listed.

    Rows `query_id,reference_id`, with or without that header; an empty reference marks a distractor query.
    """
    table = read_table(Path(path), ("query_id", "reference_id"), header_optional=True)
    queries: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    matched, distractors = set(), set()
    for row, pair in enumerate(zip(*table.columns.values(), strict=True)):
        query, reference = pair
        if not query:
            table.fail(row, "the query id is empty")
        if pair in pairs or query in distractors or (not reference and query in matched):
            table.fail(row, f"query {query}, reference {reference or '(none)'}: contradicts or repeats a row")
        queries.setdefault(query, len(queries))
        if reference:
            pairs[pair] = len(pairs)
            matched.add(query)
        else:
            distractors.add(query)
    if not queries:
        raise InputError(f"{path}: no query; expected rows of query_id,reference_id")
    return list(queries), pairs, bool(distractors)


def read_predictions(
    path: Path, queries: list[str], pairs: dict[tuple[str, str], int], all_listed: bool
) -> tuple[Ints, Floats, Ints]:
    """Query number, score and number of the true pair (-1: a false match) of every prediction.

    Rows `query_id,reference_id,score`, with or without that header. InputError for a repeated pair, a score that
    is not finite, more than 500,000 rows, and a query the ground truth does not list (if it lists all queries).
    """
    table = read_table(Path(path), ("query_id", "reference_id", "score"), header_optional=True)
    score = number_column(table, "score", ("query_id", "reference_id"))
    if len(table) > micro_ap.LIMIT:
        raise InputError(f"{path}: {len(table):,} predictions; the challenge admits {micro_ap.LIMIT:,}")
    query_names, reference_names = table.columns["query_id"], table.columns["reference_id"]
    known = {name: number for number, name in enumerate(queries)}
    query, _ = encode(query_names, known)
    if (unknown := np.flatnonzero(query < 0)).size:
        if all_listed or len(unknown) == len(query):
            row = int(unknown[0])
            table.fail(row, f"query {query_names[row]!r:.60} is not in the ground truth")
        # Without distractor queries in the ground truth, those predicted for are queries all the same.
        for row in unknown:
            query[row] = known.setdefault(query_names[row], len(known))
    reference, _ = encode(reference_names)
    repeated = first_repeat(query, reference)
    if repeated is not None:
        table.fail(
            repeated,
            f"query {query_names[repeated]}, reference {reference_names[repeated]} is predicted twice",
        )
    pair = np.fromiter(
        (pairs.get(each, -1) for each in zip(query_names, reference_names, strict=True)), np.int64, len(query)
    )
    return query, score, pair


def score(predictions: Path, ground_truth: Path) -> ScoredRun:
    """micro-AP, recall at precision 90 with its threshold, and recall at ranks 1 and 10, over all queries."""
    queries, pairs, all_listed = read_truth(ground_truth)
    query, value, pair = read_predictions(predictions, queries, pairs, all_listed)
    warnings = unfinished(predictions, ground_truth)
    return score_matches("disc21", queries, pairs, query, value, pair, warnings)


def score_matches(
    protocol: str,
    queries: list[str],
    pairs: dict[tuple[str, str], int],
    query: Ints,
    value: Floats,
    pair: Ints,
    warnings: list[str],
) -> ScoredRun:
    """The numbers of predictions given as query number, score and number of the true pair (-1: false), [n]."""
    correct = pair >= 0
    points = micro_ap.true_points(value, correct)
    recall, threshold = micro_ap.recall_at_precision(points, value, len(pairs))
    found = np.flatnonzero(correct)
    ranks = micro_ap.pessimistic_ranks(query, value, found)
    numbers = {name: number for number, name in enumerate(queries)}
    of_query = np.bincount([numbers[name] for name, _ in pairs], minlength=len(queries))
    n_queries = max(len(queries), int(query.max(initial=-1)) + 1)
    per_query = []
    rows = [
        Row("all", metric, existing(number), n_queries)
        for metric, number in {
            "micro-ap": micro_ap.micro_average_precision(points, len(pairs)),
            "recall@p90": recall,
            "threshold@p90": threshold,
        }.items()
    ]
    for k in (1, 10):
        hits = np.bincount(query[found[ranks < k]], minlength=len(queries))[: len(queries)]
        per_query.append(PerQuery("all", f"recall@{k}", tuple(queries), divide(hits, of_query)))
        pooled = float(hits.sum() / len(pairs)) if pairs else None
        rows.append(Row("all", f"recall@{k}", pooled, int((of_query > 0).sum())))
    if n_queries > len(queries):
        warnings = [
            *warnings,
            f"{n_queries - len(queries):,} queries with predictions are not in the ground truth, which lists "
            "no distractor query: all their predictions count as false",
        ]
    return ScoredRun(protocol, tuple(rows), tuple(per_query), tuple(warnings))
