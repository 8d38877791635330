"""Ranked lists whose equal scores stay equal: one threshold in AP, averaged gain in DCG (scikit-learn).

Definitions: AP (scikit-learn `average_precision_score`): sum over the distinct scores, from the top, of the
recall gained there times the precision down to the last entry of that score. DCG (McSherry and Najork,
"Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores", ECIR 2008;
scikit-learn `_tie_averaged_dcg`): every entry of one score earns the mean gain of that score's entries.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import (
    Bools,
    Floats,
    Ints,
    count_per_query,
    cumulative_within,
    place_within,
    sum_per_query,
)


@dataclass(frozen=True)
class TiedLists:
    """Entries of all queries, sorted by query, then score descending; equal scores in the order given."""

    order: Ints  # [n] index of each entry into the arrays given
    query: Ints  # [n]
    place: Ints  # [n] position within the query, from 0
    relevant: Bools  # [n]
    tie_start: Ints  # [n] place of the first entry of the same query and score
    tie_end: Ints  # [n] place of the last one


def tied_lists(
    query: NDArray[np.integer], score: NDArray[np.floating], relevant: Bools, k: int | None = None
) -> TiedLists:
    """Sort entries [n] into lists, each cut at `k`; scores finite, compared in their own dtype."""
    order = np.lexsort((-score, query)).astype(np.int64)
    place = place_within(query[order])
    if k is not None:
        order, place = order[place < k], place[place < k]
    owner = query[order].astype(np.int64)
    first = np.append(True, (np.diff(owner) != 0) | (np.diff(score[order]) != 0))[: len(order)]
    start = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    size = np.diff(np.append(start, len(order)))
    tie_start = place[start][group]
    return TiedLists(order, owner, place, relevant[order], tie_start, tie_start + size[group] - 1)


def precision_sum(lists: TiedLists, n_queries: int) -> Floats:
    """Sum over relevant entries of the precision down to the end of their tie, [n_queries]."""
    # Hits down to the end of the tie: those at the last entry that has this place.
    hits = cumulative_within(lists.query, lists.relevant)
    at_end = np.arange(len(lists.place)) + (lists.tie_end - lists.place)
    precision = hits[at_end] / (lists.tie_end + 1) if len(hits) else np.empty(0)
    return sum_per_query(lists.query[lists.relevant], precision[lists.relevant], n_queries)


def hits_found(lists: TiedLists, n_queries: int) -> Ints:
    """Number of relevant entries in each list, [n_queries]."""
    return count_per_query(lists.query[lists.relevant], n_queries)


def discounted_gain(lists: TiedLists, n_queries: int, k: int) -> Floats:
    """DCG within the first `k` places, gain shared among equal scores, [n_queries]."""
    total = discounts(k)
    shared = total[np.minimum(lists.tie_end + 1, k)] - total[np.minimum(lists.tie_start, k)]
    gain = shared / (lists.tie_end - lists.tie_start + 1)
    return sum_per_query(lists.query[lists.relevant], gain[lists.relevant], n_queries)


def discounts(k: int) -> Floats:
    """Cumulated discounts 1/log2(place + 2): entry i is the sum over the first i places, [k + 1]."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(k) + 2.0))])
