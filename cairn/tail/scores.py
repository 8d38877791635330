"""The input of the estimator: each query's best distractor scores in a uniform sample, and its positives'
scores."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numba import prange

from cairn.errors import InputError
from cairn.tail.compiled import compiled
from cairn.untrusted import load_arrays

QUANTISED = 0.05  # share of tied neighbours from which scores count as quantised
MOST_BYTES = 8 << 30  # a score file unpacking to more than this is refused
LARGEST = 1 << 53  # beyond it, float64 does not hold every whole number
TRUTH = ("full_B", "true_x")  # known hardness of each positive, for plots


@dataclass(frozen=True)
class SampleScores:
    """Checked scores of Q queries, P positives in all. Build it with `sample_scores` or `load_scores`.

    `top` [Q, T] float32 or float64, descending: the T highest scores among `sample_size` distractors drawn
    uniformly without replacement from the pool. Positives are grouped by query, best first: `query` [P]
    int64,
    `score` [P] float64, `index` [P] int64 (1 = the query's best), `positives` [Q] int64 (R per query, >= 1).
    `sample_size` S counts distractors. `quantised` says whether the scores have few distinct values.
    """

    top: np.ndarray
    query: np.ndarray
    score: np.ndarray
    index: np.ndarray
    positives: np.ndarray
    sample_size: int

    @cached_property
    def counts(self) -> np.ndarray:
        """Sampled distractors with score >= the positive's, [P] int64; T where the kept list ends before it.

        A tie counts against the positive.
        """
        return count_ahead(self.top, self.query, self.score)

    @cached_property
    def quantised(self) -> float:
        """Share of neighbours in the kept lists that tie: above a few percent the scores are quantised."""
        return float(np.mean(self.top[:, 1:] == self.top[:, :-1])) if self.top.shape[1] > 1 else 0.0

    @cached_property
    def spread_top(self) -> np.ndarray:
        """`top` for fitting tails: where scores are quantised, ties are spread evenly over their quantum.

        A tail is a density, and steps have none. Counting never uses this.
        """
        return spread_ties(self.top) if self.quantised > QUANTISED else self.top

    def with_top(self, top: np.ndarray, sample_size: int) -> "SampleScores":
        """The same positives before another sample (shape as `top`; unchecked)."""
        return replace(self, top=top, sample_size=int(sample_size))


def sample_scores(
    top: np.ndarray, pos_q: np.ndarray, pos_s: np.ndarray, sample_size: int, names: str = "input"
) -> SampleScores:
    """Check and arrange scores; `top` [Q, T], `pos_q` [P] query row, `pos_s` [P] score, `sample_size` S.

    Scores in half or single precision are compared in it (positives are rounded to it), integers as they are.
    Raises InputError for NaN or infinite scores, masked arrays, lists that are not descending, T > S, a query
    without positives, a `pos_q` outside the queries. Positives may come in any order.
    """
    for name, array in (("top", top), ("pos_q", pos_q), ("pos_s", pos_s)):
        if np.ma.isMaskedArray(array):
            raise InputError(f"{names}: {name} is a masked array; leave out what is masked")
    try:
        top, query, score = np.asarray(top), np.asarray(pos_q), np.asarray(pos_s)
    except ValueError as error:
        raise InputError(f"{names}: top, pos_q or pos_s is not an array of numbers ({error})") from None
    if top.ndim != 2 or 0 in top.shape:
        raise InputError(
            f"{names}: top has shape {top.shape}; it must be [queries, T], one descending list per query"
        )
    for name, array in (("top", top), ("pos_s", score)):
        if array.dtype.kind not in "fiu":
            raise InputError(f"{names}: {name} holds {array.dtype}; scores must be real numbers")
    if query.ndim != 1 or score.shape != query.shape or query.size == 0:
        raise InputError(
            f"{names}: pos_q {query.shape} and pos_s {score.shape} must be two equally long, non-empty lists"
        )
    whole = query.dtype.kind in "iu" or (
        query.dtype.kind == "f" and np.all(np.isfinite(query)) and np.all(query == np.floor(query))
    )
    if not whole:
        raise InputError(f"{names}: pos_q holds {query.dtype}; it must hold whole query numbers")
    n = len(top)
    if query.min() < 0 or query.max() >= n:
        bad = int(np.flatnonzero((query < 0) | (query >= n))[0])
        raise InputError(
            f"{names}: positive {bad} names query {int(query[bad])}, but top has the queries 0 to {n - 1}"
        )
    query = query.astype(np.int64)
    size = _whole(sample_size, f"{names}: S")
    if top.shape[1] > size:
        raise InputError(
            f"{names}: top keeps T = {top.shape[1]} scores of a sample of S = {size}; T cannot exceed S"
        )
    given = score
    if top.dtype.kind == "f" and top.dtype.itemsize <= 4:
        with np.errstate(over="ignore"):
            rounded = score.astype(top.dtype)
        score = np.where(np.isfinite(rounded), rounded, score)  # beyond its range a score stays what it is
    top = np.ascontiguousarray(
        top,
        np.float32 if top.dtype.itemsize <= 2 or (top.dtype.kind, top.dtype.itemsize) == ("f", 4) else float,
    )
    score = score.astype(np.float64)
    if not np.isfinite(top).all():
        row, column = (int(v[0]) for v in np.nonzero(~np.isfinite(top)))
        raise InputError(
            f"{names}: top[{row}, {column}] is {top[row, column]}; every score must be a finite number"
        )
    if not np.isfinite(score).all():
        bad = int(np.flatnonzero(~np.isfinite(score))[0])
        raise InputError(
            f"{names}: pos_s[{bad}] (query {query[bad]}) is {score[bad]}; every score must be a finite number"
        )
    rising = top[:, 1:] > top[:, :-1]
    if rising.any():
        row, column = (int(v[0]) for v in np.nonzero(rising))
        raise InputError(
            f"{names}: query {row} of top rises from {top[row, column]:.6g} to {top[row, column + 1]:.6g} at"
            f" column {column + 1}; each list must be in descending order, best distractor first"
        )
    positives = np.bincount(query, minlength=n)
    if positives.min() == 0:
        raise InputError(
            f"{names}: query {int(np.argmin(positives))} has no positive, so its average precision is not"
            " defined; leave the query out of top"
        )
    order = arrange(query, given)
    query, score = query[order], score[order]
    first = np.concatenate([[0], np.cumsum(positives)[:-1]])
    return SampleScores(top, query, score, np.arange(len(query)) - first[query] + 1, positives, size)


def arrange(query: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Order [P] in which `SampleScores` holds positives: by query, best first, equal scores as they came."""
    return np.lexsort((-np.asarray(score, np.float64), query))


def load_scores(path: Path) -> tuple[SampleScores, dict[str, Any]]:
    """Read `top`, `pos_q`, `pos_s`, `S` from an .npz file (no pickles), and what else it holds of `true_x`,
    `full_B` (truth, for plots, put in the order of the positives of `SampleScores`) and `hard` (mined
    distractors' scores). Raises InputError naming the file and the array.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file; expected an .npz with top, pos_q, pos_s and S")
    arrays = load_arrays(path, ("top", "pos_q", "pos_s", "S"), (*TRUTH, "hard"), MOST_BYTES)
    if arrays["S"].size != 1:
        raise InputError(f"{path}: S has {arrays['S'].size} values; it must be one number, the sample size")
    scores = sample_scores(
        arrays["top"], arrays["pos_q"], arrays["pos_s"], arrays["S"].reshape(()).item(), str(path)
    )
    order = arrange(arrays["pos_q"], arrays["pos_s"])
    truth = {name: arrays[name] for name in ("hard",) if name in arrays}
    for name in TRUTH:
        if name not in arrays:
            continue
        values = arrays[name]
        if values.shape != order.shape or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InputError(
                f"{path}: {name} is {values.dtype} {values.shape}; it must hold one finite number for each of the"
                f" {len(order)} positives"
            )
        truth[name] = values[order]
    return scores, truth


def check_gallery(scores: SampleScores, gallery: float, cutoff: int, names: str = "input") -> int:
    """`gallery` N as an int. Raises InputError where N < S or `cutoff` < 1."""
    size = _whole(gallery, f"{names}: the gallery size N")
    if size < scores.sample_size:
        raise InputError(
            f"{names}: the sample of S = {scores.sample_size} distractors is larger than the gallery"
            f" N = {size}; a sample cannot exceed its pool"
        )
    if int(cutoff) != cutoff or cutoff < 1:
        raise InputError(f"{names}: the cut-off K is {cutoff}; it must be a whole number of at least 1")
    return size


def count_ahead(top: np.ndarray, query: np.ndarray, score: np.ndarray) -> np.ndarray:
    """#{top[query] >= score} per positive [P] int64, by bisection; `top` [Q, T] descending."""
    return _count_ahead(
        np.ascontiguousarray(top), np.ascontiguousarray(query), np.ascontiguousarray(score, np.float64)
    )


def spread_ties(top: np.ndarray) -> np.ndarray:
    """Descending lists [Q, T] whose equal values are moved apart, evenly up to midway to their neighbours."""
    return _spread_ties(np.ascontiguousarray(top, np.float64))


def _whole(value: Any, what: str) -> int:
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not np.isfinite(value):
        raise InputError(f"{what} is {value!r}; it must be a whole number")
    if int(value) != value or value < 1:
        raise InputError(f"{what} is {value}; it must be a whole number of at least 1")
    if value > LARGEST:
        raise InputError(f"{what} is {value}; at most 2^53 = {LARGEST} can be told apart")
    return int(value)


@compiled(nogil=True)
def _spread_ties(top):
    rows, kept = top.shape
    out = top.copy()
    for row in range(rows):
        first = 0
        while first < kept:
            last = first
            while last + 1 < kept and top[row, last + 1] == top[row, first]:
                last += 1
            many = last - first + 1
            below = top[row, first] - top[row, last + 1] if last + 1 < kept else 0.0
            above = top[row, first - 1] - top[row, first] if first > 0 else below
            if last + 1 == kept:
                below = above
            if many > 1:
                for place in range(many):
                    share = (place + 0.5) / many
                    out[row, first + place] += above / 2 - share * (above + below) / 2
            first = last + 1
    return out


@compiled(parallel=True, nogil=True)
def _count_ahead(top, query, score):
    length = top.shape[1]
    out = np.empty(len(score), np.int64)
    for p in prange(len(score)):
        row = query[p]
        low = 0
        high = length
        while low < high:
            middle = (low + high) // 2
            if top[row, middle] >= score[p]:
                low = middle + 1
            else:
                high = middle
        out[p] = low
    return out
