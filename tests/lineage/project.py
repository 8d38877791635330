"""Builds a small project as `cairn run` leaves it: artifacts, code files, `dvc.lock`, DVC listings."""

import hashlib
import json
import random
import tarfile
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cairn.files import dvc_digest, file_digest, write_json
from cairn.images.manifest import build_manifest, list_entries, write_manifest
from cairn.results import NumberName, Result, gather_results, write_results

SYSTEMS = ("rootsift-vlad", "tiny-histogram")
BENCHMARKS = ("toytown", "places")
SLICES = {"toytown": ("easy", "medium", "hard"), "places": ("all",)}
STAGES = {"rootsift-vlad": ("global", "geometry-k100"), "tiny-histogram": ("global",)}


class Builder:
    """Writes artifacts and records them as DVC would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stages: dict[str, dict] = {}

    def recorded(self, path: str) -> dict:
        target = self.root / path
        entry = {"path": path, "hash": "md5", "md5": dvc_digest(target)}
        if target.is_dir():
            files = sorted(file for file in target.rglob("*") if file.is_file())
            entry |= {"size": sum(file.stat().st_size for file in files), "nfiles": len(files)}
            listing = [
                {"md5": file_digest(file, "md5"), "relpath": file.relative_to(target).as_posix()}
                for file in files
            ]
            listing.sort(key=lambda item: item["relpath"])
            cached = self.root / ".dvc/cache/files/md5" / entry["md5"][:2] / entry["md5"][2:]
            cached.parent.mkdir(parents=True, exist_ok=True)
            cached.write_text(json.dumps(listing, sort_keys=True))
        else:
            entry["size"] = target.stat().st_size
        return entry

    def code(self, step: str, key: str, parameters: dict, modules: tuple[str, ...]) -> dict:
        record = {
            "digest": hashlib.sha256(f"{step} {modules}".encode()).hexdigest(),
            "modules": {module: hashlib.sha256(module.encode()).hexdigest() for module in modules},
            "data": {},
            "parameters": parameters,
            "packages": {"numpy": np.__version__},
        }
        path = f"artifacts/code/{step}/{key}.json"
        write_json(self.root / path, record)
        return {path: {"digest": record["digest"], "parameters": parameters}}

    def stage(
        self, name: str, output: str, inputs: tuple[str, ...] = (), parameters: dict | None = None
    ) -> None:
        step, _, key = name.partition("@")
        step = step.split("-")[0]
        key = key or "all"
        self.stages[name] = {
            "cmd": f"python -m pipelines step {step} {key}",
            "deps": [self.recorded(path) for path in inputs],
            "params": self.code(
                step, key, parameters or {}, (f"assets/{step}.py", f"cairn/{step}.py", "cairn/files.py")
            ),
            "outs": [self.recorded(output)],
        }
        if not inputs:
            del self.stages[name]["deps"]

    def write_lock(self) -> None:
        code = {
            "code": {
                "cmd": "python -m pipelines code",
                "deps": [self.recorded("assets")],
                "params": {"params.yaml": yaml.safe_load((self.root / "params.yaml").read_text())},
                "outs": [self.recorded("artifacts/code")],
            }
        }
        text = yaml.safe_dump({"schema": "2.0", "stages": {**code, **self.stages}}, sort_keys=False)
        (self.root / "dvc.lock").write_text(text)


def build_project(folder: Path) -> Path:
    """A project in `folder/cairn` with two benchmarks and three runs; the user's images in `folder/brought`."""
    root = folder / "cairn"
    (root / "assets").mkdir(parents=True)
    (root / "assets/step.py").write_text("# declares steps\n")
    (root / "params.yaml").write_text("runs: {}\n")
    (root / "dvc.yaml").write_text("stages: {}\n")
    builder = Builder(root)
    generator = random.Random(7)

    # Sources: one drawn, one brought.
    drawn = root / "artifacts/toytown/sources"
    images = {f"town/{number:02}.png": _image(number) for number in range(6)}
    _write_tar(drawn / "images.tar", images)
    write_json(
        drawn / "sources.json",
        {
            "sources": [
                {
                    "name": "toytown-generator",
                    "path": "images.tar",
                    "sha256": file_digest(drawn / "images.tar"),
                    "size": (drawn / "images.tar").stat().st_size,
                    "licence": "Apache-2.0",
                    "synthetic": True,
                    "note": "drawn by cairn.benchmarks.toytown",
                }
            ]
        },
    )
    builder.stage("sources-toytown@toytown", "artifacts/toytown/sources", (), {"seed": 7})
    brought = folder / "brought"
    (brought / "images").mkdir(parents=True)
    for number in range(4):
        (brought / "images" / f"place{number}.png").write_bytes(_image(100 + number))
    (brought / "truth.csv").write_text("query,image,relevance\nplace0.png,place1.png,positive\n")
    listed = root / "artifacts/places/sources"
    write_json(
        listed / "sources.json",
        {
            "sources": [
                {"name": "images", "path": "../brought/images", "licence": "the user's own"},
                {
                    "name": "truth.csv",
                    "path": "../brought/truth.csv",
                    "sha256": file_digest(brought / "truth.csv"),
                },
            ]
        },
    )
    builder.stage(
        "sources-folder@places", "artifacts/places/sources", ("../brought/images", "../brought/truth.csv")
    )

    archives = {"toytown": "artifacts/toytown/sources/images.tar", "places": "../brought/images"}
    for benchmark in BENCHMARKS:
        entries = list_entries(
            archives[benchmark], root, gallery=True, query=True, train=benchmark == "toytown"
        )
        manifest = f"artifacts/{benchmark}/manifest"
        (root / manifest).mkdir(parents=True)
        table = build_manifest(entries, root, workers=1)
        write_manifest(table, root / manifest / "manifest.parquet")
        builder.stage(f"manifest@{benchmark}", manifest, (f"artifacts/{benchmark}/sources",))
        truth = f"artifacts/{benchmark}/ground_truth"
        _parquet(root / truth / "queries.parquet", {"query_id": ["q0"], "image_id": ["x"]})
        _parquet(
            root / truth / "relevance.parquet", {"query_id": ["q0"], "image_id": ["y"], "grade": ["easy"]}
        )
        facts = {
            "name": benchmark,
            "title": benchmark.title(),
            "synthetic": benchmark == "toytown",
            "notes": [],
        }
        write_json(root / truth / "benchmark.json", facts)
        builder.stage(f"ground_truth@{benchmark}", truth, (f"artifacts/{benchmark}/sources", manifest))
        training = f"artifacts/{benchmark}/training"
        note = "own" if benchmark == "toytown" else "places has no training images: those of toytown are used"
        write_json(root / training / "training.json", {"from": "toytown", "note": note})
        builder.stage(f"training@{benchmark}", training, ("artifacts/toytown/manifest",))

    for benchmark, system in runs():
        _run(builder, benchmark, system, generator)

    (root / "artifacts/results").mkdir()
    gather_results(root, [(*run, "-") for run in runs()], root / "artifacts/results")
    listed = {
        f"{benchmark}-{system}": {"benchmark": benchmark, "system": system} for benchmark, system in runs()
    }
    builder.stage("results", "artifacts/results", ("artifacts/scores",), {"runs": listed})
    builder.write_lock()
    return root


def runs() -> list[tuple[str, str]]:
    """All runs but places/tiny-histogram."""
    return [(b, s) for b in BENCHMARKS for s in SYSTEMS if (b, s) != ("places", "tiny-histogram")]


def numbers_of(*wanted: tuple[str, ...]) -> set[str]:
    """The full names of all numbers of these runs; with a third field, of that stage alone."""
    return {
        f"{benchmark}/{system}/-/-/{stage}/{piece}/map"
        for benchmark, system, *only in wanted
        for stage in STAGES[system]
        if not only or stage in only
        for piece in SLICES[benchmark]
    }


def _run(builder: Builder, benchmark: str, system: str, generator: random.Random) -> None:
    root, key, base = builder.root, f"{benchmark}-{system}", f"artifacts/{benchmark}/{system}"
    common = f"artifacts/{benchmark}"
    write_json(root / base / "vocabulary/vocabulary.json", {"words": 64, "note": f"learned for {key}"})
    builder.stage(f"vocabulary@{key}", f"{base}/vocabulary", (f"{common}/training",), {"words": 64})
    for shard in ("0000", "0001"):
        columns = {
            "image_id": [f"{shard}-{i}" for i in range(3)],
            "descriptor": [[float(i), 1.0] for i in range(3)],
        }
        _parquet(root / base / f"descriptors/{shard}.parquet", columns)
    _parquet(root / base / "descriptors/queries.parquet", {"query_id": ["q0"], "descriptor": [[0.0, 1.0]]})
    builder.stage(f"descriptors@{key}", f"{base}/descriptors", (f"{common}/manifest", f"{base}/vocabulary"))
    ranking = {
        "query_id": ["q0", "q0"],
        "rank": pa.array([0, 1], pa.int32()),
        "image_row": pa.array([1, 0], pa.int32()),
        "image_id": ["b", "a"],
        "score": pa.array([0.9, generator.random() / 2], pa.float32()),
    }
    _parquet(root / base / "ranking/ranking.parquet", ranking)
    builder.stage(f"ranking@{key}", f"{base}/ranking", (f"{base}/descriptors", f"{common}/ground_truth"))
    inputs = [f"{base}/ranking"]
    if len(STAGES[system]) > 1:
        (root / base / "local").mkdir()
        (root / base / "local/local.hdf5").write_bytes(generator.randbytes(2000))
        builder.stage(f"local@{key}", f"{base}/local", (f"{base}/ranking", f"{common}/manifest"))
        _parquet(root / base / "reranking/reranked.parquet", ranking)
        write_json(root / base / "reranking/reranking.json", {"stage": STAGES[system][1]})
        builder.stage(
            f"reranking@{key}", f"{base}/reranking", (f"{base}/ranking", f"{base}/local"), {"k": 100}
        )
        inputs.append(f"{base}/reranking")
    scores = f"artifacts/scores/{benchmark}/{system}"
    rows = [
        Result(
            NumberName.parse(name),
            generator.random(),
            50,
            1480,
            low=0.1,
            high=0.9,
            computed_from=(
                f"{common}/ground_truth",
                f"{base}/ranking" if "/global/" in name else f"{base}/reranking",
            ),
        )
        for name in sorted(numbers_of((benchmark, system)))
    ]
    write_results(root / scores / "scores.parquet", rows)
    _parquet(root / scores / "per_query.parquet", {"query_id": ["q0"], "stage": ["global"], "value": [0.5]})
    facts = {"name": benchmark, "synthetic": benchmark == "toytown"}
    write_json(root / scores / "benchmark.json", facts)
    builder.stage(f"scores@{key}", scores, (*inputs, f"{common}/ground_truth"))


def _image(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    return cv2.imencode(".png", pixels)[1].tobytes()


def _write_tar(path: Path, files: dict[str, bytes]) -> None:
    import io

    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def _parquet(path: Path, columns: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
