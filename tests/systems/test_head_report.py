"""The report finds a leak where there is one, with its spread over seeds, and says which uses saw flagged images."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query, write_ground_truth
from cairn.contamination.benchmark import write_contamination
from cairn.contamination.landmarks import LandmarkList
from cairn.errors import ArtifactError
from cairn.files import write_json
from cairn.report.contamination import contamination_tables, training_tables
from cairn.results.scoring import score_heads, score_run
from cairn.store.descriptors import MISSING, open_shard, write_shard
from cairn.systems.head_report import report_heads, uses_of
from cairn.systems.heads import describe_with_heads, rank_with_heads, train_heads
from cairn.systems.ranking import search
from tests.systems.test_heads import World, manifest_of, write_manifest_of

pytest.importorskip("torch", reason="torch is not installed")

DIM, LANDMARKS, SHOWN, OTHERS, VIEWS = 24, 10, 5, 30, 10
HEADS = {
    "seeds": [0, 1, 2],
    "layers": {"hidden": 96, "output": DIM, "residual": True},
    "training": {
        "epochs": 20,
        "batch": 32,
        "classes_per_step": 35,
        "centres": 1,
        "rate": 3e-3,
        "scale": 16.0,
    },
}


def draw(generator: np.random.Generator, point: np.ndarray, own: np.ndarray, n: int) -> np.ndarray:
    """Views of a building: they differ most along a direction of its own, which only its pictures can tell."""
    return point + 6 * generator.normal(size=(n, 1)) * own + 0.7 * generator.normal(size=(n, DIM))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world whose training set holds five of the ten queried landmarks, through all the steps of heads."""
    root = tmp_path_factory.mktemp("project")
    generator = np.random.default_rng(1)
    points, own = generator.normal(size=(2, LANDMARKS + OTHERS, DIM))
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    base, system = root / "artifacts" / "drawn", root / "artifacts" / "drawn" / "points"
    folders = ("manifest", "training", "contamination", "ground_truth")
    for folder in (*(base / name for name in folders), system / "vocabulary"):
        folder.mkdir(parents=True)
    # The first five landmarks are training classes too; 0 to 4 are named after them.
    classes = [*range(SHOWN), *range(LANDMARKS, LANDMARKS + OTHERS)]
    train = [f"t{one:02d}-{view}" for one in classes for view in range(VIEWS)]
    seen = np.concatenate([draw(generator, points[one], own[one], VIEWS) for one in classes])
    training = manifest_of({"train": train}, {image: str(int(image[1:3])) for image in train})
    gallery = [f"g{one:02d}-{view}" for one in range(LANDMARKS + OTHERS) for view in range(VIEWS)]
    there = np.concatenate(
        [draw(generator, points[one], own[one], VIEWS) for one in range(LANDMARKS + OTHERS)]
    )
    queries = [f"q{one:02d}-{number}" for one in range(LANDMARKS) for number in range(3)]
    asked = np.concatenate([draw(generator, points[one], own[one], 3) for one in range(LANDMARKS)])
    World.shard(system / "training-descriptors" / "0000.parquet", train, seen)
    World.shard(system / "descriptors" / "0000.parquet", gallery, there)
    World.shard(system / "descriptors" / "queries.parquet", queries, asked, "query_id")
    manifest = manifest_of({"gallery": gallery, "query": queries}, {})
    write_manifest_of(manifest, base / "manifest" / "manifest.parquet")
    write_manifest_of(training, base / "training" / "training.parquet")
    relevance = {query: {image: "easy" for image in gallery if image[1:3] == query[1:3]} for query in queries}
    truth = GroundTruth(tuple(Query(query, query) for query in queries), relevance)
    write_ground_truth(base / "ground_truth", truth)
    write_json(base / "ground_truth" / "benchmark.json", {})

    names: list[dict[str, Any]] = [
        {"id": f"l{n}", "name": f"Tower {n} of Smalltown", "place": "Smalltown"} for n in range(LANDMARKS)
    ]
    for number, name in enumerate(names):
        name["queries"] = [query for query in queries if int(query[1:3]) == number]
    listed = LandmarkList.model_validate(
        {"benchmark": "drawn", "places": [{"name": "Smalltown", "blanket": False}], "landmarks": names}
    )
    lines = [f"{one},{f'Tower {one} of Smalltown' if one < SHOWN else f'Lake {one}'}" for one in classes]
    (root / "categories.csv").write_text("\n".join(["landmark_id,category", *lines]) + "\n", "utf-8")
    write_contamination(
        training, root / "categories.csv", [listed], truth, base / "contamination",
        stance="inclusive", minimum=3, source="drawn",
    )  # fmt: skip
    facts = {
        "encoder": "drawn",
        "learns": True,
        "training_set": "decon",
        "arrays": {"words": [2], "mean": [2]},
    }
    write_json(system / "vocabulary" / "vocabulary.json", facts)
    write_json(system / "descriptors" / "descriptors.json", {"facts": {"pretraining": "ImageNet-1k"}})
    write_json(
        system / "verification" / "image_audit.json", {"audited": False, "note": "no pictures were drawn"}
    )

    write_json(system / "readout" / "readout.json", {"learned_from": "training"})
    write_json(system / "reranker" / "training.json", {"method": "ames"})
    options = {"ground_truth": base / "ground_truth", "manifest": base / "manifest", "metric": "map"}
    plain, scores = system / "ranking", root / "artifacts" / "scores" / "drawn"
    (system / "reranking").mkdir()
    write_json(system / "reranking" / "reranking.json", {"stage": None})
    for folder in (plain, scores / "points"):
        folder.mkdir(parents=True)
    normalised = {"index": {"kind": "none"}, "normalisation": {}}
    learned = system / "training-descriptors"
    search(system / "descriptors", manifest, truth, normalised, plain, training=learned)
    score_run(
        "drawn", "points", ranking=plain, reranking=system / "reranking", output=scores / "points", **options
    )
    for protocol in ("standard", "decon"):
        heads, described, ranked = (system / name / protocol for name in ("heads", "described", "ranked"))
        for folder in (heads, described, ranked, scores / f"points.{protocol}"):
            folder.mkdir(parents=True)
        train_heads(
            training, base / "contamination", system / "training-descriptors", HEADS, protocol, heads,
            selection={}, cache=None, code="c",
        )  # fmt: skip
        describe_with_heads(system / "descriptors", heads, described)
        rank_with_heads(described, manifest, truth, {}, ranked)
        score_heads(
            "drawn", "points", protocol, ranking=ranked, output=scores / f"points.{protocol}", **options
        )
    # Heads that params.yaml no longer lists may still lie there.
    shutil.copytree(scores / "points.decon", scores / "points.matched")
    run = {
        "benchmark": "drawn",
        "system": "points",
        "heads": ["standard", "decon"],
        "training_set": "decon",
    }
    output = root / "artifacts" / "heads"
    output.mkdir()
    report_heads(root, [run], output)
    return output


@pytest.fixture(autouse=True, scope="module")
def one_process():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_WORKERS", "1")
        yield


def test_the_leak_is_found_on_the_shown_queries_beyond_the_seeds(report: Path):
    [found] = json.loads((report / "seeds.json").read_text("utf-8"))["comparisons"]
    assert found["protocols"] == ["decon", "standard"]
    cells = {one["cell"]: one for one in found["cells"]}
    assert set(cells) == {"drawn/all", "drawn/all/shown", "drawn/all/rest"}
    shown, rest = cells["drawn/all/shown"], cells["drawn/all/rest"]
    assert shown["decon"]["n"] == shown["standard"]["n"] == 3 and shown["pooled_sd"] > 0
    assert shown["interval95"][0] > 0, "heads that saw the landmarks score higher on them, beyond the seeds"
    assert shown["difference"] > 3 * abs(rest["difference"])
    assert cells["drawn/all"]["difference"] == pytest.approx((shown["difference"] + rest["difference"]) / 2)
    assert "excludes 0 for" in found["verdict"] and "drawn/all/shown" in found["verdict"]
    assert set(found["without_head"]) == set(cells)


def test_every_use_of_training_images_is_audited(report: Path):
    uses = json.loads((report / "uses.json").read_text("utf-8"))["uses"]
    assert {one["use"]: one["verdict"] for one in uses} == {
        "pretraining": "unknown",
        "vocabulary": "saw no flagged image",
        "centring and whitening": "saw no flagged image",
        "read-out": f"saw {SHOWN * VIEWS} flagged images",
        "score normalisation": f"saw {SHOWN * VIEWS} flagged images",
        "re-ranker ames": "saw no flagged image",
        "head decon": "saw no flagged image",
        "head standard": f"saw {SHOWN * VIEWS} flagged images",
    }


def test_images_that_could_not_be_decoded_are_no_use(report: Path, tmp_path: Path):
    root = tmp_path / "copy"
    shutil.copytree(report.parents[1], root)
    path = root / "artifacts" / "drawn" / "points" / "training-descriptors" / "0000.parquet"
    store = open_shard(path)
    # One image of the first landmark, and of the second all but two: fewer than the set's three.
    gone = ["t00-0", *(name for name in store.ids if name.startswith("t01-"))][: VIEWS - 1]
    reasons = json.dumps(dict.fromkeys(gone, "truncated"))
    write_shard(path, store.ids, store.array(), store.metadata | {MISSING: reasons})
    uses = {one.use: one for one in uses_of(root, "drawn", "points", ["standard"], "decon")}
    described, trained = SHOWN * VIEWS - len(gone), (SHOWN - 1) * VIEWS - 1
    assert uses["read-out"].verdict == f"saw {described} flagged images"
    assert uses["score normalisation"].verdict == f"saw {described} flagged images"
    assert uses["head standard"].verdict == f"saw {trained} flagged images"


def test_the_text_says_what_the_numbers_say(report: Path):
    text = (report / "report.txt").read_text("utf-8")
    assert text.splitlines()[0].startswith(
        "drawn, classes by name (inclusive): 5 classes with 50 images are flagged"
    )
    assert "queries whose landmark training shows, and the rest" in text
    for words in (
        "standard less decon",
        "drawn/all/shown",
        "Without a head:",
        "saw 50 flagged images",
        "ImageNet-1k",
    ):
        assert words in text


def test_the_page_shows_what_the_steps_wrote(report: Path):
    root = report.parents[1]
    classes, steps, flagged = contamination_tables(root, "drawn")[:3]
    assert ("flagged, inclusive", "5 classes with 50 images") in classes.rows
    assert "5 classes with 50 images are flagged" in classes.notes[0]
    assert ("decon", "excluded classes", "5", "50", "30", "300") in steps.rows
    assert flagged.total == SHOWN and flagged.rows[0][1:4] == (
        "Tower 0 of Smalltown",
        "unique:l0",
        "Tower 0 of Smalltown",
    )
    assert "no pictures were drawn" in contamination_tables(root, "drawn", ["points"])[-1].notes[0]

    compared, without, uses = training_tables(root)
    [found] = json.loads((report / "seeds.json").read_text("utf-8"))["comparisons"]
    assert compared.notes[0] == found["verdict"] and "standard less decon" in compared.title
    shown = {row[0]: row for row in compared.rows}["drawn/all/shown"]
    cell = next(one for one in found["cells"] if one["cell"] == "drawn/all/shown")
    assert shown[2] == f"{cell['decon']['mean']:.2f} ± {cell['decon']['sd']:.2f} (n = 3)"
    assert shown[4].startswith(f"{cell['difference']:+.2f} [")
    assert [row[:2] for row in without.rows] == [("drawn/points", "drawn/all")]
    assert {row[1]: row[4] for row in uses.rows}["head standard"] == "saw 50 flagged images"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"uses": [{"system": 1}]}', '{"uses": 3}'])
def test_a_damaged_report_is_one_line_that_names_it(tmp_path: Path, text: str):
    (tmp_path / "artifacts/heads").mkdir(parents=True)
    (tmp_path / "artifacts/heads/uses.json").write_text(text)
    with pytest.raises(ArtifactError, match=r"uses\.json: not as its step writes it"):
        training_tables(tmp_path)
