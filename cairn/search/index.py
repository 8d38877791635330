"""FAISS indexes over a gallery, and how often they find what exact search finds."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cairn.errors import ParameterError
from cairn.search.exact import Gallery
from cairn.search.index_parameters import Index

if TYPE_CHECKING:
    import faiss

CUTS = (1, 10, 100, 1000)
NONE = np.zeros(0, np.int64)
SEED = 0
POINTS_PER_LIST = 256
"""Images that k-means sees per inverted list, and per word of a product quantizer (FAISS's own default)."""
AT_ONCE = 8192


def build_index(
    gallery: Gallery, order: np.ndarray, parameters: Index, missing: np.ndarray = NONE
) -> "faiss.Index":
    """An index over `gallery`, with the manifest rows as its ids: row i is the image of gallery row order[i].

    The images `missing` (gallery rows) have no descriptor and are not in it; the others keep their ids, for which
    the index is wrapped (`IndexIDMap`).
    By inner product. `flat` compares with every image; `ivf-flat` with those of the `probes` nearest of `lists`
    clusters, in both cases in float16 as stored; `ivf-pq` the same by the codes of a product quantizer (Jégou,
    Douze and Schmid, TPAMI 2011); `hnsw` follows a hierarchical graph (Malkov and Yashunin, TPAMI 2020), `cagra`
    a flat one that a GPU built (Ootomo et al., ICDE 2024). Built on one thread of the CPU the same gallery gives
    the same file; on a GPU that is not promised. ParameterError where a parameter is out of the range that the
    gallery allows, or where this build of FAISS or this machine has no GPU.
    """
    from threadpoolctl import threadpool_limits

    ids = np.flatnonzero(~np.isin(order, missing)) if len(missing) else None
    order = order if ids is None else order[ids]
    with threadpool_limits(1):
        index = _empty(gallery.dim, len(order), parameters)
        if parameters.device == "gpu":
            index = _on_gpu(index, gallery.dim, len(order), parameters)
        if parameters.kind == "cagra":  # its graph is made of all vectors at once
            index.train(gallery.take(order).astype(np.float32))
        else:
            sample = _training_rows(len(order), parameters)
            index.train(gallery.take(order[sample]).astype(np.float32))
            for start in range(0, len(order), AT_ONCE):
                index.add(gallery.take(order[start : start + AT_ONCE]).astype(np.float32))
    return index if ids is None else _numbered(index, ids)


def _numbered(index: Any, ids: np.ndarray) -> "faiss.Index":
    """The filled `index`, whose vector i is called ids[i] instead of i."""
    import faiss

    whole: Any = faiss.IndexIDMap(faiss.IndexFlatIP(index.d))  # which FAISS wraps only while it is empty
    whole.index, whole.ntotal, whole.own_fields = index, index.ntotal, False
    whole.referenced_objects = [index]
    faiss.copy_array_to_vector(ids.astype(np.int64), whole.id_map)
    return whole


def _filled(index: Any) -> Any:
    """The index in which the vectors are, out of what `_numbered` put around it."""
    import faiss

    return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index


def _empty(dim: int, count: int, parameters: Index) -> "faiss.Index":
    import faiss

    half: Any = faiss.ScalarQuantizer.QT_fp16
    product = faiss.METRIC_INNER_PRODUCT
    if parameters.kind == "cagra":
        return faiss.IndexFlatIP(dim)
    if parameters.kind == "flat":
        # FAISS's GPU index takes float16 by an option, not from an index of that type.
        return (
            faiss.IndexFlatIP(dim)
            if parameters.device == "gpu"
            else faiss.IndexScalarQuantizer(dim, half, product)
        )
    if parameters.kind == "hnsw":
        index = faiss.IndexHNSWSQ(dim, half, parameters.links, product)
        index.hnsw.efConstruction, index.hnsw.efSearch = parameters.ef_construction, parameters.ef_search
        return index
    lists, quantizer = inverted_lists(parameters, count), faiss.IndexFlatIP(dim)
    if parameters.probes > lists and parameters.probes != Index.model_fields["probes"].default:
        raise ParameterError(
            f"search.index.probes = {parameters.probes}: there are {lists} lists over {count} images; 1 to {lists} "
            "are allowed"
        )
    if parameters.kind == "ivf-flat":
        index = faiss.IndexIVFScalarQuantizer(quantizer, dim, lists, half, product, False)
    else:
        pieces = subquantizers(parameters, dim)
        if count < 1 << parameters.bits:
            most = max(4, count.bit_length() - 1)
            raise ParameterError(
                f"search.index.bits = {parameters.bits}: {1 << parameters.bits} words cannot be learned from a "
                f"gallery of {count} images; 4 to {most} are allowed"
                if count >= 16
                else f"search.index.kind = ivf-pq: the gallery has {count} images; at least 16 are needed"
            )
        index = faiss.IndexIVFPQ(quantizer, dim, lists, pieces, parameters.bits, product)
        index.pq.cp.seed, index.pq.cp.min_points_per_centroid = SEED, 1
    index.cp.seed, index.cp.min_points_per_centroid = SEED, 1
    index.cp.max_points_per_centroid = POINTS_PER_LIST
    index.nprobe = min(parameters.probes, lists)
    return index


def _training_rows(count: int, parameters: Index) -> np.ndarray:
    """Manifest order's positions of the images that clusters and words are learned from, ascending."""
    if parameters.kind not in ("ivf-flat", "ivf-pq"):
        return np.arange(min(count, 1))  # float16 has nothing to learn, but FAISS wants to be asked
    wanted = POINTS_PER_LIST * inverted_lists(parameters, count)
    if parameters.kind == "ivf-pq":
        wanted = max(wanted, POINTS_PER_LIST << parameters.bits)
    return np.sort(np.random.default_rng(SEED).permutation(count)[:wanted])


def _on_gpu(index: "faiss.Index", dim: int, count: int, parameters: Index) -> "faiss.Index":
    """The empty `index` on the first GPU, with float16 storage. ParameterError where that cannot be."""
    import faiss as library

    faiss: Any = library  # the names below are those of GPU builds

    where = f"search.index.device = gpu (kind {parameters.kind})"
    if not hasattr(faiss, "StandardGpuResources"):
        raise ParameterError(
            f"{where}: this build of FAISS has no GPU indexes; install the extra `gpu`, or use cpu"
        )
    if faiss.get_num_gpus() < 1:
        raise ParameterError(f"{where}: FAISS finds no GPU on this machine; use device: cpu")
    resources = faiss.StandardGpuResources()
    if parameters.kind == "cagra":
        if not hasattr(faiss, "GpuIndexCagra"):
            raise ParameterError(
                f"{where}: this build of FAISS was made without cuVS, which has CAGRA; use one that was, or "
                "flat, ivf-flat or ivf-pq"
            )
        if count <= parameters.intermediate_degree:
            raise ParameterError(
                f"search.index.intermediate_degree = {parameters.intermediate_degree}: the gallery has {count} "
                f"images; at most {count - 1} is allowed"
            )
        config = faiss.GpuIndexCagraConfig()
        config.graph_degree = parameters.graph_degree
        config.intermediate_graph_degree = parameters.intermediate_degree
        moved = faiss.GpuIndexCagra(resources, dim, faiss.METRIC_INNER_PRODUCT, config)
    else:
        options = faiss.GpuClonerOptions()
        options.useFloat16 = True
        options.indicesOptions = faiss.INDICES_64_BIT
        moved = faiss.index_cpu_to_gpu(resources, 0, index, options)
        if parameters.kind in ("ivf-flat", "ivf-pq"):
            moved.nprobe = min(parameters.probes, inverted_lists(parameters, count))
    return moved


def inverted_lists(parameters: Index, images: int) -> int:
    """Number of inverted lists over so many images."""
    lists = parameters.lists if parameters.lists is not None else max(1, round(4 * math.sqrt(images)))
    if lists > images and parameters.lists is not None:
        raise ParameterError(
            f"search.index.lists = {lists}: the gallery has {images} images; at most as many lists are allowed"
        )
    return min(lists, images)


def subquantizers(parameters: Index, dim: int) -> int:
    """Pieces of a descriptor of `dim` numbers: as asked, or the divisor of `dim` nearest to dim / 8 (the lower one)."""
    divisors = [number for number in range(1, dim + 1) if dim % number == 0]
    if parameters.subquantizers is None:
        return min(divisors, key=lambda number: (abs(number - dim / 8), number))
    if parameters.subquantizers not in divisors:
        allowed = ", ".join(map(str, divisors))
        raise ParameterError(
            f"search.index.subquantizers = {parameters.subquantizers}: descriptors have {dim} numbers; "
            f"a divisor is allowed: {allowed}"
        )
    return parameters.subquantizers


def write_index(index: Any, path: Path) -> None:
    """Write an index for `faiss.read_index`; one on a GPU as its counterpart on the CPU."""
    import faiss

    from cairn.files import atomic

    with atomic(path) as temporary:
        faiss.write_index(_on_cpu(index), str(temporary))


def _on_cpu(index: Any) -> Any:
    import faiss as library

    faiss: Any = library  # some names are those of GPU builds

    if isinstance(index, faiss.IndexIDMap):
        return _numbered(_on_cpu(_filled(index)), faiss.vector_to_array(index.id_map))
    if hasattr(faiss, "GpuIndexCagra") and isinstance(index, faiss.GpuIndexCagra):
        copied = faiss.IndexHNSWCagra()
        index.copyTo(copied)
        return copied
    if hasattr(faiss, "GpuIndex") and isinstance(index, faiss.GpuIndex):
        return faiss.index_gpu_to_cpu(index)
    return index


def search_index(index: "faiss.Index", parameters: Index, queries: np.ndarray, k: int) -> np.ndarray:
    """Manifest rows int64 [queries, k] of the images that the index finds, the best first, -1 where it finds fewer.

    On one thread of the CPU, with its graph's candidates raised to `k` where there would be fewer.
    """
    import faiss as library
    from threadpoolctl import threadpool_limits

    faiss, options = cast(Any, library), None
    if parameters.kind == "hnsw":
        options = faiss.SearchParametersHNSW(efSearch=max(parameters.ef_search, k))
    elif parameters.kind == "cagra":
        options = faiss.SearchParametersCagra()  # type: ignore[attr-defined]
        options.itopk_size = max(parameters.itopk, k)
    with threadpool_limits(1):
        return index.search(np.asarray(queries, np.float32), k, params=options)[1]


def index_facts(
    index: "faiss.Index",
    parameters: Index,
    queries: np.ndarray,
    exact: Sequence[np.ndarray],
    measured: dict[str, float] | None = None,
) -> dict[str, Any]:
    """What the index is, and its recall: the share of exact search's first k images among its own first k.

    `queries` [n, dim]; `exact[q]` manifest rows of the query's first images by exact search, none of them missing
    from the index. Recall is the mean
    over queries, for each k of CUTS up to the shortest list, and for that. FAISS orders ties as it likes and sums
    in another order than exact search, so that even `flat` can be a little below 1 where scores (nearly) tie.
    Into `measured`, where given, go `queries_per_second` (on one thread) and `searched_k`: times are no part of an
    artifact.
    """
    facts: dict[str, Any] = {"kind": parameters.kind, "vectors": index.ntotal} | _storage(index, parameters)
    most = min((len(rows) for rows in exact), default=0)
    cuts = sorted({k for k in CUTS if k <= most} | ({min(most, CUTS[-1])} if most else set()))
    facts["recall"] = {}
    if cuts:
        start = time.perf_counter()
        found = search_index(index, parameters, queries, cuts[-1])
        seconds = time.perf_counter() - start
        if measured is not None:
            measured["queries_per_second"] = len(queries) / max(seconds, 1e-9)
            measured["searched_k"] = cuts[-1]
        for k in cuts:
            shares = [len(np.intersect1d(a[:k], b[:k])) / k for a, b in zip(found, exact, strict=True)]
            facts["recall"][str(k)] = float(np.mean(shares))
    return facts


def _storage(index: Any, parameters: Index) -> dict[str, Any]:
    index = _filled(index)
    facts: dict[str, Any] = parameters.own()
    facts["storage"] = "float16"
    if parameters.device == "gpu":
        facts["device"] = "gpu"
    if parameters.kind in ("ivf-flat", "ivf-pq"):
        facts |= {"lists": index.nlist, "probes": index.nprobe}
    if parameters.kind == "ivf-pq":
        facts["subquantizers"] = subquantizers(parameters, index.d)
        facts["storage"] = f"{facts['subquantizers']} × {parameters.bits} bits"
    if parameters.kind == "cagra":
        facts["storage"] = "float32"
    return facts
