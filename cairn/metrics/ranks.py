"""Exact ranks of a few images in a long ranking, by counting instead of sorting."""

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Ints

MANY_LEVELS = 16
"""Tied scores of one query that are looked up one by one; more of them in one pass."""


def ranks_by_counting(scores: NDArray[np.floating], images: NDArray[np.integer]) -> Ints:
    """Rank, from 0, of each of `images` [m] in the order of `scores` [gallery], highest first: [m].

    Equal scores rank by image number. The rank is the count of higher scores and of equal ones with a lower number.
    Values alone are sorted (vectorised in numpy, ten times as fast as an argsort), and the numbers of equal scores
    are looked up only where a judged image has any.
    """
    images = np.asarray(images, np.int64)
    if not len(images):
        return np.empty(0, np.int64)
    if scores.dtype == np.float16:  # float32 holds the same values, and is sorted faster
        scores = scores.astype(np.float32)
    judged = scores[images]
    ordered = np.sort(scores)
    first, end = (np.searchsorted(ordered, judged, side=side) for side in ("left", "right"))
    higher = len(ordered) - end
    levels = np.unique(judged[end - first > 1])
    if not len(levels):
        return higher
    if len(levels) > MANY_LEVELS:
        return higher + _lower_numbers(scores, levels, images, judged)
    before = np.zeros(len(images), np.int64)
    for level in levels:
        own = judged == level
        before[own] = np.searchsorted(np.flatnonzero(scores == level), images[own])
    return higher + before


def _lower_numbers(scores: NDArray, levels: NDArray, images: Ints, judged: NDArray) -> Ints:
    """How many images of the same score, which is one of `levels`, have a lower number, for each of `images`."""
    place = np.minimum(np.searchsorted(levels, scores), len(levels) - 1)
    tied = np.flatnonzero(levels[place] == scores)
    level_of_tied = place[tied]
    count = np.bincount(level_of_tied, minlength=len(levels))
    order = np.argsort(level_of_tied, kind="stable")
    within = np.empty(len(tied), np.int64)
    within[order] = np.arange(len(tied)) - (np.cumsum(count) - count)[level_of_tied[order]]
    at = np.minimum(np.searchsorted(tied, images), len(tied) - 1)
    return np.where(np.isin(judged, levels), within[at], 0)


def ranks_in_order(order: NDArray[np.integer], images: NDArray[np.integer]) -> Ints:
    """Rank, from 0, of each of `images` (ascending, distinct) in `order` [listed]; -1 where it is not listed."""
    images = np.asarray(images, np.int64)
    rank = np.full(len(images), -1, np.int64)
    if len(images):
        at = np.minimum(np.searchsorted(images, order), len(images) - 1)
        found = images[at] == order
        rank[at[found]] = np.flatnonzero(found)
    return rank
