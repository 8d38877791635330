"""Accuracy, interval coverage and speed of the tail estimators, beside SciPy's loop, in one run.

python -m bench.bench_tail                 # everything (two idle cores: twenty minutes, and the fresh shapes)
python -m bench.bench_tail --quick         # the same with few draws
python -m bench.bench_tail --only speed    # one part: accuracy, coverage, fresh, proxy, speed, tuning
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.tail_worlds import (
    FRESH,
    HELD_OUT,
    OTHER_CLUSTERS,
    TUNING,
    TUNING_INTERVAL,
    ClusteredPool,
    World,
    population,
    proxy_world,
    world,
)
from cairn.files import write_json
from cairn.progress import say, track
from cairn.tail import baselines, gpd
from cairn.tail.calibration import calibrate
from cairn.tail.estimate import TailEstimate, estimate_tail
from cairn.tail.hardness import evt_hardness, fit_tail
from cairn.tail.law import expected_precision
from cairn.tail.plots import write_plots
from cairn.tail.posterior import FEWEST_EXCEEDANCES, choose_posterior, default_exceedances

COLUMNS = ("naive", "count", "evt", "default")
FRACTIONS = (0.005, 0.01, 0.02, 0.05)
CLUSTERED = "clustered"
OTHER = "other-clusters"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few draws: shows the form, not the figures")
    parser.add_argument("--only", choices=["accuracy", "coverage", "fresh", "proxy", "speed", "tuning"])
    parser.add_argument("--shapes", help="only these shapes in accuracy and coverage, separated by commas")
    parser.add_argument("--out", type=Path, help="also write the figures as JSON here")
    parser.add_argument(
        "--plots", type=Path, help="only draw the plots of one held-out world into this folder"
    )
    arguments = parser.parse_args()
    if arguments.plots:
        plots(arguments.plots)
        return
    shapes = tuple(arguments.shapes.split(",")) if arguments.shapes else (*HELD_OUT, CLUSTERED)
    parts: dict[str, Callable[[bool], dict]] = {
        "speed": speed,
        "accuracy": lambda quick: accuracy(quick, shapes),
        "coverage": lambda quick: coverage(quick, shapes),
        "fresh": fresh,
        "proxy": proxy,
        "tuning": tuning,
    }
    wanted = [arguments.only] if arguments.only else [name for name in parts if name != "tuning"]
    result = {}
    for name in wanted:
        say(f"{name} …")
        result[name] = parts[name](arguments.quick)
    if arguments.out:
        write_json(arguments.out, result)


def accuracy(quick: bool, shapes: tuple[str, ...]) -> dict:
    """Error against the realised full-pool metric, held-out shapes and seeds."""
    seeds = (3001,) if quick else (3001, 3002)
    queries = 300 if quick else 1232
    return _accuracy(shapes, seeds, queries, "held-out shapes and seeds")


def tuning(quick: bool) -> dict:
    """The same on the shapes the estimator was tuned on, with other seeds."""
    return _accuracy((*TUNING, *TUNING_INTERVAL), (2001,), 300 if quick else 1232, "shapes used while tuning")


def fresh(quick: bool) -> dict:
    """Fixed-query coverage at 5% and error at 1% on shapes and seeds first run when the interval was as it is."""
    shapes, queries = (*FRESH, OTHER), 300 if quick else 1232
    intervals = coverage(quick, shapes, 7100, 10, new=False)
    errors = _accuracy(shapes, (7001,), queries, "fresh shapes and seeds", (0.01,))
    return {"coverage": intervals, "accuracy": errors}


def plots(folder: Path) -> None:
    """The plots of docs/tail-aware.md: held-out world "student" (heavy tails), seed 3001, 400 queries, 5%."""
    here = world("student", 3001, queries=400)
    result = estimate_tail(here.scores, here.gallery, here.cutoff)
    write_plots(folder, here.scores, result, here.gallery, here.cutoff, {"true_x": here.x})
    say(f"exact {here.full:.4f}, estimates {result.estimates}, interval {result.ci95['fixed_queries']}")


def _accuracy(
    shapes: tuple[str, ...],
    seeds: tuple[int, ...],
    queries: int,
    title: str,
    fractions: tuple[float, ...] = FRACTIONS,
) -> dict:
    errors: dict[tuple[str, float, str], list[float]] = {}
    intervals: dict[tuple[str, float], list[tuple[bool, float]]] = {}
    names = list(shapes)
    for shape, seed in track([(shape, seed) for shape in shapes for seed in seeds], "accuracy"):
        pool = _pool(shape, seed, queries)
        for fraction in fractions:
            drawn = (
                pool.draw(seed, fraction) if pool else world(shape, seed, fraction=fraction, queries=queries)
            )
            got = _note(errors, shape, fraction, drawn)
            low, high = got.ci95["fixed_queries"]
            intervals.setdefault((shape, fraction), []).append((bool(low <= drawn.full <= high), high - low))
            latest = ", ".join(f"{column} {errors[shape, fraction, column][-1]:+.4f}" for column in COLUMNS)
            bounds = f"[{low - drawn.full:+.4f}, {high - drawn.full:+.4f}]"
            say(f"{shape} {seed} {fraction:.1%}: {latest}; interval {bounds}")
    print(
        f"\n## Absolute error of mAP@1000, {title}: {len(seeds)} seeds, {queries} queries (clustered: 200)\n"
    )
    rows, covered = [], []
    for fraction in fractions:
        inside, width = zip(*(pair for name in names for pair in intervals[name, fraction]), strict=True)
        covered.append([f"{fraction:.1%}", f"{sum(inside)} of {len(inside)}", f"{np.mean(width):.4f}"])
        for label, pick in (("mean", np.mean), ("worst", np.max)):
            cells = []
            for column in COLUMNS:
                values = [abs(e) for name in names for e in errors[name, fraction, column]]
                cells.append(f"{pick(values):.4f}")
            rows.append([f"{fraction:.1%}", label, *cells])
    _table(["sample", "error", *COLUMNS], rows)
    print("\nFixed-query 95% interval of the default, the same draws:\n")
    _table(["sample", "covered", "mean width"], covered)
    print("\nMean absolute error by shape, evt → default:\n")
    _table(
        ["shape", *(f"{f:.1%}" for f in fractions)],
        [
            [name]
            + [
                " → ".join(f"{np.mean(np.abs(errors[name, f, column])):.4f}" for column in ("evt", "default"))
                for f in fractions
            ]
            for name in names
        ],
    )
    return {f"{name}/{fraction}/{column}": values for (name, fraction, column), values in errors.items()} | {
        f"{name}/{fraction}/interval": values for (name, fraction), values in intervals.items()
    }


def coverage(
    quick: bool, shapes: tuple[str, ...], first: int = 5000, draws: int = 20, new: bool = True
) -> dict:
    """How often the 95% intervals hold the truth at 5%: each draw has new queries, a new pool and a new
    sample. `new`: of new queries too, whose truth takes as long as some draws."""
    draws = 2 if quick else draws
    queries = 300 if quick else 1232
    rows: dict[str, dict] = {}
    for shape in track(shapes, "coverage"):
        pool = _pool(shape, first, queries)
        truth = population(shape) if new and not pool else None
        for number in range(first, first + draws):
            drawn = pool.draw(number, 0.05) if pool else world(shape, number, queries=queries)
            for key, value in _cover(drawn, truth).items():
                rows.setdefault(shape, {}).setdefault(key, []).extend(value)
        say(
            f"{shape}: {sum(rows[shape]['fixed'])} of {draws}, width {np.mean(rows[shape]['fixed_width']):.4f}"
        )
    total = {
        key: [v for r in rows.values() for v in r[key]]
        for key in ("error", "fixed", "fixed_width", "new", "new_width")
    }
    count = len(total["fixed"])
    print(f"\n## 95% intervals of the default at 5%, {count} draws, {queries} queries (clustered: 200)\n")
    _table(
        ["shape", "draws", "mean |error|", "worst", "fixed: covered", "width", "new: covered", "width "],
        [
            [
                name,
                str(len(r["fixed"])),
                f"{np.mean(np.abs(r['error'])):.4f}",
                f"{np.max(np.abs(r['error'])):.4f}",
                f"{np.mean(r['fixed']):.1%}",
                f"{np.mean(r['fixed_width']):.4f}",
                f"{np.mean(r['new']):.1%}" if r["new"] else "–",
                f"{np.mean(r['new_width']):.4f}",
            ]
            for name, r in [*rows.items(), ("all", total)]
        ],
    )
    return rows


def _cover(drawn: World, truth: float | None) -> dict[str, list]:
    got = estimate_tail(drawn.scores, drawn.gallery, drawn.cutoff, estimators=("default",))
    low, high = got.ci95["fixed_queries"]
    left, right = got.ci95["new_queries"]
    return {
        "error": [got.estimates["default"] - drawn.full],
        "fixed": [bool(low <= drawn.full <= high)],
        "fixed_width": [high - low],
        "new": [bool(left <= truth <= right)] if truth is not None else [],
        "new_width": [right - left],
    }


def proxy(quick: bool) -> dict:
    """Hard-mined plus uniform, with proxies of several correlations."""
    seeds = (3001,) if quick else (3001, 3002, 3003, 3004)
    queries = 200 if quick else 1232
    rows, out = [], {}
    for correlation in (0.8, 0.9, 0.94, 0.98):
        for fraction in (0.01, 0.05):
            errors = []
            for seed in seeds:
                here, hard = proxy_world(seed, fraction, correlation, queries=queries)
                got = estimate_tail(
                    here.scores, here.gallery, here.cutoff, estimators=("naive",), hard=hard, redraws=1
                )
                errors.append(got.estimates["hard-mined"] - here.full)
            out[f"{correlation}/{fraction}"] = errors
            rows.append([f"{correlation}", f"{fraction:.0%}", f"{np.mean(np.abs(errors)):.4f}",
                         f"{np.max(np.abs(errors)):.4f}"])  # fmt: skip
    print(f"\n## Hard-mined (M = 1000) plus uniform: {len(seeds)} seeds, {queries} queries, normal scores\n")
    _table(["correlation", "sample", "mean |error|", "worst"], rows)
    return out


def speed(quick: bool) -> dict:
    """Best of several runs, compilation excluded; SciPy timed on some rows and scaled to all."""
    from numba import get_num_threads
    from scipy import stats

    rng = np.random.default_rng(3)
    some = 4 if quick else 24
    rows, out = [], {}

    def add(name: str, ours: float, theirs: float | None, target: float) -> None:
        out[name] = {"ours": ours, "scipy": theirs, "target": target}
        beside = f"{theirs:.2f} s" if theirs is not None else "–"
        ratio = f"{theirs / ours:,.0f}×" if theirs is not None else "–"
        rows.append([name, f"{1e3 * ours:.1f} ms", f"{1e3 * target:.0f} ms", beside, ratio])

    shape = rng.normal(-0.12, 0.05, 1232)[:, None]
    for k, target in ((200, 0.015), (4000, 0.1)):
        values = np.expm1(-shape * np.log(rng.random((1232, k)))) / shape * 0.05
        ours = _best(lambda values=values: gpd.fit_likelihood(values))
        number = some if k == 200 else max(some // 6, 2)
        began = time.perf_counter()
        for row in values[:number]:
            stats.genpareto.fit(row, floc=0)
        add(f"fit, 1,232 rows, k = {k}", ours, (time.perf_counter() - began) / number * 1232, target)
    here = world("normal", 1, queries=1232)
    scores, gallery, cutoff = here.scores, here.gallery, here.cutoff

    def paper() -> np.ndarray:
        # A fresh object, so that cached counts are counted again.
        fresh = scores.with_top(scores.top, scores.sample_size)
        return baselines.per_query(fresh, evt_hardness(fresh, fit_tail(fresh.top, 200)), gallery, cutoff)

    ours = _best(paper)
    x = evt_hardness(scores, fit_tail(scores.top, 200))
    chosen = rng.choice(len(x), 20 * some, replace=False)
    began = time.perf_counter()
    reference = []
    for p in chosen:
        b = np.arange(cutoff - scores.index[p] + 1)
        i = scores.index[p]
        reference.append(float((i / (i + b) * stats.binom.pmf(b, gallery, x[p])).sum()))
    theirs = (time.perf_counter() - began) / len(chosen) * len(x)
    gap = np.abs(expected_precision(x[chosen], scores.index[chosen], gallery, cutoff) - reference).max()
    # SciPy's side: its fit loop and its law; counting is not charged to it.
    add(
        f"counts + fit + law, {len(x):,} positives",
        ours,
        theirs + out["fit, 1,232 rows, k = 200"]["scipy"],
        0.2,
    )
    k = default_exceedances(scores.top.shape[1])
    halves = [k, k // 2, k // 4, k // 8, FEWEST_EXCEEDANCES]  # the most that an estimate is a mean over
    for name, sizes in (("6 redraws", [k]), ("6 redraws, mean over five thresholds", halves)):
        ours = _best(lambda sizes=sizes: calibrate(scores, gallery, cutoff, sizes), 2)
        add(f"self-calibration, {name}", ours, None, 2.0)
    add(
        "default estimate without calibration",
        _best(lambda: choose_posterior(scores, gallery, cutoff), 2),
        None,
        2.0,
    )
    print(f"\n## Speed, {get_num_threads()} threads (law against SciPy: {gap:.1e})\n")
    _table(["task", "Cairn", "target", "SciPy loop (scaled)", "ratio"], rows)
    return out


def _note(errors: dict, shape: str, fraction: float, here: World) -> TailEstimate:
    got = estimate_tail(here.scores, here.gallery, here.cutoff, estimators=COLUMNS, redraws=4)
    for column in COLUMNS:
        errors.setdefault((shape, fraction, column), []).append(got.estimates[column] - here.full)
    return got


def _pool(shape: str, seed: int, queries: int) -> ClusteredPool | None:
    """The pool that `shape` names, a small one where `queries` are few; None for an analytic world."""
    if shape not in (CLUSTERED, OTHER):
        return None
    settings = OTHER_CLUSTERS if shape == OTHER else {}
    if queries < 1000:
        return ClusteredPool(seed, 400_000, 100, 60_000, **settings)
    return ClusteredPool(seed, **settings)


def _best(function: Callable[[], object], times: int = 7) -> float:
    function()  # compiles
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _table(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
