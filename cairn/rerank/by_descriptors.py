"""Re-ranking by global descriptors alone: SuperGlobal, α query expansion, k-reciprocal; alone or before another."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cairn.encoders.vlad import unit
from cairn.errors import ArtifactError
from cairn.images.manifest import Manifest
from cairn.rerank.expansion import expansion_slug, rerank_expanded
from cairn.rerank.parameters import Earlier, RerankParameters
from cairn.rerank.reciprocal import reciprocal_slug, rerank_reciprocal
from cairn.rerank.superglobal import SuperGlobal, rerank_superglobal
from cairn.rerank.two_stage import RankedQuery, RerankedQuery
from cairn.store.descriptors import DescriptorStore, open_queries, open_shards


def stage(parameters: RerankParameters | Earlier) -> str:
    """The stage's slug, as in `sg-m400`, `aqe-k400-n10-a3`, `kr-k400-n20-m6-l0.3`."""
    top = _top(parameters)
    if parameters.method == "superglobal":
        return _superglobal(parameters).slug
    if parameters.method == "aqe":
        return expansion_slug(top, parameters.aqe.neighbours, parameters.aqe.alpha)
    return reciprocal_slug(top, *_reciprocal(parameters))


def rerank(
    queries: Sequence[RankedQuery],
    descriptors: Path,
    manifest: Manifest,
    parameters: RerankParameters | Earlier,
) -> list[RerankedQuery]:
    """Each query's list in its new order; `descriptors` is the folder that was searched.

    ArtifactError where a descriptor is missing or the ranking is shorter than the shortlist.
    """
    gallery, stored = open_shards(descriptors), open_queries(descriptors)
    if gallery.dim != stored.dim:
        raise ArtifactError(
            f"{descriptors}: images have {gallery.dim} dimensions, queries {stored.dim}; extract again"
        )
    rows = _Rows(gallery, manifest)
    # Stored ones are rounded to float16, and so are their norms.
    wanted = unit(stored.take(stored.rows_of([query.query_id for query in queries])).astype(np.float32))
    top = _top(parameters)
    if parameters.method == "superglobal":
        return rerank_superglobal(queries, wanted, rows, _superglobal(parameters))
    if parameters.method == "aqe":
        options = parameters.aqe
        return rerank_expanded(queries, wanted, rows, top, options.neighbours, options.alpha)
    return rerank_reciprocal(queries, wanted, rows, top, *_reciprocal(parameters))


class _Rows:
    """Descriptors [n, D] of manifest rows [n], read from the shards when asked for."""

    def __init__(self, store: DescriptorStore, manifest: Manifest) -> None:
        self.store, self.manifest = store, manifest

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        names = [self.manifest.image_id[row] for row in rows]
        return unit(self.store.take(self.store.rows_of(names)).astype(np.float32))


def _top(parameters: RerankParameters | Earlier) -> int:
    return parameters.k if isinstance(parameters, RerankParameters) else parameters.shortlist


def _superglobal(parameters: RerankParameters | Earlier) -> SuperGlobal:
    options = parameters.superglobal
    return SuperGlobal(_top(parameters), options.neighbours, options.beta)


def _reciprocal(parameters: RerankParameters | Earlier) -> tuple[int, int, float]:
    return parameters.reciprocal.k1, parameters.reciprocal.k2, parameters.reciprocal.mix
