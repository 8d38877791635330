"""Exact search beside its floor and beside FAISS: the top 1,600 and all ranks among a million; indexes and recall.

Run: `python bench/bench_search.py` (about 3 minutes on two cores; `--rows 100000` for a short one). The pool is that of
`bench_exact_map.py`: 1,005,994 × 512 float16 from a fixed seed, as a descriptor store in a temporary folder
(`--folder` keeps it). Three parts, each contender beside its peer in the same run:

1. **One pass**: reading once, the bare product in the faster BLAS, Cairn's top 1,600 with the rank of 14,000 judged
   pairs (and, to see what choosing costs, ranks alone, and the top 100,000), `faiss.knn` with k = 1,600 on float32
   in memory. Wall and processor time, best of interleaved rounds; anonymous memory in a process of its own.
2. **The same result** for 1 thread, several, and (where Ray is installed) two Ray workers, number by number.
3. **Indexes** over `--index-rows` clustered descriptors: every kind that this FAISS has, its recall at 1, 10, 100
   against exact search, the seconds it was built in, its size, and queries per second on one thread.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_exact_map import (
    DIM,
    QUERIES,
    TARGETS,
    TOP,
    judged_images,
    line,
    measured_memory,
    places,
    pool,
    pool_arguments,
    read_once,
    timed,
    unit,
)
from bench.bench_rounding import Memory
from cairn.errors import ParameterError
from cairn.parallel import workers
from cairn.search import Index
from cairn.search.exact import Found, exact_search
from cairn.search.index import build_index, index_facts, write_index
from cairn.store.descriptors import open_queries, open_shards

MANY = 100_000
INDEX_ROWS, INDEX_QUERIES, CLUSTERS = 30_000, 200, 2_000
KINDS = [
    Index(kind="flat"),
    Index(kind="ivf-flat", probes=16),
    Index(kind="ivf-pq", probes=64, subquantizers=128),
    Index(kind="hnsw"),
    *(Index(kind=kind, device="gpu") for kind in ("flat", "ivf-flat", "ivf-pq", "cagra")),
]


def one_pass(folder: Path, rows: int, rounds: int, slow_rounds: int) -> dict[str, np.ndarray]:
    """Best wall and processor seconds of each contender, by name."""
    import faiss
    import torch
    from threadpoolctl import threadpool_limits

    threads = workers()
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    store, queries = open_shards(folder), open_queries(folder).array()
    numbers, row_of = places(store, rows)
    judged = [row_of[np.concatenate(list(grades.values()))] for grades in judged_images(rows)]
    single = queries.astype(np.float32)
    gallery = store.array().astype(np.float32)
    product = np.empty((rows, QUERIES), np.float32)
    tensors = torch.from_numpy(gallery), torch.from_numpy(single.T.copy()), torch.from_numpy(product)
    fast = {
        "reading once": lambda: read_once(store),
        "product, OpenBLAS": lambda: np.matmul(gallery, single.T, out=product),
        "product, torch": lambda: torch.mm(tensors[0], tensors[1], out=tensors[2]),
        "Cairn, ranks alone": lambda: exact_search(queries, store, numbers, 0, judged),
        f"Cairn, top {TOP:,} and ranks": lambda: exact_search(queries, store, numbers, TOP, judged),
    }
    slow = {
        f"Cairn, top {MANY:,} and ranks": lambda: exact_search(queries, store, numbers, MANY, judged),
        f"faiss.knn, k = {TOP:,}": lambda: faiss.knn(single, gallery, TOP, metric=faiss.METRIC_INNER_PRODUCT),
    }
    fast[f"Cairn, top {TOP:,} and ranks"]()  # compiles
    best: dict[str, np.ndarray] = {}
    results: dict[str, Any] = {}
    with threadpool_limits(threads):
        for number in range(rounds):
            for name, function in (fast | slow if number < slow_rounds else fast).items():
                best[name] = np.minimum(best.get(name, np.inf), timed(function, name, results))
    found = results[f"Cairn, top {TOP:,} and ranks"]
    theirs = results[f"faiss.knn, k = {TOP:,}"][1]
    shares = [np.isin(numbers[b], a.rows).mean() for a, b in zip(found, theirs, strict=True)]
    print(f"share of faiss.knn's {TOP:,} images among Cairn's: {np.mean(shares):.6f}")
    return best


def report(best: dict[str, np.ndarray], megabytes: float) -> None:
    """Print all times beside the floor, and the targets."""
    floor = best["reading once"] + np.minimum(best["product, OpenBLAS"], best["product, torch"])
    print(f"{'':<30} {'wall':>8}   × floor   {'processor':>9}   × floor")
    for name, seconds in (best | {"floor: reading + product": floor}).items():
        (wall, used), (by_wall, by_used) = seconds, seconds / floor
        print(f"{name:<30} {wall:>6.3f} s   {by_wall:>7.2f}   {used:>7.3f} s   {by_used:>7.2f}")
    ours = best[f"Cairn, top {TOP:,} and ranks"]
    line(f"top {TOP:,} and ranks / floor", ours / floor, "≤", TARGETS["floor"])
    line("faiss.knn / the same", best[f"faiss.knn, k = {TOP:,}"] / ours, "≥", TARGETS["faiss"])
    line("anonymous memory, MiB", np.array([megabytes]), "≤", TARGETS["memory"])


def same_results(folder: Path, rows: int, *, with_ray: bool) -> None:
    """Search with one thread, with all, and over Ray; print which agree in every number."""
    store, queries = open_shards(folder), open_queries(folder).array()
    numbers, row_of = places(store, rows)
    judged = [row_of[np.concatenate(list(grades.values()))] for grades in judged_images(rows)]
    alone = exact_search(queries, store, numbers, TOP, judged, threads=1)
    for name, options in _ways(with_ray):
        with options as chosen:
            start = time.perf_counter()
            found = exact_search(queries, store, numbers, TOP, judged, **chosen)
            seconds = time.perf_counter() - start
        print(f"{name:<28} {seconds:>7.2f} s   {'identical' if same(alone, found) else 'DIFFERENT'}")


def _ways(with_ray: bool) -> "Iterator[tuple[str, contextlib.AbstractContextManager[dict[str, Any]]]]":
    threads = workers() + 1
    yield f"{threads} threads", contextlib.nullcontext({"threads": threads})
    if not with_ray:
        return
    try:
        import ray  # noqa: F401
    except ImportError:
        print("Ray is not installed: nothing to compare (extra `ray`)")
        return
    yield "two Ray workers", _ray()


@contextlib.contextmanager
def _ray() -> Iterator[dict[str, Any]]:
    from cairn.ray_executor import RayExecutor
    from cairn.settings import RaySettings

    with contextlib.closing(RayExecutor(RaySettings(workers=2))) as executor:
        _ = executor.parts  # starts it
        yield {"executor": executor}


def same(one: Sequence[Found], other: Sequence[Found]) -> bool:
    """Whether two results agree in every number."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("rows", "scores", "judged_ranks", "judged_scores")
    )


class Clustered(Memory):
    """Unit descriptors around random centres, float16, in memory."""

    @classmethod
    def drawn(cls, count: int, seed: int) -> "Clustered":
        centres = unit(np.random.default_rng(0).standard_normal((CLUSTERS, DIM), dtype=np.float32))
        generator = np.random.default_rng(seed)
        noise = unit(generator.standard_normal((count, DIM), dtype=np.float32))
        return cls(unit(centres[generator.integers(CLUSTERS, size=count)] + noise).astype(np.float16))


def indexes(rows: int) -> None:
    """Print one line per kind of index."""
    gallery, queries = Clustered.drawn(rows, 1), Clustered.drawn(INDEX_QUERIES, 2).rows
    start = time.perf_counter()
    found = exact_search(queries, gallery, np.arange(rows), 100, [[]] * len(queries), threads=1)
    seconds = time.perf_counter() - start
    print(f"{INDEX_QUERIES} queries × {rows:,} clustered descriptors × {DIM}, one thread, k = 100")
    print(f"{'index':<22} {'recall@1':>9} {'@10':>7} {'@100':>7} {'build':>9} {'size':>11} {'queries/s':>10}")
    print(f"{'exact':<22} {1:>9.4f} {1:>7.4f} {1:>7.4f} {'-':>9} {'-':>11} {len(queries) / seconds:>10,.0f}")
    exact = [one.rows for one in found]
    with tempfile.TemporaryDirectory() as temporary:
        for parameters in KINDS:
            name = parameters.kind + (" (GPU)" if parameters.device == "gpu" else "")
            measured: dict[str, float] = {}
            start = time.perf_counter()
            try:
                index = build_index(gallery, np.arange(rows), parameters)
            except ParameterError as error:
                print(f"{name:<22} not measured: {error}")
                continue
            seconds = time.perf_counter() - start
            write_index(index, Path(temporary) / "index")
            size = (Path(temporary) / "index").stat().st_size / 2**20
            recall = index_facts(index, parameters, queries, exact, measured)["recall"]
            shown = " ".join(f"{recall[k]:>{9 if k == '1' else 7}.4f}" for k in ("1", "10", "100"))
            speed = measured["queries_per_second"]
            print(f"{name:<22} {shown} {seconds:>7.1f} s {size:>7.1f} MiB {speed:>10,.0f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    pool_arguments(parser, "rounds of faiss.knn and of the top 100,000")
    parser.add_argument("--index-rows", type=int, default=INDEX_ROWS)
    parser.add_argument("--no-ray", action="store_true", help="leave Ray out")
    asked = parser.parse_args(arguments)
    with pool(asked.folder, asked.rows) as folder:
        best = one_pass(folder, asked.rows, asked.rounds, asked.slow_rounds)
        report(best, measured_memory(folder, asked.rows))
        print("\nthe same result as on one thread:")
        same_results(folder, asked.rows, with_ray=not asked.no_ray)
    print()
    indexes(asked.index_rows)


if __name__ == "__main__":
    main()
