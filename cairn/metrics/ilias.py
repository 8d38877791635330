"""ILIAS: mAP@1000 and oracle over 100 million distractors, by scale, clutter and category.

Definition (Kordopatis-Zilos et al., "ILIAS: Instance-Level Image retrieval At Scale", CVPR 2025;
official code `ilias/evaluation/src/dataset.py`, `_compute_AP`, `_per_scale`, `_per_clutter`,
`_evaluate_pkl`):

- Per query, the k entries of highest similarity (equal ones in the order given, which matters at the cut
  alone). AP@k = scikit-learn's AP of them (equal similarities are one threshold) x hits / min(k, positives);
  0 without a hit.
- Oracle@k = hits / entries listed x k / positives: what a perfect re-ranking of a full list would reach.
- A scale or clutter group keeps the positives in [low, high); the others are taken out of the list before the
  cut. Queries without a positive in the group are left out; the group's value is the mean over queries.
- A category or subcategory is the mean over its instances of the mean over each instance's queries.
"""

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Bools, Floats, count_per_query, divide
from cairn.metrics.tied import hits_found, precision_sum, tied_lists

DEPTH = 1000
SCALE_BOUNDS = (0, 0.06880213760855043, 0.13526567164179104, 0.2729876723163842, float("inf"))
"""Scale groups: share of the image a positive's object covers."""
CLUTTER_BOUNDS = (0, 18, 33, 53, float("inf"))
"""Clutter groups: number of other objects in a positive."""


def score(
    query: NDArray[np.integer],
    similarity: NDArray[np.floating],
    relevant: Bools,
    n_positives: NDArray[np.integer],
    k: int,
) -> tuple[Floats, Floats]:
    """AP@k and oracle@k, [queries] each, NaN without positives.

    `query` (ascending), `similarity` (finite, in its own dtype: float32 values tie as float32), `relevant`
    [n]; `n_positives` [queries].
    """
    n_queries = len(n_positives)
    lists = tied_lists(query, similarity, relevant, k)
    hits = hits_found(lists, n_queries)
    listed = count_per_query(lists.query, n_queries)
    average = divide(precision_sum(lists, n_queries), np.minimum(n_positives, k))
    found = np.divide(hits, listed, out=np.zeros(n_queries), where=listed > 0)
    return average, divide(found * k, n_positives)


def score_group(
    query: NDArray[np.integer],
    similarity: NDArray[np.floating],
    relevant: Bools,
    in_group: Bools,
    n_in_group: NDArray[np.integer],
    k: int,
) -> Floats:
    """AP@k of the positives of one scale or clutter group, [queries], NaN for a query without one.

    `in_group` [n]: the entry is a positive of the group; `n_in_group` [queries]: how many positives of the
    group the query has.
    """
    kept = ~relevant | in_group
    return score(query[kept], similarity[kept], in_group[kept], n_in_group, k)[0]


def macro_mean(values: Floats, instance: NDArray[np.integer]) -> float:
    """Mean over instances of the mean over each instance's queries; `values`, `instance` [queries > 0]."""
    _, number = np.unique(instance, return_inverse=True)
    return float(np.mean(np.bincount(number, weights=values) / np.bincount(number)))


def group_name(low: float, high: float) -> str:
    """`LO-HI` in Python's shortest form of the official bounds."""
    return f"{low}-{high}"
