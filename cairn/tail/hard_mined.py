"""Counts with a proxy: its best M per query are scored exactly, the rest of the pool is sampled uniformly.

Where a cheap index over the full pool exists (product-quantised codes, a small model, a prefix of the
dimensions), most distractors that will ever outrank a positive are among its best M. With inclusion 1 there,
only the rest needs the law: rank = i + c_hard + c_rest + Binomial(N_R - S_R, c_rest/S_R).
"""

import numpy as np

from cairn.errors import InputError
from cairn.tail.law import average_precision, expected_precision
from cairn.tail.scores import SampleScores, count_ahead


def hard_mined(hard: np.ndarray, rest: SampleScores, gallery: float, cutoff: int) -> np.ndarray:
    """Expected AP@K [Q] at gallery size N.

    `hard` [Q, M]: true scores of each query's M mined distractors, any order. `rest`: a uniform sample of
    the pool
    **without** them (drop mined items from the sample), `rest.sample_size` = S_R of N_R = N - M. Raises
    InputError where `hard` does not fit the queries, holds NaN, or N - M < S_R.
    """
    hard = np.asarray(hard)
    if hard.ndim != 2 or len(hard) != len(rest.top) or hard.dtype.kind not in "fiu":
        raise InputError(f"hard has shape {hard.shape}; it must be real numbers [{len(rest.top)} queries, M]")
    hard = hard.astype(np.float64)
    if not np.isfinite(hard).all():
        row = int(np.flatnonzero(~np.isfinite(hard).all(axis=1))[0])
        raise InputError(f"hard holds a score that is not finite (query {row})")
    remaining = gallery - hard.shape[1]
    if remaining < rest.sample_size:
        raise InputError(
            f"the sample of S = {rest.sample_size} is larger than the N - M = {remaining:.0f}"
            " distractors left beside the mined ones"
        )
    mined = count_ahead(-np.sort(-hard, axis=1), rest.query, rest.score)
    unseen = remaining - rest.sample_size
    terms = expected_precision(
        rest.counts / rest.sample_size, rest.index, unseen, cutoff, before=mined + rest.counts
    )
    return average_precision(terms, rest.query, rest.positives, cutoff)
