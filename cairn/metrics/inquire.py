"""INQUIRE: text queries over iNaturalist, top-k lists scored with ties as scikit-learn treats them.

Definition (Vendrow et al., "INQUIRE: A Natural World Text-to-Image Retrieval Benchmark", NeurIPS 2024,
and its supplement; official code `INQUIRE/src/metrics.py`, `compute_retrieval_metrics`), per query with its k
best-scored images, P positives in the whole collection:

- AP@k = (sum over the distinct scores of recall step x precision) x hits / min(P, k): equal scores form one
  threshold.
- nDCG@k = tie-averaged DCG over the best DCG that P positives allow within k.
- precision@k = hits / k, recall@k = hits / P.
- MRR: mean of 1 / place of the first positive, 0 without one. The official code leaves the order of equal
  scores to an unstable sort; here negatives go first among them.

All are means over queries; a query without positives has no value. INQUIRE-Rerank is the same over the fixed
100 images of each query, k = 100 and P = positives among them.

Where the official code does not say what a run file should get:

- It cuts the ranking of the whole collection at k and so never sees a shorter list; its function takes the length
  of what it is given for k. A list of n < k images is scored here as k images, the last k - n of them negatives
  (the paper's AP@k divides by min(P, k)). Given those n images, the function would report AP@n, nDCG@n and
  precision@n, which are no less and can be far more. `own_depths` gives these; `cairn score` warns and prints them.
- For nDCG its function appends the positives that were not found with the score -100, "as if they are ranked
  last"; images that score -100 or less would rank beside or behind them, and raise nDCG with what was missed.
  Here missed positives come last whatever the scores are. For scores above -100 both agree.
- Which of several images with equal scores are among the first k: here the ones that stand first in the run,
  there an unstable sort decides.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Bools, Floats, Ints, divide, max_per_query
from cairn.metrics.tied import (
    TiedLists,
    discounted_gain,
    discounts,
    hits_found,
    precision_sum,
    tied_lists,
)


@dataclass(frozen=True)
class InquireScores:
    """Per-query values [queries], NaN without positives. Fractions in 0-1."""

    average_precision: Floats
    ndcg: Floats
    reciprocal_rank: Floats
    precision: Floats
    recall: Floats


def score(
    query: NDArray[np.integer],
    value: NDArray[np.floating],
    relevant: Bools,
    n_positives: NDArray[np.integer],
    k: int,
    depths: NDArray[np.integer] | None = None,
) -> InquireScores:
    """Score the `k` best entries of every query; `query`, `value` (finite), `relevant` [n] in any order.

    `n_positives` [queries]: positives in the whole collection. A list shorter than `k` is scored as if it
    went on with negatives, unless `depths` [queries] (1 to `k`, no less than what is listed) stands for `k`.
    """
    n_queries = len(n_positives)
    lists = tied_lists(query, value, relevant, k)
    hits = hits_found(lists, n_queries)
    depth = np.full(n_queries, k) if depths is None else depths
    best = np.minimum(n_positives, depth)
    known = np.asarray(n_positives) > 0
    reach = min(k, max(int(best.max(initial=0)), int(lists.place.max(initial=-1)) + 1))  # k may be a billion
    return InquireScores(
        divide(precision_sum(lists, n_queries), best),
        divide(discounted_gain(lists, n_queries, reach), discounts(reach)[best]),
        np.where(known, first_relevant(lists, n_queries), np.nan),
        np.where(known, hits / depth, np.nan),
        divide(hits, n_positives),
    )


def own_depths(listed: NDArray[np.integer], k: int) -> Ints:
    """The depth that the official function scores each list at: its length (`listed` [queries]), at most `k`."""
    return np.clip(listed, 1, k).astype(np.int64)


def first_relevant(lists: TiedLists, n_queries: int) -> Floats:
    """1 / place (from 1) of the first relevant entry, negatives first among equal scores; 0 without one."""
    relevant = np.flatnonzero(lists.relevant)
    # Of the first tie that holds a relevant entry, the worst place its first relevant entry can take.
    tie = np.append(True, np.diff(lists.query[relevant]) != 0) | np.append(
        True, np.diff(lists.tie_start[relevant]) != 0
    )
    tie = tie[: len(relevant)]
    n_relevant = np.diff(np.append(np.flatnonzero(tie), len(relevant)))
    head = relevant[tie]
    worst = lists.tie_end[head] + 2 - n_relevant
    place = -max_per_query(lists.query[head], -worst, n_queries, empty=0)
    return np.divide(1.0, place, out=np.zeros(n_queries), where=place > 0)
