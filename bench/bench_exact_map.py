"""Exact mAP (Easy, Medium, Hard) at the size of revisited Oxford with a million distractors, beside its floor.

Run: `env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/bench_exact_map.py`. Writes a seeded pool of
float16 descriptors (1,005,994 × 512: about 1 GiB) as a descriptor store in a temporary folder, then measures in
interleaved rounds, on as many threads as there are processors (CAIRN_WORKERS for another number), and prints the
best wall and processor time of each, and the ratios:

- reading once: every descriptor from the mapped files, widened to float32 in a cache-sized buffer;
- the product alone: queries × gallery from float32 in memory, in OpenBLAS (numpy) and in torch's BLAS;
- Cairn, from the opened store to the mAP of the three setups, and to the top 1,600 with all ranks;
- the same with opening the store (footers and a million ids);
- what scripts do: product, full argsort, and the three loops of the official evaluation;
- `faiss.knn`, k = 1600, on float32 in memory.

Where other programs share the processors, wall times of several threads say little: take CAIRN_WORKERS=1 and the
processor times, which do not count waiting (with more threads those of BLAS libraries count their idle spinning).

Anonymous memory (RssAnon) is read in a process of its own, beyond what it has after the imports.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cairn.metrics import revisitop
from cairn.parallel import workers
from cairn.search import counting
from cairn.search.exact import exact_search
from cairn.search.tiles import tile_rows
from cairn.store.descriptors import QUERIES_FILE, DescriptorStore, open_queries, open_shards, write_shard
from cairn.store.shards import assign_shards, shard_name

SEED = 0
ROWS, DIM, QUERIES = 1_005_994, 512, 70
LABELLED = 4_993
"""The first images are revisited Oxford's own; the others are distractors, never judged."""
JUDGED = {"easy": 50, "hard": 100, "junk": 50}
"""Judged images of each query."""
TOP = 1600
TARGETS = {"floor": 1.3, "scripts": 8.0, "faiss": 2.0, "memory": 512.0}

Judged = list[dict[str, np.ndarray]]


def pool_arguments(parser: argparse.ArgumentParser, slow: str) -> None:
    """Add what both benches of the pool take; `slow` says what runs in the slow rounds alone."""
    parser.add_argument("--rows", type=int, default=ROWS, help="images in the gallery")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-rounds", type=int, default=1, help=slow)
    parser.add_argument("--folder", type=Path, help="keep the pool here, and use the one that is here")


@contextlib.contextmanager
def pool(kept: Path | None, rows: int) -> Iterator[Path]:
    """The folder with the pool, written where there is none yet; the first line of the report is printed."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = kept or Path(temporary)
        if not (folder / QUERIES_FILE).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_pool(folder, rows)
        load = os.getloadavg()[0]
        print(f"{QUERIES} queries × {rows:,} images × {DIM}, {workers()} threads, load {load:.1f}")
        yield folder


def write_pool(folder: Path, rows: int) -> None:
    """Write a store of `rows` unit descriptors, and 70 queries near which their judged images lie."""
    generator = np.random.default_rng(SEED)
    queries = unit(generator.standard_normal((QUERIES, DIM), dtype=np.float32))
    nearness = {"easy": 0.6, "hard": 0.25, "junk": 0.4}
    pull = np.zeros((labelled(rows), QUERIES), np.float32)
    for query, grades in enumerate(judged_images(rows)):
        for grade, images in grades.items():
            pull[images, query] = generator.uniform(0.1, nearness[grade], len(images))
    ids = [f"image-{row:07d}" for row in range(rows)]
    for number, members in enumerate(assign_shards(ids)):
        vectors = unit(generator.standard_normal((len(members), DIM), dtype=np.float32))
        own = np.array(members)
        near = own < len(pull)
        vectors[near] += pull[own[near]] @ queries
        names = [ids[row] for row in members]
        write_shard(folder / shard_name(number), names, unit(vectors).astype(np.float16), {})
    names = [f"query-{number:02d}" for number in range(QUERIES)]
    write_shard(folder / QUERIES_FILE, names, queries.astype(np.float16), {}, id_column="query_id")


def judged_images(rows: int) -> Judged:
    """Of each query, the numbers of its easy, hard and junk images, ascending."""
    generator = np.random.default_rng(SEED + 1)
    ends = np.cumsum(list(JUDGED.values()))[:-1]
    drawn = [generator.permutation(labelled(rows))[: sum(JUDGED.values())] for _ in range(QUERIES)]
    return [
        {name: np.sort(part) for name, part in zip(JUDGED, np.split(images, ends), strict=True)}
        for images in drawn
    ]


def labelled(rows: int) -> int:
    return min(LABELLED, rows)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def places(store: DescriptorStore, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Image number of each row of the store, and the row of each image."""
    numbers = np.array([int(name[6:]) for name in store.ids])
    row_of = np.empty(rows, np.int64)
    row_of[numbers] = np.arange(rows)
    return numbers, row_of


def ours(
    queries: np.ndarray,
    store: DescriptorStore,
    numbers: np.ndarray,
    row_of: np.ndarray,
    judged: Judged,
    top: int = 0,
) -> tuple[dict[str, np.ndarray], Any]:
    """AP per query of each setup, and what the search found."""
    images = [np.concatenate(list(grades.values())) for grades in judged]
    found = exact_search(queries, store, numbers, top, [row_of[each] for each in images])
    grade = np.concatenate([np.repeat(list(grades), [len(g) for g in grades.values()]) for grades in judged])
    query = np.repeat(np.arange(len(judged)), [len(each) for each in images])
    rank = np.concatenate([one.judged_ranks for one in found])
    order = np.lexsort((rank, query))
    query, rank, grade = query[order], rank[order], grade[order]
    values = {}
    for setup, (positives, junk) in revisitop.SETUPS.items():
        n_positives = np.array([sum(len(grades[name]) for name in positives) for grades in judged])
        flags = np.isin(grade, positives), np.isin(grade, junk)
        values[setup] = revisitop.score_setup(query, rank, *flags, n_positives, ()).average_precision
    return values, found


def official(queries: np.ndarray, gallery: np.ndarray, judged: Judged) -> dict[str, np.ndarray]:
    """The same by product, full sort and the loops of the official evaluation.

    `gallery` is in the order of image numbers. The sort is stable, so that equal scores rank by number.
    """
    scores = queries @ gallery.T
    ranks = np.argsort(-scores, axis=1, kind="stable")
    return {
        setup: np.array(
            [
                official_ap(
                    ranks[query],
                    np.concatenate([grades[name] for name in positives]),
                    np.concatenate([grades[name] for name in junk]),
                )
                for query, grades in enumerate(judged)
            ]
        )
        for setup, (positives, junk) in revisitop.SETUPS.items()
    }


def official_ap(ranking: np.ndarray, positives: np.ndarray, junk: np.ndarray) -> float:
    """`compute_map` and `compute_ap` of revisitop's `evaluate.py` for one query."""
    rank = np.arange(len(ranking))[np.isin(ranking, positives)]
    junk_rank = np.arange(len(ranking))[np.isin(ranking, junk)]
    k = ij = 0
    if len(junk_rank):
        ip = 0
        while ip < len(rank):
            while ij < len(junk_rank) and rank[ip] > junk_rank[ij]:
                k += 1
                ij += 1
            rank[ip] -= k
            ip += 1
    total = 0.0
    for j, place in enumerate(rank):
        before = 1.0 if place == 0 else j / place
        total += (before + (j + 1) / (place + 1)) / 2 / len(positives)
    return total


def read_once(store: DescriptorStore) -> None:
    """Widen every descriptor into a buffer of one tile, the blocks shared among threads."""
    blocks, lock = store.blocks(), threading.Lock()

    def work() -> None:
        buffer = np.empty(tile_rows(store.dim) * store.dim, np.uint32)
        while True:
            with lock:
                block = next(blocks, None)
            if block is None:
                return
            bits = block.view(np.uint16).reshape(-1)
            for start in range(0, len(bits), len(buffer)):
                part = bits[start : start + len(buffer)]
                counting.widen(part, buffer[: len(part)])

    with ThreadPoolExecutor(workers()) as pool:
        for each in [pool.submit(work) for _ in range(workers())]:
            each.result()


def memory(folder: Path, rows: int) -> None:
    """Print the highest RssAnon beyond the imports, in MiB, of opening, top 1,600, all ranks and AP."""
    import numba  # noqa: F401 - an import, like those above
    import pyarrow.parquet  # noqa: F401
    import threadpoolctl  # noqa: F401

    before, highest, done = anonymous(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    store = open_shards(folder)
    ours(open_queries(folder).array(), store, *places(store, rows), judged_images(rows), TOP)
    done.set()
    watcher.join()
    print((highest - before) / 2**20)


def anonymous() -> int:
    """RssAnon of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def measured_memory(folder: Path, rows: int) -> float:
    command = [sys.executable, __file__, "--memory", str(folder), "--rows", str(rows)]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return float(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | path).stdout
    )


def measure(folder: Path, rows: int, rounds: int, slow_rounds: int) -> dict[str, np.ndarray]:
    """Best wall and processor seconds of each contender, by name."""
    import faiss
    import torch
    from threadpoolctl import threadpool_limits

    threads = workers()
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    store = open_shards(folder)
    queries = open_queries(folder).array()
    numbers, row_of = places(store, rows)
    judged = judged_images(rows)
    single = queries.astype(np.float32)
    gallery = store.take(row_of).astype(np.float32)  # by image number
    product = np.empty((rows, QUERIES), np.float32)
    tensors = torch.from_numpy(gallery), torch.from_numpy(single.T.copy()), torch.from_numpy(product)

    def opened() -> None:
        fresh = open_shards(folder)
        ours(open_queries(folder).array(), fresh, numbers, row_of, judged)

    fast: dict[str, Callable[[], Any]] = {
        "reading once": lambda: read_once(store),
        "product, OpenBLAS": lambda: np.matmul(gallery, single.T, out=product),
        "product, torch": lambda: torch.mm(tensors[0], tensors[1], out=tensors[2]),
        "Cairn, mAP": lambda: ours(queries, store, numbers, row_of, judged),
        "Cairn, mAP, opening": opened,
        "Cairn, top 1600 and mAP": lambda: ours(queries, store, numbers, row_of, judged, TOP),
    }
    slow: dict[str, Callable[[], Any]] = {
        "faiss.knn": lambda: faiss.knn(single, gallery, TOP, metric=faiss.METRIC_INNER_PRODUCT),
        "product, argsort, loops": lambda: official(single, gallery, judged),
    }
    ours(queries, store, numbers, row_of, judged, TOP)  # compiles
    best: dict[str, np.ndarray] = {}
    results: dict[str, Any] = {}
    with threadpool_limits(threads):
        for number in range(rounds):
            for name, function in (fast | slow if number < slow_rounds else fast).items():
                best[name] = np.minimum(best.get(name, np.inf), timed(function, name, results))
    compare(results["Cairn, mAP"][0], results["product, argsort, loops"])
    return best


def timed(function: Callable[[], Any], name: str, results: dict[str, Any]) -> np.ndarray:
    """Wall and processor seconds; what the function returns goes to `results`."""
    start, used = time.perf_counter(), time.process_time()
    results[name] = function()
    return np.array([time.perf_counter() - start, time.process_time() - used])


def compare(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Print how far the mAPs are apart (float32 products of other shapes differ in the last bit)."""
    for setup in mine:
        a, b = float(np.mean(mine[setup])), float(np.mean(theirs[setup]))
        print(f"mAP {setup:<7} {100 * a:.4f} by counting, {100 * b:.4f} by sorting, |d| {abs(a - b):.1e}")


def report(best: dict[str, np.ndarray], megabytes: float) -> None:
    """Print all times, and each ratio twice: of wall time and of processor time."""
    floor = best["reading once"] + np.minimum(best["product, OpenBLAS"], best["product, torch"])
    print(f"{'':<28} {'wall':>8}   × floor   {'processor':>9}   × floor")
    for name, seconds in (best | {"floor: reading + product": floor}).items():
        (wall, used), (by_wall, by_used) = seconds, seconds / floor
        print(f"{name:<28} {wall:>6.3f} s   {by_wall:>7.2f}   {used:>7.3f} s   {by_used:>7.2f}")
    print()
    ours_map, ours_top = best["Cairn, mAP"], best["Cairn, top 1600 and mAP"]
    line("mAP / floor", ours_map / floor, "≤", TARGETS["floor"])
    line("mAP with opening / floor", best["Cairn, mAP, opening"] / floor, "≤", TARGETS["floor"])
    line("top 1600 and mAP / floor", ours_top / floor, "≤", TARGETS["floor"])
    line("argsort and loops / mAP", best["product, argsort, loops"] / ours_map, "≥", TARGETS["scripts"])
    line("faiss.knn / top 1600", best["faiss.knn"] / ours_top, "≥", TARGETS["faiss"])
    line("anonymous memory, MiB", np.array([megabytes]), "≤", TARGETS["memory"])


def line(name: str, values: np.ndarray, sign: str, target: float) -> None:
    """One ratio (wall time, processor time) beside its target, which is one of wall time."""
    met = values[0] <= target if sign == "≤" else values[0] >= target
    shown = "   ".join(f"{value:>8.2f}" for value in values)
    print(f"{name:<28} {shown:<19}   target {sign} {target:g}: {'met' if met else 'not met'}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    pool_arguments(parser, "rounds in which faiss and the scripts' way run")
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.memory:
        memory(asked.memory, asked.rows)
        return
    with pool(asked.folder, asked.rows) as folder:
        report(
            measure(folder, asked.rows, asked.rounds, asked.slow_rounds), measured_memory(folder, asked.rows)
        )


if __name__ == "__main__":
    main()
