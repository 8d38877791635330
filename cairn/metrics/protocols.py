"""The benchmarks' own protocols on a ranking of the pipeline: which slices and metrics each reports.

Each function takes the ranked rows and the ground truth and gives per-query values, and rows for what is pooled.
A run file in a benchmark's submission format goes through `cairn.scoring` instead; the metrics are the same.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import InputError
from cairn.metrics import gldv2, ilias, inquire, micro_ap, ranked, revisitop
from cairn.metrics.interval import draw_counts, percentiles, resampled_sums
from cairn.metrics.judged import RankedRows
from cairn.metrics.ragged import Bools, Floats, Ints, cumulative_within, divide
from cairn.metrics.result import PerQuery, Row, existing

POSITIVES = ("positive", "easy", "hard")
POOLED = ("micro-ap", "recall@p90", "threshold@p90")
"""Metrics over the predictions of all queries at once."""
RECALL_RANKS = (1, 10)


def score_revisitop(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slices easy, medium, hard: mAP and mP@{1,5,10}; slice all where there is one grade of positives."""
    graded = bool(rows.n_with("easy", "hard").sum())
    if graded and rows.n_with("positive").sum():
        raise InputError(
            "the ground truth mixes the grade positive with easy and hard; "
            "the protocol revisitop needs one kind or the other"
        )
    setups = revisitop.SETUPS if graded else {"all": (("positive",), ("junk",))}
    for setup, (positives, junk) in setups.items():
        scores = revisitop.score_setup(
            rows.query, rows.rank, rows.has(*positives), rows.has(*junk), rows.n_with(*positives)
        )
        yield PerQuery(setup, "map", rows.query_ids, scores.average_precision)
        for column, kappa in enumerate(revisitop.KAPPAS):
            yield PerQuery(setup, f"mp@{kappa}", rows.query_ids, scores.precision_at[:, column])


def score_instre(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slice all: mAP by trapezoids over all positives."""
    owner, position, n_positives = positives_without_junk(rows)
    values = revisitop.trapezoid_average_precision(owner, position, n_positives)
    yield PerQuery("all", "map", rows.query_ids, values)


def score_gldv2(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slices all and the splits (public, private): mAP@100."""
    values = ranked.average_precision(*positives_without_junk(rows), gldv2.K)
    yield from sliced(values, f"map@{gldv2.K}", rows.query_ids, truth)


def score_inquire(rows: RankedRows, truth: GroundTruth, k: int = 50) -> Iterator[PerQuery]:
    """Slices all and every attribute's values: mAP@50, nDCG@50, MRR, precision@50 and recall@50, with ties."""
    query, value, relevant = _top(rows, k)
    scores = inquire.score(query, value, relevant, rows.n_with(*POSITIVES), k)
    for metric, values in {
        f"map@{k}": scores.average_precision,
        f"ndcg@{k}": scores.ndcg,
        "mrr": scores.reciprocal_rank,
        f"precision@{k}": scores.precision,
        f"recall@{k}": scores.recall,
    }.items():
        yield from sliced(values, metric, rows.query_ids, truth)


def score_ilias(rows: RankedRows, truth: GroundTruth, k: int = 1000) -> Iterator[PerQuery]:
    """Slice all (and splits, attributes): mAP@1000 and oracle@1000, with ties.

    Scale and clutter groups need facts about each positive, which a ranking does not carry.
    """
    values, oracle = ilias.score(*_top(rows, k), rows.n_with(*POSITIVES), k)
    yield from sliced(values, f"map@{k}", rows.query_ids, truth)
    yield from sliced(oracle, f"oracle@{k}", rows.query_ids, truth)


BENCHMARKS: dict[str, Callable[[RankedRows, GroundTruth], Iterator[PerQuery]]] = {
    "revisitop": score_revisitop,
    "instre": score_instre,
    "gldv2": score_gldv2,
    "inquire": score_inquire,
    "ilias": score_ilias,
}
"""Protocols whose numbers are all means over queries; `disc21` is pooled (see `score_disc21`)."""


def score_disc21(rows: RankedRows, truth: GroundTruth, seed: int) -> Iterator[Row]:
    """Slices all and the splits: micro-AP, recall at precision 90 with its threshold, recall@1 and @10."""
    for family in POOLED:
        yield from pooled(rows, truth, family, seed)
    for k in RECALL_RANKS:
        for name, members in slices(truth):
            kept = predictions(rows, members)
            query, correct = rows.query[kept], rows.has(*POSITIVES)[kept]
            found = np.flatnonzero(correct)
            within = micro_ap.pessimistic_ranks(query, rows.score[kept], found) < k
            hits = np.bincount(query[found[within]], minlength=len(members))[members]
            pairs = rows.n_with(*POSITIVES)[members]
            value = existing(float(divide(hits.sum(), pairs.sum())))
            low = high = None
            if len(hits) > 1 and value is not None:
                low, high = percentiles(divide(resampled_sums(hits, seed), resampled_sums(pairs, seed)))
            yield Row(name, f"recall@{k}", value, int((pairs > 0).sum()), low, high)


def pooled(rows: RankedRows, truth: GroundTruth, family: str, seed: int) -> Iterator[Row]:
    """One of POOLED for every slice, with its bootstrap interval (a threshold has none)."""
    for name, members in slices(truth):
        kept = predictions(rows, members)
        score, correct = rows.score[kept], rows.has(*POSITIVES)[kept]
        points = micro_ap.true_points(score, correct)
        pairs = rows.n_with(*POSITIVES)[members]
        total, n_queries = int(pairs.sum()), int(members.sum())
        recall, threshold = micro_ap.recall_at_precision(points, score, total)
        if family == "threshold@p90":
            yield Row(name, family, existing(threshold), n_queries)
            continue
        value = recall if family == "recall@p90" else micro_ap.micro_average_precision(points, total)
        low = high = None
        if n_queries > 1 and total:
            order = np.lexsort((correct, -score))
            query = (np.cumsum(members) - 1)[rows.query[kept]][order]
            averages, recalls = micro_ap.resampled(points, query, pairs, draw_counts(n_queries, seed))
            low, high = percentiles(recalls if family == "recall@p90" else averages)
        yield Row(name, family, existing(value), n_queries, low, high)


def predictions(rows: RankedRows, members: Bools) -> Ints:
    """The rows that count as predictions: each member query's first `top`, junk taken out, at most 500,000."""
    kept = np.flatnonzero((rows.rank < rows.top) & ~rows.has("junk") & members[rows.query])
    if len(kept) > micro_ap.LIMIT:
        kept = np.sort(kept[np.argsort(-rows.score[kept], kind="stable")[: micro_ap.LIMIT]])
    return kept


def positives_without_junk(rows: RankedRows) -> tuple[Ints, Ints, Ints]:
    """Query and position of every positive in the ranking without junk, and each query's number of positives."""
    owner, position = revisitop.positions_without_junk(
        rows.query, rows.rank, rows.has(*POSITIVES), rows.has("junk")
    )
    return owner, position, rows.n_with(*POSITIVES)


def sliced(values: Floats, metric: str, query_ids: tuple[str, ...], truth: GroundTruth) -> Iterator[PerQuery]:
    """The values of every slice."""
    for name, members in slices(truth):
        chosen = tuple(query_ids[i] for i in np.flatnonzero(members))
        yield PerQuery(name, metric, chosen, values[members])


def slices(truth: GroundTruth) -> Iterator[tuple[str, Bools]]:
    """`all`, every split (of two or more), every `attribute-value`; each with its queries as a mask.

    Names are slugs, since they become part of a number's name; two that would be alike are numbered.
    """
    queries = truth.queries
    yield "all", np.ones(len(queries), bool)
    groups: list[tuple[str, list[str | None]]] = []
    splits = [query.split for query in queries]
    if len(set(splits)) > 1:
        groups.append(("", splits))
    for attribute in truth.attribute_names():
        values = [truth.attributes.get(query.query_id, {}).get(attribute) for query in queries]
        groups.append((f"{attribute}-", values))
    taken = {"all"}
    for prefix, values in groups:
        for value in sorted({value for value in values if value is not None}):
            name = base = re.sub(r"[^a-z0-9.]+", "-", f"{prefix}{value}".lower()).strip("-") or "unnamed"
            number = 2
            while name in taken:
                name, number = f"{base}-{number}", number + 1
            taken.add(name)
            yield name, np.array([each == value for each in values], bool)


def _top(rows: RankedRows, k: int) -> tuple[Ints, Floats, Bools]:
    """Query, score and relevance of each query's first k rows without junk.

    Where scores do not follow the ranks (a re-ranked list), places stand for scores: such a list has no ties.
    """
    junk = rows.has("junk")
    clean = np.flatnonzero(~junk)
    query = rows.query[clean]
    position = (rows.rank - cumulative_within(rows.query, junk))[clean]
    listed = position < k
    query, score = query[listed], rows.score[clean][listed]
    if np.any((np.diff(score) > 0) & (np.diff(query) == 0)):
        score = -position[listed].astype(np.float64)
    return query, score, rows.has(*POSITIVES)[clean][listed]
