"""A benchmark of a few drawn pictures, small enough for every test of the steps."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.images.manifest import Manifest, build_manifest, list_entries, manifest_of
from tests.systems.market import Market, build

PARAMETERS: dict[str, Any] = {
    "local": {"limit": 120},
    "vocabulary": {"words": 8, "dimension": 16, "sample": 2000},
}
GALLERY, TRAINING, QUERIES = 40, 12, 4


@dataclass(frozen=True)
class Town:
    """`root` holds the folder `images`; `truth` has four queries, q0 to q3, with a box each."""

    root: Path
    manifest: Manifest
    truth: GroundTruth


def picture(seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (15, 20, 3), np.uint8)
    return cv2.resize(noise, (160, 120), interpolation=cv2.INTER_CUBIC)


def draw(folder: Path) -> None:
    """Gallery g00 to g39: g38 is flat (no feature), g39 a copy of g00; queries show g00 to g03 darker."""
    folder.mkdir()
    for number in range(GALLERY - 2):
        cv2.imwrite(str(folder / f"g{number:02d}.jpg"), picture(number))
    cv2.imwrite(str(folder / "g38.jpg"), np.full((120, 160, 3), 90, np.uint8))
    (folder / "g39.jpg").write_bytes((folder / "g00.jpg").read_bytes())
    for number in range(QUERIES):
        cv2.imwrite(str(folder / f"q{number}.jpg"), (picture(number) * 0.7).astype(np.uint8))
    for number in range(TRAINING):
        cv2.imwrite(str(folder / f"t{number:02d}.jpg"), picture(1000 + number))


def read(root: Path) -> Manifest:
    flags = {"g": "gallery", "q": "query", "t": "train"}
    entries = [
        replace(entry, image_id=Path(entry.member).stem, **{flags[entry.member[0]]: True})
        for entry in list_entries("images", root)
    ]
    return manifest_of(build_manifest(entries, root))


def truth_of() -> GroundTruth:
    queries = tuple(Query(f"q{n}", f"q{n}", (8.0, 6.0, 150.0, 110.0)) for n in range(QUERIES))
    relevance = {f"q{n}": {f"g{n:02d}": "easy", "g38": "junk"} for n in range(QUERIES)}
    relevance["q0"]["g39"] = "hard"
    return GroundTruth(queries, relevance)


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    root = tmp_path_factory.mktemp("town")
    draw(root / "images")
    return Town(root, read(root), truth_of())


@pytest.fixture(scope="session")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    """The benchmark of pasted pictures, up to its ranking."""
    return build(tmp_path_factory.mktemp("market"))
