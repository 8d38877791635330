"""A project with a run of each kind of protocol, as `cairn run` would leave it, drawn from one seed."""

import random
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cairn.benchmarks.structure import GroundTruth, Query, write_ground_truth
from cairn.files import file_digest, write_json
from cairn.images.manifest import build_manifest, list_entries, write_manifest
from cairn.report.plots import write_tables
from cairn.results import NumberName, Result, gather_results, read_results, write_results
from cairn.results.scoring import score_run
from tests.lineage.project import Builder

IMAGES = 16
QUERIES = 8
PROTOCOLS = {"town": "revisitop", "copies": "disc21", "flat": "forb", "kinds": "inquire"}
SYSTEMS = {"first": None, "second": "geometry-k100"}
HOSTILE = "a red </script><script>alert(1)</script> door & more"


def build(folder: Path, many: int = 0) -> Path:
    """The project's root. `many` adds that many numbers of systems without files of their own."""
    root = folder / "cairn"
    (root / "assets").mkdir(parents=True)
    (root / "params.yaml").write_text("runs: {}\n")
    builder = Builder(root)
    generator = random.Random(7)
    runs = []
    for benchmark, protocol in PROTOCOLS.items():
        _benchmark(builder, benchmark, protocol)
        for system, stage in SYSTEMS.items():
            _run(builder, benchmark, system, stage, protocol, generator)
            runs.append((benchmark, system))
    runs += _published(builder, generator)
    runs += _many(builder, many, generator)
    (root / "artifacts/results").mkdir()
    gather_results(root, runs, root / "artifacts/results")
    numbers = read_results(root / "artifacts/results/results.parquet")
    write_tables(root, numbers, root / "artifacts/results/plots")
    builder.stage("results", "artifacts/results", ("artifacts/scores",), {})
    builder.write_lock()
    return root


def _benchmark(builder: Builder, benchmark: str, protocol: str) -> None:
    root, base = builder.root, f"artifacts/{benchmark}"
    images = root / base / "sources/images"
    images.mkdir(parents=True)
    colours = np.random.default_rng(len(benchmark)).integers(0, 256, (IMAGES, 3))
    for number in range(IMAGES):
        pixels = np.full((30, 40, 3), colours[number], np.uint8)
        (images / f"i{number:02}.png").write_bytes(cv2.imencode(".png", pixels)[1].tobytes())
    truth_file = root / base / "sources/truth.csv"
    truth_file.write_text("made for a test\n")
    source = {
        "name": "truth.csv",
        "sha256": file_digest(truth_file),
        "licence": "CC0-1.0",
        "url": "https://example.org/t",
    }
    listed = [source] if benchmark != "flat" else [{"name": "truth.csv"}]  # flat's source is not pinned
    write_json(root / base / "sources/sources.json", {"sources": listed})
    builder.stage(f"sources@{benchmark}", f"{base}/sources", ())
    entries = list_entries(f"{base}/sources/images", root, gallery=True, query=True)
    (root / base / "manifest").mkdir()
    write_manifest(build_manifest(entries, root, workers=1), root / base / "manifest/manifest.parquet")
    builder.stage(f"manifest@{benchmark}", f"{base}/manifest", (f"{base}/sources",))
    write_ground_truth(root / base / "ground_truth", truth(protocol))
    facts = {
        "name": benchmark,
        "title": f"{benchmark} & co",
        "synthetic": benchmark == "town",
        "protocol": protocol,
    }
    write_json(root / base / "ground_truth/benchmark.json", {**facts, "notes": ["A note."]})
    builder.stage(f"ground_truth@{benchmark}", f"{base}/ground_truth", (f"{base}/manifest",))
    if benchmark == "town":
        audit = {
            "classes": 87,
            "images": 2529,
            "flagged": [{"class": HOSTILE, "images": 12}, {"class": "b", "images": 3}],
        }
        write_json(root / base / "contamination/classes.json", audit)


def truth(protocol: str) -> GroundTruth:
    """QUERIES queries with two positives each, in the grades and attributes that the protocol wants."""
    names = [f"q{number}" for number in range(QUERIES)]
    queries = [Query(name, f"i{number:02}.png", (2.0, 2.0, 30.0, 25.0)) for number, name in enumerate(names)]
    if protocol == "inquire":
        queries = [Query(name, None, None, HOSTILE) for name in names]
    grades = ("easy", "hard") if protocol == "revisitop" else ("positive", "positive")
    relevance = {
        name: {f"i{(number + 1) % IMAGES:02}.png": grades[0], f"i{(number + 5) % IMAGES:02}.png": grades[1]}
        for number, name in enumerate(names)
    }
    if protocol == "disc21":
        relevance["q0"] = {}  # a query without a match
    attributes = (
        {name: {"category": f"kind {number % 8}"} for number, name in enumerate(names)}
        if protocol == "inquire"
        else {}
    )
    images = {}
    if protocol == "forb":
        images = {
            f"i{number:02}.png": {"out-of-distribution": "yes" if number % 2 else "no"}
            for number in range(IMAGES)
        }
    return GroundTruth(tuple(queries), relevance, attributes, images)


def _run(
    builder: Builder, benchmark: str, system: str, stage: str | None, protocol: str, generator: random.Random
) -> None:
    root, key, base = builder.root, f"{benchmark}-{system}", f"artifacts/{benchmark}/{system}"
    common = f"artifacts/{benchmark}"
    _ranking(root / base / "ranking/ranking.parquet", protocol, generator, 0.2)
    write_json(root / base / "ranking/ranking.json", {"stage": "global"})
    builder.stage(
        f"ranking@{key}", f"{base}/ranking", (f"{common}/manifest", f"{common}/ground_truth"), {"top": 16}
    )
    write_json(root / base / "reranking/reranking.json", {"stage": stage})
    if stage:
        _ranking(root / base / "reranking/reranked.parquet", protocol, generator, 0.6)
    builder.stage(f"reranking@{key}", f"{base}/reranking", (f"{base}/ranking",))
    tail = {"estimates": {}}
    if benchmark == "town":
        estimates = {"default": 0.31, "evt": 0.3}
        curve = [
            {"n": n, "map": 0.5 / n**0.1, "series": s} for s in ("sample", "default") for n in (10, 100, 1000)
        ]
        interval = {"n": 1000, "map": 0.31, "series": "interval", "low": 0.2, "high": 0.4}
        tail = {
            "estimates": estimates,
            "parameters": {"metric": "map@10", "gallery": 1000},
            "pool": 12,
            "sample": 6,
            "queries": QUERIES,
            "ci95": {"fixed_queries": [0.2, 0.4]},
            "model_bias": 0.01,
            "warnings": ["a small sample"],
            "curve": [*curve, interval],
        }
    write_json(root / base / "tail/tail.json", tail)
    builder.stage(f"tail@{key}", f"{base}/tail", (f"{common}/ground_truth",))
    scores = f"artifacts/scores/{benchmark}/{system}"
    (root / scores).mkdir(parents=True)
    score_run(
        benchmark,
        system,
        ranking=root / base / "ranking",
        reranking=root / base / "reranking",
        tail=root / base / "tail",
        ground_truth=root / common / "ground_truth",
        manifest=root / common / "manifest",
        metric=protocol,
        output=root / scores,
    )
    inputs = (
        f"{base}/ranking",
        f"{base}/reranking",
        f"{base}/tail",
        f"{common}/ground_truth",
        f"{common}/manifest",
    )
    builder.stage(f"scores@{key}", scores, inputs, {"metric": protocol})


def _ranking(path: Path, protocol: str, generator: random.Random, skill: float) -> None:
    """A ranking of all images; a positive scores `skill` more than chance."""
    known = truth(protocol)
    records = []
    for query in known.queries:
        judged = known.relevance[query.query_id]
        scores = {
            row: generator.random() + (skill if f"i{row:02}.png" in judged else 0.0) for row in range(IMAGES)
        }
        for rank, row in enumerate(sorted(scores, key=lambda row: -scores[row])):
            records.append((query.query_id, rank, row, f"i{row:02}.png", scores[row]))
    columns = list(zip(*records, strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {
        "query_id": pa.array(columns[0]),
        "rank": pa.array(columns[1], pa.int32()),
        "image_row": pa.array(columns[2], pa.int32()),
        "image_id": pa.array(columns[3]),
        "score": pa.array(columns[4], pa.float32()),
    }
    pq.write_table(pa.table(table), path)


def _published(builder: Builder, generator: random.Random) -> list[tuple[str, str]]:
    """A head of three seeds on two galleries, one of which has published rows."""
    runs = []
    for benchmark, gallery in (("roxford5k", 4993), ("roxford5k-1m", 1_005_994)):
        rows = [
            Result(
                NumberName(benchmark, "dinov2-l", "decon", str(seed), stage, piece, "map"),
                base + 0.01 * generator.random(),
                70,
                gallery,
                low=base - 0.03,
                high=base + 0.04,
            )
            for stage, lift in (("global", 0.0), ("ames-k1600-l0.55-t0.3", 0.1))
            for piece, middle in (("easy", 0.8), ("medium", 0.75), ("hard", 0.68))
            for seed in range(3)
            for base in [middle + lift - (0.1 if gallery > 10_000 else 0.0)]
        ]
        _scored(builder, benchmark, "dinov2-l.decon", rows)
        write_json(
            builder.root / "artifacts/scores" / benchmark / "dinov2-l/benchmark.json", {"name": benchmark}
        )
        runs.append((benchmark, "dinov2-l"))
    return runs


def _many(builder: Builder, many: int, generator: random.Random) -> list[tuple[str, str]]:
    runs = []
    for number in range(0, many, 50):
        benchmark, system = f"bench-{number // 50 % 8}", f"system-{number // 50:03}"
        rows = [
            Result(
                NumberName(benchmark, system, "-", "-", stage, piece, metric),
                value,
                1000,
                100_000,
                low=value - 0.02,
                high=value + 0.02,
            )
            for stage in ("global", "geometry-k100")
            for piece in ("all", *(f"category-{letter}" for letter in "abcd"))
            for metric in ("map", "mp@1", "mp@5", "mp@10", "recall@10")
            for value in [0.1 + 0.8 * generator.random()]
        ]
        _scored(builder, benchmark, system, rows)
        runs.append((benchmark, system))
    return runs


def _scored(builder: Builder, benchmark: str, system: str, rows: list[Result]) -> None:
    scores = f"artifacts/scores/{benchmark}/{system}"
    write_results(builder.root / scores / "scores.parquet", rows)
    write_json(builder.root / scores / "benchmark.json", {"name": benchmark})
    builder.stage(f"scores@{benchmark}-{system}", scores, ("artifacts/town/manifest",))
