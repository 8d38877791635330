"""FORB: flat objects, mAP@k and t-mAP@k, where answering nothing can be right.

Definition (Wu et al., "FORB: A Flat Object Retrieval Benchmark for Universal Image Embedding", NeurIPS 2023
Datasets and Benchmarks; official code `FORB/metric_helper/metrics.py`, `get_map_at_k`, and
`FORB/baselines/eval_tmap.py`):

- AP@k = sum over the correct candidates at place i <= k of (correct so far / i), over ALL positives (at least
  1), not over min(#positives, k). A query without positives scores 1 if it has no candidate, else 0.
- Thresholds: one per false-positive rate 0, 0.1, ... 1. The queries were also run against an
  out-of-distribution gallery; with their top scores sorted (-1 for no candidate), the threshold at rate f is
  the score at place ceil((1 - f) n), from 1, and -1 at f = 1.
- t-mAP@k = mean over the 11 thresholds of mAP@k over the candidates that score at least the threshold.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import (
    Bools,
    Floats,
    Ints,
    count_per_query,
    place_within,
    sum_per_query,
)

KS = (1, 5)
RATES = np.linspace(0, 1.0, num=11, endpoint=True)
NOTHING = -1.0
"""Stands for the top score of a query without candidates, and is the threshold at rate 1."""


def thresholds(top_scores: NDArray[np.floating]) -> Floats:
    """The 11 thresholds from the out-of-distribution queries' top scores [n > 0] (NOTHING: no candidate)."""
    ascending = np.sort(np.asarray(top_scores, np.float64))
    places = [math.ceil((1 - rate) * len(ascending)) for rate in RATES[:-1]]
    return np.append(ascending[np.array(places) - 1], NOTHING)


def average_precision(query: Ints, correct: Bools, n_positives: Ints, k: int) -> Floats:
    """AP@k, [queries]; `query` (ascending), `correct` [n] candidates in order; `n_positives` [queries]."""
    gain = hit_gains(query, correct, n_positives, k)
    silent = (n_positives == 0) & (count_per_query(query, len(n_positives)) == 0)
    return sum_per_query(query, gain, len(n_positives)) + silent


def hit_gains(query: Ints, correct: Bools, n_positives: Ints, k: int) -> Floats:
    """What every candidate adds to its query's AP@k, [n]."""
    gain = np.zeros(len(query))
    hits = np.flatnonzero(correct)
    place = (hits - np.searchsorted(query, query[hits], side="left")) + 1
    within = place <= k
    hits, place = hits[within], place[within]
    so_far = place_within(query[hits]) + 1
    gain[hits] = so_far / place / np.maximum(n_positives[query[hits]], 1)
    return gain


def threshold_average_precision(
    query: Ints, score: Floats, correct: Bools, n_positives: Ints, levels: Floats, k: int
) -> Floats:
    """Mean of AP@k over the thresholds `levels` [m], each applied to the candidates' scores [n]: [queries].

    Where every query's scores descend, what a candidate adds does not depend on the threshold that admits it:
    one pass weighs it by the share of thresholds at or below its score. Otherwise each threshold is applied.
    """
    n_queries = len(n_positives)
    descending = np.all((np.diff(score) <= 0) | (np.diff(query) != 0))
    if not descending:
        total = np.zeros(n_queries)
        for level in levels:
            kept = score >= level
            total += average_precision(query[kept], correct[kept], n_positives, k)
        return total / len(levels)
    gain = hit_gains(query, correct, n_positives, k)
    hits = np.flatnonzero(gain)
    admitted = np.searchsorted(np.sort(levels), score[hits], side="right")
    total = sum_per_query(query[hits], gain[hits] * admitted, n_queries)
    # A query without positives is right at the thresholds above its best score.
    empty = n_positives == 0
    best = np.full(n_queries, -np.inf)
    first = np.flatnonzero(np.append(True, np.diff(query) != 0)[: len(query)])
    best[query[first]] = score[first]
    total[empty] = len(levels) - np.searchsorted(np.sort(levels), best[empty], side="right")
    return total / len(levels)
