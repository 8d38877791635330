"""DISC21 score normalisation: a query's scores less its similarity to the n-th nearest training image.

Definition (Douze et al., "The 2021 Image Similarity Dataset and Challenge", 2021; official code
`isc2021/scripts/score_normalization.py`, reduction `min`): score(q, r) = <q, r> - factor x <q, t_n(q)>, where
t_n(q) is the training descriptor with the n-th largest inner product with q. A query that looks like many
unrelated images is pushed down, so that one threshold serves all queries.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 24  # similarities held at once


def nth_neighbor_norms(
    query: NDArray[np.floating], training: NDArray[np.floating], n: int, factor: float = 1.0
) -> NDArray[np.float32]:
    """What is added to all inner products of each query, float32 [queries].

    `query` [queries, dim], `training` [images, dim], L2-normalised; `n` from 1 to the number of training images.
    """
    if not 1 <= n <= len(training):
        raise ValueError(f"n is {n}; expected 1 to {len(training)}, the number of training images")
    training = np.ascontiguousarray(training, np.float32)
    norms = np.empty(len(query), np.float32)
    step = max(1, BLOCK // max(1, len(training)))
    for start in range(0, len(query), step):
        similarity = np.asarray(query[start : start + step], np.float32) @ training.T
        norms[start : start + step] = np.partition(similarity, len(training) - n, axis=1)[:, -n]
    return -np.float32(factor) * norms
