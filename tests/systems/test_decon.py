"""A system whose `training_set` is `decon` never sees a flagged image: whatever it holds, its files are the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assets.readout import readout
from assets.step import Job
from assets.training_descriptors import training_descriptors
from assets.vocabulary import vocabulary
from cairn.benchmarks.structure import write_ground_truth
from cairn.contamination.benchmark import write_contamination
from cairn.contamination.landmarks import LandmarkList
from cairn.images.manifest import Manifest
from cairn.readout import ReadoutParameters
from cairn.search import SearchParameters
from cairn.store.descriptors import open_queries, open_shards
from cairn.systems.precomputed import write_descriptors
from cairn.systems.ranking import search
from cairn.systems.writing import Writing
from tests.systems.conftest import PARAMETERS, Town, picture
from tests.systems.test_heads import write_manifest_of
from tests.systems.test_precomputed import LEARNED, Q, T, X

FLAGGED = LEARNED[4:8]
CLEAN = [one for one in LEARNED if one not in FLAGGED]
LANDMARKS = {
    "benchmark": "town",
    "places": [{"name": "Smalltown", "blanket": False}],
    "landmarks": [{"id": "tower", "name": "Tower of Smalltown", "place": "Smalltown", "queries": ["q0"]}],
}


@pytest.fixture
def base(town: Town, tmp_path: Path) -> Path:
    """The artifacts of the benchmark: of the three training classes the one in the middle is named after a landmark."""
    folder = tmp_path / "artifacts" / "town"
    for name in ("training", "contamination"):
        (folder / name).mkdir(parents=True)
    write_manifest_of(labelled(town.manifest), folder / "training" / "training.parquet")
    write_ground_truth(folder / "ground_truth", town.truth)
    (tmp_path / "names.csv").write_text("landmark_id,category\n0,A lake\n1,Tower of Smalltown\n2,A hill\n")
    write_contamination(
        labelled(town.manifest), tmp_path / "names.csv", [LandmarkList.model_validate(LANDMARKS)], town.truth,
        folder / "contamination", stance="inclusive", minimum=3, source="town",
    )  # fmt: skip
    return folder


def labelled(manifest: Manifest) -> Manifest:
    labels = [
        str(int(image[1:]) // 4) if train else None
        for image, train in zip(manifest.image_id, manifest.train, strict=True)
    ]
    return replace(manifest, label=labels)


def job(town: Town, base: Path, step: str, **parameters) -> Job:
    output = base / "system" / step
    output.mkdir(parents=True)
    inputs = {name: base / name for name in ("training", "contamination")}
    inputs |= {name: base / "system" / name for name in ("vocabulary", "training_descriptors", "descriptors")}
    return Job(town.root, "town", "system", inputs, output, parameters, "code", "features")


def described(town: Town, base: Path, brought: np.ndarray, training_set: str) -> Path:
    """The descriptors of gallery, queries and training images, as the steps of a `precomputed` system write them."""
    features = base / "features"
    features.mkdir()
    for name, rows in (("x", X), ("q", Q), ("t", brought)):
        np.save(features / f"{name}.npy", rows)
    sides = {side: {"file": f"{side[0]}.npy", "ids": "manifest"} for side in ("queries", "training")}
    settings = {"features": str(features), "images": {"file": "x.npy", "ids": "manifest"}, **sides}
    (base / "system" / "descriptors").mkdir(parents=True)
    work = Writing(town.root, "town", Path(), settings, base / "system" / "descriptors")
    write_descriptors(town.manifest, town.truth, work, work.output)
    asked = {"encoder": "precomputed", "settings": settings, "training_descriptors": True}
    training_descriptors(job(town, base, "training_descriptors", **asked, described_set=training_set))
    return base / "system" / "training_descriptors"


def spoiled() -> np.ndarray:
    """Other features of the flagged images, all alike."""
    rows = T.copy()
    rows[4:8] = np.eye(1, T.shape[1], dtype=T.dtype)
    return rows


@pytest.mark.parametrize("training_set", ["decon", "all"])
def test_read_out_and_normalisation_of_brought_features(
    town: Town, base: Path, tmp_path: Path, training_set: str
):
    found = []
    for number, brought in enumerate((T, spoiled())):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("training", "contamination", "ground_truth"):
            (folder / name).symlink_to(base / name)
        training = described(town, folder, brought, training_set)
        assert sorted(open_shards(training).ids) == (CLEAN if training_set == "decon" else LEARNED)
        whiten = ReadoutParameters.model_validate({"whiten": {"dimension": 3}})
        readout(job(town, folder, "readout", readout=whiten.model_dump()))
        given = SearchParameters.model_validate({"index": {"kind": "none"}, "normalisation": {}}).model_dump()
        (folder / "ranking").mkdir()
        search(
            folder / "system/descriptors", town.manifest, town.truth, given, folder / "ranking",
            readout=folder / "system/readout", training=training,
        )  # fmt: skip
        files = [folder / "system/readout/readout.npz", folder / "ranking/ranking.parquet"]
        queries = open_queries(folder / "system/readout").array()
        found.append([queries.tobytes(), *(file.read_bytes() for file in files)])
    same = [one == two for one, two in zip(*found, strict=True)]
    assert same == [training_set == "decon"] * 3


def test_vocabulary_of_pictures(town: Town, base: Path, tmp_path: Path):
    """Words and whitening: other pictures in the flagged class change nothing."""
    import cv2

    made = []
    for number in range(2):
        root = tmp_path / f"root-{number}"
        (root / "images").mkdir(parents=True)
        for image in LEARNED:
            seed = 1000 + int(image[1:]) + (500 if number and image in FLAGGED else 0)
            cv2.imwrite(str(root / "images" / f"{image}.jpg"), picture(seed))
        output = tmp_path / f"vocabulary-{number}"
        output.mkdir()
        inputs = {name: base / name for name in ("training", "contamination")}
        learning = {**PARAMETERS, "vocabulary": {"words": 4, "dimension": 16, "sample": 2000}}
        given = {"encoder": "rootsift-vlad", "learning": learning, "training_set": "decon"}
        (root / ".cairn").mkdir()
        vocabulary(Job(root, "town", "system", inputs, output, given, "code", "features"))
        made.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert made[0] == made[1] and len(made[0]) >= 2
