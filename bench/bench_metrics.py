"""Metrics at full size beside plain per-query loops: same numbers, times and their ratio.

Run: `python bench/bench_metrics.py`. One process; inputs are drawn from a fixed seed at the benchmarks'
sizes.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cairn.metrics import forb, micro_ap, revisitop
from cairn.metrics.ranks import ranks_by_counting

SEED = 0


def timed(function: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """Best wall time in seconds, and the result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def report(name: str, ours: float, loop: float, difference: float) -> None:
    print(
        f"{name:<58} {ours * 1e3:>9.1f} ms   loop {loop * 1e3:>9.0f} ms   {loop / ours:>6.0f}x   |d| {difference:.1e}"
    )


def bench_forb(generator: np.random.Generator, n_queries: int = 13_901, n_candidates: int = 10) -> None:
    """The whole evaluation: mAP@1 and @5, t-mAP@1 and @5 over 11 thresholds."""
    positives = [
        set(generator.integers(54_000, size=generator.integers(0, 4)).tolist()) for _ in range(n_queries)
    ]
    ids, scores = [], np.sort(generator.random((n_queries, n_candidates)))[:, ::-1]
    for wanted in positives:
        row = generator.integers(54_000, size=n_candidates).tolist()
        for place, image in zip(generator.permutation(n_candidates), wanted, strict=False):
            row[place] = image
        ids.append(row)
    tops = generator.random(n_queries)
    query = np.repeat(np.arange(n_queries), n_candidates)
    flat_scores = scores.ravel()
    correct = np.array([image in wanted for row, wanted in zip(ids, positives, strict=True) for image in row])
    n_positives = np.array([len(wanted) for wanted in positives])

    def ours() -> list[float]:
        scored = forb.score(query, flat_scores, correct, n_positives, forb.thresholds(tops))
        plain = [each.average_precision for each in scored]
        cut = [each.threshold_average_precision for each in scored]
        return [float(np.mean(values)) for values in (*plain, *cut)]

    score_lists = scores.tolist()

    def one(candidates: list[int], wanted: set[int], k: int) -> float:
        if not wanted:
            return float(not candidates)
        hits, total = 0, 0.0
        for place, image in enumerate(candidates[:k]):
            if image in wanted:
                hits += 1
                total += hits / (place + 1)
        return total / len(wanted)

    def loop() -> list[float]:
        plain = [np.mean([one(row, w, k) for row, w in zip(ids, positives, strict=True)]) for k in forb.KS]
        cut: list[list[float]] = [[], []]
        for level in forb.thresholds(tops):
            kept = [
                [image for image, score in zip(row, values, strict=True) if score >= level]
                for row, values in zip(ids, score_lists, strict=True)
            ]
            for means, k in zip(cut, forb.KS, strict=True):
                means.append(float(np.mean([one(row, w, k) for row, w in zip(kept, positives, strict=True)])))
        return [*map(float, plain), *(float(np.mean(means)) for means in cut)]

    mine, values = timed(ours)
    theirs, expected = timed(loop, 1)
    difference = float(np.abs(np.subtract(values, expected)).max())
    report(f"FORB, {n_queries:,} queries, 11 thresholds, 4 metrics", mine, theirs, difference)


def bench_micro_ap(generator: np.random.Generator, n: int = 500_000) -> None:
    """micro-AP and recall at precision 90 of 500,000 predictions, scores of six decimals."""
    score = np.round(generator.random(n), 6)
    correct = generator.random(n) < 0.01 + 0.2 * (score > 0.97)
    n_positives = int(correct.sum()) + 1000

    def ours() -> float:
        points = micro_ap.true_points(score, correct)
        micro_ap.recall_at_precision(points, score, n_positives)
        return micro_ap.micro_average_precision(points, n_positives)

    score_list, flags = score.tolist(), correct.tolist()

    def loop() -> float:
        order = sorted(range(n), key=lambda i: (score_list[i], not flags[i]), reverse=True)
        hits, total = 0, 0.0
        for place, i in enumerate(order):
            if flags[i]:
                hits += 1
                total += hits / (place + 1)
        return total / n_positives

    mine, value = timed(ours)
    theirs, expected = timed(loop, 1)
    report(f"micro-AP, {n:,} predictions", mine, theirs, abs(value - expected))


def bench_ranks(generator: np.random.Generator, n_queries: int = 7, n_gallery: int = 1_005_994) -> None:
    """Easy, Medium and Hard AP from scores in memory: ranks by counting, against a sort and three scans."""
    scores = generator.standard_normal((n_queries, n_gallery), dtype=np.float32)
    judged = [np.sort(generator.choice(n_gallery, 200, replace=False)) for _ in range(n_queries)]
    grade = np.repeat(["easy", "hard", "junk", "easy"], 50)

    def from_ranks(ranks: list[np.ndarray]) -> list[np.ndarray]:
        rank = np.concatenate(ranks)
        query = np.repeat(np.arange(n_queries), 200)
        order = np.lexsort((rank, query))
        grades = np.tile(grade, n_queries)[order]
        return [
            revisitop.score_setup(
                query[order],
                rank[order],
                np.isin(grades, positives),
                np.isin(grades, junk),
                np.full(n_queries, np.isin(grade, positives).sum()),
            ).average_precision
            for positives, junk in revisitop.SETUPS.values()
        ]

    def ours() -> list[np.ndarray]:
        return from_ranks(
            [ranks_by_counting(row, images) for row, images in zip(scores, judged, strict=True)]
        )

    def sort() -> list[np.ndarray]:
        values = []
        orders = np.argsort(-scores, axis=1, kind="stable")
        for positives, junk in revisitop.SETUPS.values():
            each = []
            for order, images in zip(orders, judged, strict=True):
                wanted, removed = images[np.isin(grade, positives)], images[np.isin(grade, junk)]
                kept = order[~np.isin(order, removed)]
                places = np.flatnonzero(np.isin(kept, wanted))
                hits = np.arange(len(places))
                before = np.divide(hits, places, out=np.ones(len(hits)), where=places > 0)
                each.append(((before + (hits + 1) / (places + 1)) / 2).sum() / len(wanted))
            values.append(np.array(each))
        return values

    mine, values = timed(ours, 2)
    theirs, expected = timed(sort, 1)
    report(
        f"E/M/H AP from scores, {n_queries} x {n_gallery:,}",
        mine,
        theirs,
        float(np.abs(np.subtract(values, expected)).max()),
    )


def main() -> None:
    generator = np.random.default_rng(SEED)
    bench_forb(generator)
    bench_micro_ap(generator)
    bench_ranks(generator)


if __name__ == "__main__":
    main()
