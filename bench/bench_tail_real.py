"""The tail estimators on real image descriptors: crops of given photographs, 5% sample against the exact
pool.

    python -m bench.bench_tail_real IMAGES [--crops 60000] [--draws 40] [--out FILE.json]

What it is: a pool of random crops of the photographs of one half of the folders' images, described by
gradient and colour histograms; queries are crops of the other half, positives the same crops moved,
rescaled, darkened and blurred by varying amounts. What it is not: a benchmark of retrieval. Crops of one
photograph overlap, so the pool is far from independent draws: a hard case for the law.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

from cairn.files import write_json
from cairn.progress import say, track
from cairn.tail.estimate import estimate_tail
from cairn.tail.law import average_precision, realised_precision
from cairn.tail.sampling import sample_rows, sampled_scores, top_scores
from cairn.tail.scores import count_ahead

CELLS, BINS, SIDE = 4, 8, 64
COLUMNS = ("naive", "count", "evt", "default")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, help="folder of photographs (searched recursively)")
    parser.add_argument("--crops", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--cutoff", type=int, default=100)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    files = sorted(p for p in arguments.images.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg", ".png"})
    photographs = [image for image in (cv2.imread(str(f)) for f in files) if image is not None]
    if len(photographs) < 4:
        raise SystemExit(
            f"{arguments.images}: {len(photographs)} readable photographs; at least 4 are needed"
        )
    queries, pos_q, positives, pool = descriptors(photographs, arguments.crops, arguments.queries)
    exact = top_scores(queries, [pool], None, len(pool))
    say(f"{len(pool)} pool descriptors of {pool.shape[1]} dimensions, {len(queries)} queries")
    rows, result = [], {}
    for fraction in (0.01, 0.02, 0.05, 0.1):
        errors: dict[str, list[float]] = {column: [] for column in COLUMNS}
        covered, widths = [], []
        for seed in track(range(arguments.draws), f"{fraction:.0%}"):
            chosen = sample_rows(len(pool), round(len(pool) * fraction), seed)
            kept = min(1000, len(chosen))
            scores = sampled_scores(queries, [pool], chosen, pos_q, positives, kept)
            counts = count_ahead(exact, scores.query, scores.score)
            terms = realised_precision(counts, scores.index, arguments.cutoff)
            truth = average_precision(terms, scores.query, scores.positives, arguments.cutoff).mean()
            got = estimate_tail(scores, len(pool), arguments.cutoff, estimators=COLUMNS)
            for column in COLUMNS:
                errors[column].append(got.estimates[column] - float(truth))
            low, high = got.ci95["fixed_queries"]
            covered.append(bool(low <= truth <= high))
            widths.append(high - low)
        cells = [f"{np.mean(np.abs(errors[c])):.4f} / {np.max(np.abs(errors[c])):.4f}" for c in COLUMNS]
        rows.append([f"{fraction:.0%}", *cells, f"{np.mean(covered):.1%}", f"{np.mean(widths):.4f}"])
        result[str(fraction)] = {"errors": errors, "covered": covered, "widths": widths}
    print(
        f"\n## Crops of {len(photographs)} photographs: pool {len(pool):,}, {len(queries)} queries,"
        f" {len(pos_q)} positives, mAP@{arguments.cutoff} = {truth:.4f}, {arguments.draws} draws\n"
    )
    header = ["sample", *(f"{c}: mean / worst" for c in COLUMNS), "fixed: covered", "width"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    if arguments.out:
        write_json(arguments.out, result)


def descriptors(
    photographs: list[np.ndarray], crops: int, queries: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Query descriptors [Q, D], query of each positive [P], positives [P, D], pool [crops, D]; float32."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(photographs))
    asked, pooled = np.array_split(order, [len(order) // 3])
    pool = np.stack(
        [
            describe(cut(photographs[pick], *box(rng)))
            for pick in track(rng.choice(pooled, crops), "crops", total=crops)
        ]
    )
    query, pos_q, positives = [], [], []
    for number, pick in enumerate(rng.choice(asked, queries)):
        x, y, size = box(rng)
        query.append(describe(cut(photographs[pick], x, y, size)))
        for _ in range(1 + rng.poisson(2.8)):
            strength = np.exp(rng.normal(np.log(0.12), 0.9))
            moved = rng.normal(0, strength * size, 2)
            patch = cut(photographs[pick], x + moved[0], y + moved[1], size * np.exp(rng.normal(0, strength)))
            patch = cv2.GaussianBlur(patch, (0, 0), 0.3 + 4 * strength * rng.random())
            patch = np.clip(patch * np.exp(rng.normal(0, strength)), 0, 255).astype(np.uint8)
            positives.append(describe(patch))
            pos_q.append(number)
    return np.stack(query), np.array(pos_q), np.stack(positives), pool


def box(rng: np.random.Generator) -> tuple[float, float, float]:
    """A random square: left, top, side, as shares of the photograph's shorter side and free room."""
    size = float(np.exp(rng.uniform(np.log(0.15), np.log(0.7))))
    return float(rng.random()), float(rng.random()), size


def cut(image: np.ndarray, x: float, y: float, size: float) -> np.ndarray:
    """That square of `image` (kept inside it), resized to SIDE x SIDE."""
    height, width = image.shape[:2]
    side = int(np.clip(size * min(height, width), 16, min(height, width)))
    left = int(np.clip(x, 0, 1) * (width - side))
    top = int(np.clip(y, 0, 1) * (height - side))
    return cv2.resize(image[top : top + side, left : left + side], (SIDE, SIDE), interpolation=cv2.INTER_AREA)


def describe(patch: np.ndarray) -> np.ndarray:
    """Unit vector: 4 x 4 cells of 8 gradient orientations and mean colour, square-rooted (Hellinger)."""
    gray = cv2.cvtColor(patch, cv2.COLOR_BGR2GRAY).astype(np.float32)
    dx, dy = cv2.Sobel(gray, cv2.CV_32F, 1, 0), cv2.Sobel(gray, cv2.CV_32F, 0, 1)
    magnitude = np.hypot(dx, dy)
    turn = ((np.arctan2(dy, dx) + np.pi) / (2 * np.pi) * BINS).astype(np.int64) % BINS
    cell = np.arange(SIDE) * CELLS // SIDE
    place = (cell[:, None] * CELLS + cell[None]) * BINS + turn
    histogram = np.bincount(place.ravel(), magnitude.ravel(), CELLS * CELLS * BINS)
    colour = cv2.resize(patch, (CELLS, CELLS), interpolation=cv2.INTER_AREA).astype(np.float32).ravel()
    parts = [np.sqrt(part / max(part.sum(), 1e-9)) for part in (histogram, colour)]
    vector = np.concatenate([parts[0], 0.5 * parts[1]]).astype(np.float32)
    vector -= vector.mean()
    return vector / max(float(np.linalg.norm(vector)), 1e-9)


if __name__ == "__main__":
    main()
