"""Arrays of unequal length per query, kept flat: the vectorised counterpart of a loop over queries.

A flat array `query` [n] (int, ascending) says which query each entry belongs to; every function here works on
all queries at once and returns one value per entry or per query.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def place_within(query: NDArray[np.integer]) -> Ints:
    """Position of every entry inside its query, from 0; `query` [n] ascending."""
    return np.arange(len(query), dtype=np.int64) - first_of_own(query)


def first_of_own(query: NDArray[np.integer]) -> Ints:
    """Index of the first entry of the same query, for every entry [n]; `query` ascending."""
    first = np.zeros(len(query), np.int64)
    starts = np.flatnonzero(query[1:] != query[:-1]) + 1
    first[starts] = starts
    return np.maximum.accumulate(first, out=first)


def cumulative_within(query: NDArray[np.integer], flags: Bools) -> Ints:
    """Number of `flags` [n] set inside the same query up to and including each entry."""
    total = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    return total[1:] - total[first_of_own(query)]


def count_per_query(query: NDArray[np.integer], n_queries: int) -> Ints:
    """Number of entries of each query, [n_queries]."""
    return np.bincount(query, minlength=n_queries).astype(np.int64)


def sum_per_query(query: NDArray[np.integer], values: NDArray, n_queries: int) -> Floats:
    """Sum of `values` [n] inside each query, [n_queries]; 0 for a query without entries."""
    return np.bincount(query, weights=values, minlength=n_queries).astype(np.float64)


def max_per_query(query: NDArray[np.integer], values: NDArray, n_queries: int, empty: int = 0) -> Ints:
    """Largest of the integer `values` [n] inside each query, [n_queries]; `empty` where it has no entries."""
    largest = np.full(n_queries, np.iinfo(np.int64).min)
    np.maximum.at(largest, query, values)
    largest[count_per_query(query, n_queries) == 0] = empty
    return largest


def divide(numerator: NDArray, denominator: NDArray) -> Floats:
    """`numerator / denominator` as float64, NaN where the denominator is 0: a value that does not exist."""
    top, bottom = np.broadcast_arrays(np.asarray(numerator, np.float64), np.asarray(denominator, np.float64))
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
