"""FAISS indexes over a gallery, and how often they find what exact search finds."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ParameterError
from cairn.search import Index
from cairn.search.exact import Gallery

if TYPE_CHECKING:
    import faiss

CUTS = (1, 10, 100, 1000)
SEED = 0


def build_index(gallery: Gallery, order: np.ndarray, parameters: Index) -> "faiss.Index":
    """An index over `gallery`, with the manifest rows as its ids: row i is the image of gallery row order[i].

    Inner product, vectors in float16 as stored. `flat` compares with every image; `ivf-flat` with those of the
    `probes` nearest of `lists` clusters. Built on one thread: the same gallery gives the same file.
    ParameterError where there are more lists than images.
    """
    import faiss
    from threadpoolctl import threadpool_limits

    dim, count = gallery.dim, len(gallery)
    with threadpool_limits(1):
        if parameters.kind == "flat":
            index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        else:
            lists = inverted_lists(parameters, count)
            quantizer = faiss.IndexFlatIP(dim)
            index = faiss.IndexIVFScalarQuantizer(
                quantizer, dim, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False
            )
            index.cp.seed = SEED
            index.cp.min_points_per_centroid = 1
            index.nprobe = min(parameters.probes, lists)
            generator = np.random.default_rng(SEED)
            sample = np.sort(generator.permutation(count)[: lists * index.cp.max_points_per_centroid])
            index.train(gallery.take(order[sample]).astype(np.float32))
        for start in range(0, count, 8192):
            index.add(gallery.take(order[start : start + 8192]).astype(np.float32))
    return index


def inverted_lists(parameters: Index, images: int) -> int:
    """Number of inverted lists over so many images."""
    lists = parameters.lists if parameters.lists is not None else max(1, round(4 * math.sqrt(images)))
    if lists > images and parameters.lists is not None:
        raise ParameterError(
            f"search.index.lists = {lists}: the gallery has {images} images; at most as many lists are allowed"
        )
    return min(lists, images)


def write_index(index: "faiss.Index", path: Path) -> None:
    """Write an index for `faiss.read_index`."""
    import faiss

    from cairn.files import atomic

    with atomic(path) as temporary:
        faiss.write_index(index, str(temporary))


def index_facts(
    index: "faiss.Index", parameters: Index, queries: np.ndarray, exact: list[np.ndarray]
) -> dict[str, Any]:
    """What the index is, and its recall: the share of exact search's first k images among its own first k.

    `queries` [n, dim]; `exact[q]` manifest rows of the query's first images by exact search. Recall is the mean
    over queries, for each k of CUTS up to the shortest list, and for that. FAISS orders ties as it likes and sums
    in another order than exact search, so that even `flat` can be a little below 1 where scores (nearly) tie.
    """
    from threadpoolctl import threadpool_limits

    facts: dict[str, Any] = {"kind": parameters.kind, "vectors": index.ntotal, "storage": "float16"}
    if parameters.kind == "ivf-flat":
        facts |= {"lists": index.nlist, "probes": index.nprobe}  # type: ignore[attr-defined]
    most = min((len(rows) for rows in exact), default=0)
    cuts = sorted({k for k in CUTS if k <= most} | ({min(most, CUTS[-1])} if most else set()))
    facts["recall"] = {}
    if cuts:
        with threadpool_limits(1):
            found = index.search(np.asarray(queries, np.float32), cuts[-1])[1]
        for k in cuts:
            shares = [len(np.intersect1d(a[:k], b[:k])) / k for a, b in zip(found, exact, strict=True)]
            facts["recall"][str(k)] = float(np.mean(shares))
    return facts
