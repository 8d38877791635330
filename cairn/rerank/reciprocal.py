"""k-reciprocal re-ranking: images whose neighbourhoods overlap the query's come first.

Source: Zhong, Zheng, Cao, Li, "Re-ranking Person Re-identification with k-reciprocal Encoding", CVPR 2017
(arXiv 1701.08398), sections 3.2-3.4; official code zhunzhong07/person-re-ranking. Applied to each query and
its shortlist alone: other queries do not help, as they would not in a deployed system.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ParameterError
from cairn.rerank.superglobal import reordered
from cairn.rerank.two_stage import RankedQuery, RerankedQuery, shortlist

Floats = NDArray[np.float64]


def reciprocal_distances(
    query: NDArray[np.float32],
    gallery: NDArray[np.float32],
    k1: int = 20,
    k2: int = 6,
    mix: float = 0.3,
) -> Floats:
    """Final distances [n] (lower is nearer) of `gallery` [n, D] to `query` [D], both of unit norm.

    (1 - mix) * Jaccard distance of the k-reciprocal encodings + mix * the first distance, which is the
    squared Euclidean one divided by its largest value in each column, as in the official code.
    """
    if k1 < 1 or k2 < 1 or not 0 <= mix <= 1:
        raise ParameterError(f"k-reciprocal: k1 = {k1}, k2 = {k2}, mix = {mix}; expected k >= 1, mix in 0-1")
    points = np.concatenate([query[None], gallery]).astype(np.float64)
    squared = np.clip(2 - 2 * points @ points.T, 0, None)
    largest = squared.max(axis=0)
    first = (squared / np.where(largest > 0, largest, 1)).T
    order = np.argsort(first, axis=1, kind="stable")
    encoding = _encode(first, order, k1)
    if k2 > 1:
        # Local query expansion: a mean over the first k2 neighbours, itself included.
        encoding = np.stack([encoding[near[:k2]].mean(axis=0) for near in order])
    # Jaccard distance of fuzzy sets: both have sum 1, so the union is 2 - intersection.
    shared = np.minimum(encoding[0], encoding[1:]).sum(axis=1)
    jaccard = 1 - shared / (2 - shared)
    return (1 - mix) * jaccard + mix * first[0, 1:]


def reciprocal_slug(top: int, k1: int = 20, k2: int = 6, mix: float = 0.3) -> str:
    """The stage's name: `kr-k400-n20-m6-l0.3` re-ranks the top 400 with k1 = 20, k2 = 6 and mix 0.3."""
    return f"kr-k{top}-n{k1}-m{k2}-l{mix:.6g}"


def rerank_reciprocal(
    ranked: Sequence[RankedQuery],
    queries: NDArray[np.float32],
    gallery: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    top: int,
    k1: int = 20,
    k2: int = 6,
    mix: float = 0.3,
) -> list[RerankedQuery]:
    """Re-rank every query's `top` images; the score is 1 - distance. Arguments as in `rerank_expanded`."""
    result = []
    for query, descriptor in zip(ranked, queries, strict=True):
        chosen = shortlist(query, np.zeros(len(query.rank), bool), top)
        candidates = np.asarray(gallery(query.image_row[chosen]), np.float32)
        distance = reciprocal_distances(descriptor, candidates, k1, k2, mix)
        result.append(reordered(query, (1 - distance).astype(np.float32)))
    return result


def _encode(distance: Floats, order: NDArray[np.intp], k1: int) -> Floats:
    """Gaussian weights [n, n] of every point's expanded k-reciprocal neighbours, each row of sum 1."""
    n = len(distance)
    near = _reciprocal(order, k1)
    half = _reciprocal(order, round(k1 / 2))
    encoding = np.zeros((n, n))
    for point in range(n):
        members_alone = set(near[point])
        members = set(members_alone)
        for candidate in near[point]:
            other = half[candidate]
            if len(members_alone & set(other)) > 2 / 3 * len(other):
                members.update(other)
        chosen = np.array(sorted(members))
        weight = np.exp(-distance[point, chosen])
        encoding[point, chosen] = weight / weight.sum()
    return encoding


def _reciprocal(order: NDArray[np.intp], k: int) -> list[list[int]]:
    """For each point those of its k + 1 nearest (itself included) that have it among their k + 1 nearest."""
    nearest = order[:, : k + 1]
    among = np.zeros((len(order), len(order)), bool)
    np.put_along_axis(among, nearest, True, axis=1)
    return [[int(j) for j in near if among[j, i]] for i, near in enumerate(nearest)]
