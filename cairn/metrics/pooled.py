"""Metrics over the predictions of all queries at once (copy detection, DISC21), on a ranking of the pipeline."""

from collections.abc import Iterator

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ArtifactError
from cairn.metrics import micro_ap
from cairn.metrics.interval import draw_counts, percentiles, resampled_sums
from cairn.metrics.judged import RankedRows
from cairn.metrics.protocols import POSITIVES, slices
from cairn.metrics.ragged import Bools, Ints, divide
from cairn.metrics.result import Row, existing

POOLED = ("micro-ap", "recall@p90", "threshold@p90")
"""Names of the single metrics."""
RECALL_RANKS = (1, 10)


def score_track2(rows: RankedRows, truth: GroundTruth, seed: int) -> Iterator[Row]:
    """The rows of `score_disc21` where the predictions must be the best 500,000 of all pairs (track 2).

    Descriptors are matched exhaustively there, so the ranking may not be cut where a pair is left out that could
    belong to them: ArtifactError, naming the query, where the last image listed for it scores as high as the last
    prediction. ArtifactError, too, for a re-ranked list: track 2 compares descriptors and nothing else.
    """
    if rows.reranked:
        raise ArtifactError("DISC21 track 2 compares descriptors alone; a re-ranked list is a run of track 1")
    everything = np.ones(len(rows.query_ids), bool)
    kept = predictions(rows, everything)
    if rows.top < rows.gallery_size:
        last = (rows.rank == rows.top - 1) & ~rows.absent
        limit = rows.score[kept].min() if len(kept) == micro_ap.LIMIT else -np.inf
        if (early := np.flatnonzero(last & (rows.score >= limit))).size:
            raise ArtifactError(
                f"query {rows.query_ids[rows.query[early[0]]]}: the ranking holds its first {rows.top:,} images, all "
                f"of which are among the best {micro_ap.LIMIT:,} pairs; track 2 needs them all: raise search.top"
            )
    yield from score_disc21(rows, truth, seed)


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
    """The rows that count as predictions: each member query's first `top`, junk taken out, at most 500,000.

    Of what has no descriptor nothing is predicted.
    """
    listed = (rows.rank < rows.top) & ~rows.absent
    kept = np.flatnonzero(listed & ~rows.has("junk") & members[rows.query])
    if len(kept) > micro_ap.LIMIT:
        kept = np.sort(kept[np.argsort(-rows.score[kept], kind="stable")[: micro_ap.LIMIT]])
    return kept
