"""A benchmark of pasted pictures: each class is one patch among clutter, so that global similarity says little."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.cache import Cache
from cairn.images.manifest import Manifest, build_manifest, list_entries, manifest_of
from cairn.systems.descriptors import extract_descriptors, extract_training_descriptors
from cairn.systems.ranking import search
from cairn.systems.vocabulary import learn_vocabulary

ENCODER = "rootsift-vlad"
SETTINGS: dict[str, Any] = {
    "local": {"limit": 150},
    "vocabulary": {"words": 16, "dimension": 32, "sample": 8000},
}
TRAINED, TESTED, DISTRACTORS = 24, 10, 40


@dataclass(frozen=True)
class Market:
    """`root` holds `images`; `out` the artifacts up to the ranking, one folder per step."""

    root: Path
    manifest: Manifest
    truth: GroundTruth
    out: Path

    @property
    def queries(self) -> GroundTruth:
        """The queries without what is relevant to them."""
        return GroundTruth(self.truth.queries, {})


def patch(seed: int, side: int = 84) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (24, 24, 3), np.uint8)
    return cv2.resize(noise, (side, side), interpolation=cv2.INTER_CUBIC)


def stall(own: int | None, seed: int) -> np.ndarray:
    """A picture of 240 × 180 pixels with the patch `own` (or none) and three of a common pool."""
    generator = np.random.default_rng([7, seed])
    image = np.full((180, 240, 3), generator.integers(60, 200, 3), np.uint8)
    shown = [1000 + int(number) for number in generator.integers(0, 12, 3)]
    for number in [*shown, *([] if own is None else [own])]:
        scale, angle = generator.uniform(0.75, 1.1), generator.uniform(-25, 25)
        x, y = generator.uniform(45, 195), generator.uniform(45, 135)
        matrix = cv2.getRotationMatrix2D((42, 42), angle, scale)
        matrix[:, 2] += (x - 42, y - 42)
        pasted = cv2.warpAffine(patch(number), matrix, (240, 180))
        mask = cv2.warpAffine(np.full((84, 84), 255, np.uint8), matrix, (240, 180)) > 127
        image[mask] = pasted[mask]
    noise = generator.normal(0, 6, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def build(root: Path) -> Market:
    """Draw the market and run its first stage."""
    (root / "images").mkdir(parents=True)

    def draw(name: str, own: int | None, seed: int) -> None:
        cv2.imwrite(str(root / "images" / f"{name}.jpg"), stall(own, seed), [cv2.IMWRITE_JPEG_QUALITY, 95])

    for c in range(TRAINED):
        for view in range(4):
            draw(f"t{c:02d}-{view}", 2000 + c, 100 * c + view)
    for c in range(TESTED):
        for view in range(4):
            draw(f"{'q' if view == 0 else 'g'}{c:02d}-{view}", 5000 + c, 50_000 + 100 * c + view)
    for number in range(DISTRACTORS):
        draw(f"g9{number:02d}-0", None, 90_000 + number)
    manifest, truth = _manifest(root), _truth()
    out = root / "out"
    for step in ("vocabulary", "descriptors", "training-descriptors", "ranking"):
        (out / step).mkdir(parents=True)
    cache = Cache(root / "cache")
    learn_vocabulary(manifest, root, ENCODER, SETTINGS, out / "vocabulary", cache=cache, features_code="f")
    more: dict[str, Any] = {"cache": cache, "code": "c", "features_code": "f"}
    where = (root, out / "vocabulary", ENCODER, SETTINGS)
    extract_descriptors(manifest, truth, *where, out / "descriptors", **more)
    extract_training_descriptors(manifest, *where, out / "training-descriptors", wanted=True, **more)
    none = {"top": 60, "index": {"kind": "none"}}
    search(out / "descriptors", manifest, truth, none, out / "ranking")
    return Market(root, manifest, truth, out)


def _manifest(root: Path) -> Manifest:
    return manifest_of(manifest_table(root))


def manifest_table(root: Path) -> Any:
    """The manifest's table; training images carry their class."""
    flags = {"g": "gallery", "q": "query", "t": "train"}
    entries = []
    for entry in list_entries("images", root):
        stem = Path(entry.member).stem
        label = stem[:3] if stem[0] == "t" else None
        entries.append(replace(entry, image_id=stem, label=label, **{flags[stem[0]]: True}))
    return build_manifest(entries, root)


def _truth() -> GroundTruth:
    grades = ("easy", "hard", "junk")
    relevance = {
        f"q{c:02d}-0": {f"g{c:02d}-{view}": grades[view - 1] for view in (1, 2, 3)} for c in range(TESTED)
    }
    return GroundTruth(tuple(Query(f"q{c:02d}-0", f"q{c:02d}-0") for c in range(TESTED)), relevance)


def opened(root: Path) -> Market:
    """The market that `build` made at `root`."""
    return Market(root, _manifest(root), _truth(), root / "out")
