"""AMES with borrowed descriptors and a checkpoint through the real command line: what it leaves, what it refuses."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
import torch

from cairn.rerank.ames import Ames, AmesShape
from cairn.rerank.checkpoints import save_state
from pipelines.digests import user_file_digest
from tests.pipelines.project import Project, new_project

IMAGES = 6
FILES = {"queries": "query.hdf5", "gallery": ["gallery.hdf5"]}
SYSTEMS = {
    "good": {"checkpoint": "good.pt", "files": FILES},
    "text": {"checkpoint": "text.pt", "files": FILES},
    "wide": {"checkpoint": "wide.pt", "files": FILES},
    "lacking": {"checkpoint": "good.pt", "files": {**FILES, "gallery_names": "names.txt"}},
    "masked": {"checkpoint": "good.pt", "files": {**FILES, "gallery": ["masked.hdf5"]}},
    "evil": {"checkpoint": "evil.pt", "files": FILES},
    "cut": {"checkpoint": "good.pt", "files": {**FILES, "gallery": ["cut.hdf5"]}},
}
FIRST_STAGE = """
from pathlib import Path
from pipelines.code_stage import write_code
from pipelines.runner import run_step

write_code(Path.cwd())
for step in ("sources", "manifest", "ground_truth", "training", "contamination"):
    run_step(Path.cwd(), step, "mine")
for step in (
    *("vocabulary", "descriptors", "training_descriptors", "reranker_training", "readout", "ranking"),
    *("local", "reranking", "tail", "scores"),
):
    run_step(Path.cwd(), step, "mine-good")
"""


def borrow(path: Path, images: int, masked: int | None = None) -> None:
    rows = np.random.default_rng(images).normal(size=(images, 3, 5 + 4)).astype(np.float32)
    rows[:, :, 3] = 0
    if masked is not None:
        rows[masked, :, 3] = 1
    with h5py.File(path, "w") as file:
        file["features"] = rows


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-ran",)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("borrowed") / "project"
    (root / "photos").mkdir(parents=True)
    for number in range(IMAGES):
        noise = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        cv2.imwrite(str(root / "photos" / f"{number}.png"), cv2.resize(noise, (64, 64)))
    (root / "truth.csv").write_text(
        "query,image,relevance\n0.png,1.png,positive\n0.png,0.png,junk\n", "utf-8"
    )
    borrow(root / "query.hdf5", 1)
    borrow(root / "gallery.hdf5", IMAGES)
    borrow(root / "masked.hdf5", IMAGES, masked=3)
    names = [f"{number}.png" for number in range(IMAGES)]
    (root / "names.txt").write_text("\n".join([*names[:4], "elsewhere.png", names[5]]) + "\n")
    for name, dim in (("good", 4), ("wide", 6)):
        shape = AmesShape(local_dim=dim, model_dim=8, heads=2, layers=1, feedforward=8)
        save_state(Ames(shape), root / f"{name}.pt")
    (root / "text.pt").write_text("no weights")
    torch.save({"state": torch.load(root / "good.pt")["state"], "more": Evil()}, root / "evil.pt")
    (root / "cut.hdf5").write_bytes((root / "gallery.hdf5").read_bytes()[:-100])
    ames = {"query_length": 3, "gallery_length": 2}
    parameters = {
        "benchmarks": {
            "mine": {"adapter": "folder", "images": "photos", "truth": "truth.csv", "training": "mine"}
        },
        "systems": {
            name: {
                "encoder": "colour-histogram",
                "search": {"index": {"kind": "none"}},
                "rerank": {"method": "ames", "shortlist": IMAGES, "ames": {**ames, **own}},
            }
            for name, own in SYSTEMS.items()
        },
        "runs": {f"mine-{name}": {"benchmark": "mine", "system": name} for name in SYSTEMS},
    }
    made = new_project(root, parameters)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_STAGE],
        cwd=root,
        env=made.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The first stage of all systems is the same; each of the others stops at what is wrong with it.
    artifacts = root / "artifacts" / "mine"
    for name in SYSTEMS:
        if name != "good":
            shutil.copytree(artifacts / "good", artifacts / name, ignore=shutil.ignore_patterns("reranking"))
    for name in ("lacking", "masked", "cut"):
        shutil.rmtree(artifacts / name / "local")
    return made


def test_borrowed_descriptors_are_sources_and_only_what_is_needed_is_copied(project: Project):
    local = project.root / "artifacts/mine/good/local"
    sources = json.loads((local / "sources.json").read_text())["sources"]
    for entry in sources:
        content = (project.root / entry["path"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest() and entry["size"] == len(content)
    assert [entry["name"] for entry in sources] == ["query.hdf5", "gallery.hdf5"]
    with h5py.File(local / "images.hdf5") as ours, h5py.File(project.root / "gallery.hdf5") as theirs:
        np.testing.assert_array_equal(ours["features"][:, :, 5:], theirs["features"][:, :2, 5:])  # type: ignore[index]
    record = json.loads((project.root / "artifacts/code/local/mine-good.json").read_text())
    assert {"query.hdf5", "gallery.hdf5"} <= set(record["modules"])
    record = json.loads((project.root / "artifacts/code/reranking/mine-good.json").read_text())
    assert "good.pt" in record["modules"] and "gallery.hdf5" not in record["modules"]
    facts = json.loads((project.root / "artifacts/scores/mine/good/reranking.json").read_text())
    assert facts["stage"] == f"ames-k{IMAGES}-l0.55-t0.3-unaware"


@pytest.mark.parametrize(
    ("system", "step", "told"),
    [
        ("text", "reranking", "text.pt: not a checkpoint of weights alone"),
        (
            "wide",
            "reranking",
            "queries.hdf5: local descriptors of 4 dimensions; this AMES checkpoint takes 6",
        ),
        ("lacking", "local", "gallery.hdf5: no local descriptors of the shortlisted image 4.png"),
        ("masked", "local", "masked.hdf5: image 3.png: every local descriptor is masked"),
        ("evil", "reranking", "evil.pt: not a checkpoint of weights alone: it holds a posix.mkdir"),
        ("cut", "local", "cut.hdf5: not an HDF5 file with a dataset `features`"),
    ],
)
def test_what_is_refused_is_named_on_one_line(project: Project, system: str, step: str, told: str):
    result = project.run("pipelines", "step", step, f"mine-{system}", check=False)
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert told in line and "Traceback" not in result.stderr
    assert not (project.root / f"artifacts/mine/{system}/{step}").exists()
    assert not (project.root / "evil-ran").exists()


def test_files_of_the_user_are_never_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Borrowed local descriptors are larger than the memory."""
    path = tmp_path / "gallery.hdf5"
    path.write_bytes(b"features" * 1000)
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(Path, "read_bytes", None)
    assert user_file_digest(path) == expected
    path.write_bytes(b"others")
    assert user_file_digest(path) != expected
