"""Alpha query expansion: the query joined with its first neighbours, weighted by similarity.

Source: Radenović, Tolias, Chum, "Fine-tuning CNN Image Retrieval with No Human Annotation", TPAMI 2019 (arXiv
1711.02512), section 3.4: q' = normalise(q + sum over the n nearest of (q . x)^alpha x).
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ParameterError
from cairn.rerank.superglobal import reordered
from cairn.rerank.two_stage import RankedQuery, RerankedQuery, shortlist
from cairn.search.products import product


def alpha_expanded(
    query: NDArray[np.float32], neighbours: NDArray[np.float32], alpha: float = 3.0
) -> NDArray[np.float32]:
    """The expanded query [D], unit norm, from `query` [D] and its nearest `neighbours` [n, D], unit norm.

    A negative similarity has weight 0 (a power of it need not exist); the query's own weight is 1.
    """
    if alpha < 0:
        raise ParameterError(f"query expansion: alpha = {alpha}; expected >= 0")
    query = np.asarray(query, np.float32)
    weight = np.clip(neighbours @ query, 0, None) ** np.float32(alpha)
    weight[neighbours @ query <= 0] = 0
    joined = query + weight @ neighbours
    # A query without a single feature, among images that are not similar to it, stays zero.
    return (joined / max(float(np.linalg.norm(joined)), 1e-12)).astype(np.float32)


def expansion_slug(top: int, neighbours: int = 10, alpha: float = 3.0) -> str:
    """The stage's name: `aqe-k400-n10-a3` re-ranks the top 400 with 10 neighbours and alpha 3."""
    return f"aqe-k{top}-n{neighbours}-a{alpha:.6g}"


def rerank_expanded(
    ranked: Sequence[RankedQuery],
    queries: NDArray[np.float32],
    gallery: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    top: int,
    neighbours: int = 10,
    alpha: float = 3.0,
) -> list[RerankedQuery]:
    """Re-rank every query's `top` images by their cosine with the expanded query.

    `queries` [Q, D] float32, unit norm, in the order of `ranked`; `gallery(rows)` gives descriptors [n, D].
    Searching the whole gallery again with `alpha_expanded` can also bring up images from behind the `top`.
    """
    result = []
    for query, descriptor in zip(ranked, queries, strict=True):
        chosen = shortlist(query, np.zeros(len(query.rank), bool), top)
        candidates = np.asarray(gallery(query.image_row[chosen]), np.float32)
        expanded = alpha_expanded(descriptor, candidates[:neighbours], alpha)
        result.append(reordered(query, product(candidates, expanded[:, None])[:, 0]))
    return result
