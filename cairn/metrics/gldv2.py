"""Google Landmarks v2 retrieval: mAP@100, rectangular AP over min(#positives, 100).

Definition (Weyand et al., "Google Landmarks Dataset v2", CVPR 2020; official code
`delf/python/google_landmarks_dataset/metrics.py`, `MeanAveragePrecision`): AP@100 = sum over the correct
predictions, at place i of the first 100, of (correct so far / i), over min(#positives, 100). A prediction
that repeats an earlier one takes up its place and is never correct. Queries without a prediction score 0;
ignored queries (and those without positives) have no value. Public and private are means over their own
queries, `all` over both.
"""

import numpy as np
from numpy.typing import NDArray

from cairn.metrics.ragged import Floats
from cairn.metrics.ranked import average_precision

K = 100


def score(
    query: NDArray[np.integer],
    place: NDArray[np.integer],
    correct: NDArray[np.bool_],
    n_positives: NDArray[np.integer],
    k: int = K,
) -> Floats:
    """AP@k, [queries], NaN without positives.

    `query` (ascending), `place` (from 0, ascending within a query), `correct` [n] (first occurrence of a
    positive); `n_positives` [queries].
    """
    return average_precision(
        query[correct].astype(np.int64), place[correct].astype(np.int64), np.asarray(n_positives), k
    )
