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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import (
    Bools,
    Floats,
    Ints,
    count_per_query,
    first_of_own,
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


@dataclass(frozen=True)
class ForbScores:
    """Per-query values [queries] of one depth, fractions in 0-1."""

    average_precision: Floats
    threshold_average_precision: Floats | None  # None without thresholds


def score(
    query: Ints,
    similarity: Floats,
    correct: Bools,
    n_positives: Ints,
    levels: Floats | None,
    ks: Sequence[int] = KS,
) -> list[ForbScores]:
    """AP@k and its mean over the thresholds `levels` [m], for each of `ks`.

    `query` (ascending), `similarity`, `correct` [n]: the candidates in the order given; `n_positives` [queries].
    Where every query's scores descend, what a candidate adds does not depend on the threshold that admits it:
    one pass weighs it by the share of thresholds at or below its score. Otherwise each threshold is applied.
    """
    hits = correct_candidates(query, correct, n_positives)
    plain = [average_precision(query, hits, n_positives, k) for k in ks]
    if levels is None:
        return [ForbScores(values, None) for values in plain]
    if np.any((similarity[1:] > similarity[:-1]) & (query[1:] == query[:-1])):
        cut = [_at_each_threshold(query, similarity, correct, n_positives, levels, k) for k in ks]
    else:
        cut = _at_all_thresholds(query, similarity, hits, n_positives, np.sort(levels), ks)
    return [ForbScores(*values) for values in zip(plain, cut, strict=True)]


@dataclass(frozen=True)
class Hits:
    """The correct candidates [hits]: index, query, place (from 1), and what each adds to its query's AP."""

    index: Ints
    query: Ints
    place: Ints
    gain: Floats


def correct_candidates(query: Ints, correct: Bools, n_positives: Ints) -> Hits:
    """What every correct candidate adds to AP@k for any k that reaches it."""
    index = np.flatnonzero(correct)
    owner = query[index]
    place = index - first_of_own(query)[index] + 1
    gain = (place_within(owner) + 1) / place / np.maximum(n_positives[owner], 1)
    return Hits(index, owner, place, gain)


def average_precision(query: Ints, hits: Hits, n_positives: Ints, k: int) -> Floats:
    """AP@k, [queries]; a query without positives scores 1 where it has no candidate."""
    within = hits.place <= k
    values = sum_per_query(hits.query[within], hits.gain[within], len(n_positives))
    if (n_positives == 0).any():
        values += (n_positives == 0) & (count_per_query(query, len(n_positives)) == 0)
    return values


def _at_each_threshold(
    query: Ints, similarity: Floats, correct: Bools, n_positives: Ints, levels: Floats, k: int
) -> Floats:
    total = np.zeros(len(n_positives))
    for level in levels:
        kept = similarity >= level
        hits = correct_candidates(query[kept], correct[kept], n_positives)
        total += average_precision(query[kept], hits, n_positives, k)
    return total / len(levels)


def _at_all_thresholds(
    query: Ints, similarity: Floats, hits: Hits, n_positives: Ints, levels: Floats, ks: Sequence[int]
) -> list[Floats]:
    weighted = hits.gain * np.searchsorted(levels, similarity[hits.index], side="right") / len(levels)
    # A query without positives is right at the thresholds above its best score.
    empty = np.flatnonzero(n_positives == 0)
    best = np.full(len(n_positives), -np.inf)
    first = np.flatnonzero(np.append(True, query[1:] != query[:-1])[: len(query)])
    best[query[first]] = similarity[first]
    silent = 1 - np.searchsorted(levels, best[empty], side="right") / len(levels)
    values = []
    for k in ks:
        within = hits.place <= k
        values.append(sum_per_query(hits.query[within], weighted[within], len(n_positives)))
        values[-1][empty] = silent
    return values
