"""Revisited Oxford and Paris: trapezoid AP with junk removed and mean precision at k, Easy, Medium, Hard.

Definition (Radenović et al., "Revisiting Oxford and Paris", CVPR 2018; official code
`revisitop/python/evaluate.py`, `compute_ap` and `compute_map`):

- Setup Easy: positives = easy, junk = junk and hard. Medium: positives = easy and hard, junk = junk.
  Hard: positives = hard, junk = junk and easy.
- Junk images are taken out of the ranking: a positive's position is its rank less the junk ranked before it.
- AP is the area under the precision-recall curve by trapezoids: the j-th positive (from 0) at position p adds
  (j/p + (j+1)/(p+1)) / 2 / n, where j/p reads 1 at p = 0 and n counts all positives of the setup.
- P@k divides by min(k, position of the last positive + 1), not by k.
- A query without positives in a setup is left out of that setup's means (its values here are NaN).

INSTRE (Iscen et al., "Efficient Diffusion on Region Manifolds", CVPR 2017) has the same AP with one setup: its
positives, and whatever its ground truth marks as junk taken out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import (
    Floats,
    Ints,
    count_per_query,
    cumulative_within,
    divide,
    max_per_query,
    place_within,
    sum_per_query,
)

SETUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}
"""For each setup the grades that count as positive and those that count as junk."""

KAPPAS = (1, 5, 10)


@dataclass(frozen=True)
class SetupScores:
    """Per-query values of one setup; NaN where the query has no positive. Fractions in 0-1."""

    average_precision: Floats  # [queries]
    precision_at: Floats  # [queries, len(kappas)]


def score_setup(
    query: NDArray[np.integer],
    rank: NDArray[np.integer],
    positive: NDArray[np.bool_],
    junk: NDArray[np.bool_],
    n_positives: NDArray[np.integer],
    kappas: Sequence[int] = KAPPAS,
) -> SetupScores:
    """AP and P@k of every query from the exact ranks of its judged images.

    `query`, `rank` [n]: the judged images, sorted by query, then rank (from 0); `positive`, `junk` [n] flags.
    `n_positives` [queries]: how many positives each query has, ranked or not (an unranked one adds nothing).
    """
    n_queries = len(n_positives)
    owner, position = positions_without_junk(query, rank, positive, junk)
    return SetupScores(
        trapezoid_average_precision(owner, position, n_positives),
        np.stack([precision_at(owner, position, n_positives, kappa) for kappa in kappas], axis=1)
        if kappas
        else np.empty((n_queries, 0)),
    )


def positions_without_junk(
    query: NDArray[np.integer],
    rank: NDArray[np.integer],
    positive: NDArray[np.bool_],
    junk: NDArray[np.bool_],
) -> tuple[Ints, Ints]:
    """Query and position (from 0) of every positive in the ranking from which junk is taken out.

    An image that is both keeps its place, since only junk before it counts.
    """
    position = rank - (cumulative_within(query, junk) - junk)
    return query[positive].astype(np.int64), position[positive].astype(np.int64)


def trapezoid_average_precision(owner: Ints, position: Ints, n_positives: NDArray[np.integer]) -> Floats:
    """`compute_ap`: [queries], NaN without positives; `position` [n] ascending within each query `owner`."""
    hits = place_within(owner)
    before = np.divide(hits, position, out=np.ones(len(hits)), where=position > 0)
    after = (hits + 1) / (position + 1)
    return divide(sum_per_query(owner, (before + after) / 2, len(n_positives)), n_positives)


def precision_at(owner: Ints, position: Ints, n_positives: NDArray[np.integer], kappa: int) -> Floats:
    """Precision within min(`kappa`, place of the last positive): [queries], NaN without positives."""
    n_queries = len(n_positives)
    last = max_per_query(owner, position + 1, n_queries, empty=kappa)
    depth = np.minimum(last, kappa)
    found = count_per_query(owner[position < depth[owner]], n_queries)
    return np.where(np.asarray(n_positives) > 0, divide(found, depth), np.nan)
