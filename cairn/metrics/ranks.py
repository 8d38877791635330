"""Exact ranks of a few images in a long ranking, by counting instead of sorting."""

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Ints


def ranks_by_counting(scores: NDArray[np.floating], images: NDArray[np.integer]) -> Ints:
    """Rank, from 0, of each of `images` [m] in the order of `scores` [gallery], highest first: [m].

    Equal scores rank by image number. The rank is the count of higher scores and of equal ones with a lower
    number: one pass over the gallery with a binary search among the m scores.
    """
    images = np.asarray(images, np.int64)
    if not len(images):
        return np.empty(0, np.int64)
    levels = np.unique(scores[images])
    place = np.searchsorted(levels, scores, side="right")  # levels at or below each score
    reached = np.bincount(place, minlength=len(levels) + 1)
    at_or_above = np.cumsum(reached[::-1])[::-1][1:]  # scores at or above each level
    tied = np.flatnonzero((place > 0) & (levels[np.maximum(place - 1, 0)] == scores))
    level_of_tied = place[tied] - 1
    equal = np.bincount(level_of_tied, minlength=len(levels))
    level = np.searchsorted(levels, scores[images])
    # Number of tied entries of the same level with a lower number.
    order = np.argsort(level_of_tied, kind="stable")
    start = np.cumsum(equal) - equal
    within = np.empty(len(tied), np.int64)
    within[order] = np.arange(len(tied)) - start[level_of_tied[order]]
    before = within[np.searchsorted(tied, images)]
    return at_or_above[level] - equal[level] + before


def ranks_in_order(order: NDArray[np.integer], images: NDArray[np.integer]) -> Ints:
    """Rank, from 0, of each of `images` (ascending, distinct) in `order` [listed]; -1 where it is not listed."""
    images = np.asarray(images, np.int64)
    rank = np.full(len(images), -1, np.int64)
    if len(images):
        at = np.minimum(np.searchsorted(images, order), len(images) - 1)
        found = images[at] == order
        rank[at[found]] = np.flatnonzero(found)
    return rank
