"""A project with a benchmark of so many images that nobody would draw them: its first artifacts are made up."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from cairn.benchmarks.structure import GroundTruth, Query, write_ground_truth
from cairn.files import write_json
from cairn.images.manifest import manifest_schema, write_manifest
from cairn.store.descriptors import QUERIES_FILE, write_shard
from cairn.store.shards import assign_shards, shard_name
from tests.pipelines.project import TINY, Project, new_project

SYSTEMS = ("colours", "others")
TOP = 100_000


def wide_project(target: Path, images: int, queries: int = 3, dim: int = 8) -> Project:
    """A project whose two systems stand before their ranking, in a gallery of `images`; top 100,000 of each query.

    Descriptors are small whole numbers, so that there are many ties, among them between shards.
    """
    parameters = {
        "benchmarks": TINY["benchmarks"],
        "systems": {
            name: {"encoder": "colour-histogram", "search": {"top": TOP, "index": {"kind": "none"}}}
            for name in SYSTEMS
        },
        "runs": {f"toytown-{name}": {"benchmark": "toytown", "system": name} for name in SYSTEMS},
    }
    project = new_project(target, parameters)
    project.cairn("code")
    common = project.root / "artifacts" / "toytown"
    names = [f"{number:06d}.jpg" for number in range(images)]
    _manifest(common / "manifest", names)
    truth = GroundTruth(
        tuple(Query(f"q{number}", names[number]) for number in range(queries)),
        {f"q{number}": dict.fromkeys(names[number + 1 :: images // 5], "hard") for number in range(queries)},
    )
    write_ground_truth(common / "ground_truth", truth)
    for seed, system in enumerate(SYSTEMS):
        generator = np.random.default_rng(seed)
        own = common / system
        rows = generator.integers(-3, 4, (images, dim)).astype(np.float16)
        for number, members in enumerate(assign_shards(names)):
            path = own / "descriptors" / shard_name(number)
            write_shard(path, [names[row] for row in members], rows[members], {})
        asked = generator.integers(-3, 4, (queries, dim)).astype(np.float16)
        path = own / "descriptors" / QUERIES_FILE
        write_shard(path, [query.query_id for query in truth.queries], asked, {}, id_column="query_id")
        write_json(own / "readout" / "readout.json", {"readout": None, "mark": ""})
        write_json(own / "training-descriptors" / "training_descriptors.json", {"images": 0})
    return project


def _manifest(folder: Path, names: list[str]) -> None:
    count = len(names)
    columns = {
        "image_id": names,
        "archive": ["images"] * count,
        "member": names,
        "offset": [-1] * count,
        "size": [1] * count,
        "width": [1] * count,
        "height": [1] * count,
        "sha256": [f"{number:064x}" for number in range(count)],
        "gallery": [True] * count,
        "query": [False] * count,
        "train": [False] * count,
        "label": [None] * count,
    }
    write_manifest(pa.table(columns, schema=manifest_schema()), folder / "manifest.parquet")
