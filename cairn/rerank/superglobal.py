"""SuperGlobal re-ranking: a shortlist reordered by its own global descriptors, without local ones.

Source: Shao et al., "Global Features are All You Need for Image Retrieval and Reranking", ICCV 2023 (arXiv
2308.06954), section 3.3; official code ShihaoShao-GH/SuperGlobal, `modules/reranking/MDescAug.py` (refinement
of the top M) and `RerankwMDA.py` (maximum aggregation):

- every one of the top M is replaced by a weighted mean of itself (weight 1) and its K nearest among the top M
  (weight beta * similarity), and compared with the query: score 1;
- the refined descriptors of the K + 1 best by score 1 are joined by an element-wise maximum into a second
  query, and compared with all refined descriptors: score 2;
- the top M are sorted by the mean of both scores. What stands behind keeps its place.

As in the official code, the means are not normalised again, the query itself does not enter the maximum, and
the aggregated query's weights (its `ranks_value_trans`) are computed but unused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ParameterError
from cairn.progress import track
from cairn.rerank.two_stage import RankedQuery, RerankedQuery, shortlist
from cairn.search.products import product


@dataclass(frozen=True)
class SuperGlobal:
    """Knobs of the re-ranking: `top` M, `neighbours` K, `beta`; the defaults are the paper's."""

    top: int = 400
    neighbours: int = 9
    beta: float = 0.15

    def __post_init__(self) -> None:
        if self.top < 1 or self.neighbours < 0 or self.beta < 0:
            raise ParameterError(
                f"SuperGlobal: M = {self.top}, K = {self.neighbours}, beta = {self.beta}; "
                "expected M >= 1, K >= 0, beta >= 0"
            )

    @property
    def slug(self) -> str:
        """The stage's name: `sg-m400`; other K and beta than the paper's are added."""
        extra = "" if self.neighbours == 9 else f"-k{self.neighbours}"
        return f"sg-m{self.top}{extra}" + ("" if self.beta == 0.15 else f"-b{self.beta:.6g}")


def refine(top: NDArray[np.float32], neighbours: int = 9, beta: float = 0.15) -> NDArray[np.float32]:
    """Refined descriptors [M, D] of the top M, `top` [M, D] of unit norm in ranking order (`MDescAug`).

    Neighbours with equal similarity are taken in ranking order. The first neighbour, the image itself or an
    equal one, has weight 1.
    """
    similarity = product(top, top.T)
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : neighbours + 1]
    weight = np.take_along_axis(similarity, nearest, 1) * np.float32(beta)
    weight[:, 0] = 1
    total = np.zeros_like(top)
    # One neighbour at a time: [M, K, D] would be gigabytes at M = 1600.
    for place in range(nearest.shape[1]):
        total += weight[:, place, None] * top[nearest[:, place]]
    return total / weight.sum(axis=1, keepdims=True)


def superglobal_scores(
    query: NDArray[np.float32], top: NDArray[np.float32], neighbours: int = 9, beta: float = 0.15
) -> NDArray[np.float32]:
    """Scores [M] of the top M images, `top` [M, D] in ranking order, for `query` [D]; both of unit norm."""
    query, top = np.asarray(query, np.float32), np.asarray(top, np.float32)
    if not len(top):  # no image of the list has a descriptor
        return np.zeros(0, np.float32)
    refined = refine(top, neighbours, beta)
    first = product(refined, query[:, None])[:, 0]
    best = np.argsort(-first, kind="stable")[: neighbours + 1]
    second = product(refined, refined[best].max(axis=0)[:, None])[:, 0]
    return (first + second) / np.float32(2)


def rerank_superglobal(
    ranked: Sequence[RankedQuery],
    queries: NDArray[np.float32],
    gallery: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    options: SuperGlobal | None = None,
) -> list[RerankedQuery]:
    """Re-rank every query's top M (`options.top`, capped by the gallery).

    `queries` [Q, D] float32, unit norm, in the order of `ranked`; `gallery(rows [M])` gives the descriptors
    [M, D] of image rows. Junk is not treated apart (the official code does neither). An image behind the top
    M keeps its place and its score, which is a cosine and not comparable with the scores before it.
    """
    options = options or SuperGlobal()
    result = []
    for query, descriptor in track(zip(ranked, queries, strict=True), "SuperGlobal", len(ranked), "queries"):
        chosen = shortlist(query, np.zeros(len(query.rank), bool), options.top)
        top = np.asarray(gallery(query.image_row[chosen]), np.float32)
        scores = superglobal_scores(descriptor, top, options.neighbours, options.beta)
        result.append(reordered(query, scores))
    return result


def reordered(query: RankedQuery, scores: NDArray[np.float32]) -> RerankedQuery:
    """The query's list with its first `len(scores)` images sorted by `scores`, ties by manifest row."""
    m = len(scores)
    first = np.lexsort((query.image_row[:m], -scores))
    order = np.concatenate([first, np.arange(m, len(query.rank))])
    score = query.score.copy()
    score[:m] = scores
    return RerankedQuery(order.astype(np.int64), query.rank.copy(), score[order])


def as_ranking(ranked: Sequence[RankedQuery], changed: Sequence[RerankedQuery]) -> list[RankedQuery]:
    """The re-ranked lists as rankings for a next stage, as in `sg-m1600~ames-k1600-l0.55-t0.3`."""
    return [
        RankedQuery(
            query.query_id,
            tuple(query.image_ids[i] for i in new.order),
            query.image_row[new.order],
            new.rank,
            new.score,
            query.gallery_size,
            query.missing,
        )
        for query, new in zip(ranked, changed, strict=True)
    ]
