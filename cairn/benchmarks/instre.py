"""Adapter `instre`: INSTRE (Wang and Jiang, TOMM 2015) in the split of Iscen et al. (CVPR 2017)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.benchmarks import published
from cairn.benchmarks.ilias import SOURCES as ILIAS_SOURCES
from cairn.benchmarks.ilias import distractor_name
from cairn.benchmarks.structure import GroundTruth

SOURCES = Path(__file__).with_name("instre.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "instre"
ABOUT: Mapping[str, Any] = {
    "title": "INSTRE",
    "synthetic": False,
    "protocol": "mAP over 1,250 queries, AP by trapezoids as the Oxford code computes it; queries cropped to their "
    "box (Iscen et al., CVPR 2017); with ILIAS distractors choose the metric ilias: mAP@1000",
    "notes": [],
}


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`."""

    boxes: Literal["corners", "size"] = Field(
        "corners", description="whether bbx holds x1, y1, x2, y2 or x, y, width, height"
    )
    crop: bool = Field(True, description="crop queries to their box")
    distractors: Literal["none", "mini", "yfcc100m"] = Field(
        "none", description="add the distractors of mini-ILIAS or ILIAS to the gallery"
    )
    shards: int | None = Field(default=None, ge=1, description="take only the first shards of YFCC100M")


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `instre.yaml` that these settings need; the distractors are in `ilias.yaml`."""
    return ("instre",)


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Take the images and the ground truth, and the distractors where they are asked for."""
    published.write_published(fetch(settings, root), root, output)


def fetch(settings: Mapping[str, Any], root: Path, only: Any = None) -> list[Any]:
    """Bring INSTRE's files, and ILIAS's distractors, into their two download folders."""
    found = published.fetch_published(SOURCES, parts(settings), settings, root, only=only)
    if settings["distractors"] != "none":
        found += published.fetch_published(
            ILIAS_SOURCES, (settings["distractors"],), settings, root, only=only
        )
    return found


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of the images in `imlist` and `qimlist`, by their path below the data set, and of distractors."""
    gnd = _gnd(root, sources)
    places = published.archives(root, sources, "gallery")
    return [
        *published.find_images(
            root, places, published.keyed(gnd.images, 3, str(gnd.path)), _key, "gallery", gallery=True
        ),
        *published.find_images(
            root, places, published.keyed(gnd.queries, 3, str(gnd.path)), _key, "query", query=True
        ),
        *published.all_images(
            root, published.archives(root, sources, "distractors"), distractor_name, gallery=True
        ),
    ]


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries with their boxes and their positives (`ok`), or easy, hard and junk where the file has those."""
    from cairn.benchmarks.revisited_layout import truth_of

    return truth_of(_gnd(root, sources), settings["boxes"] if settings["crop"] else None)


def _gnd(root: Path, sources: Path) -> Any:
    from cairn.scoring.revisitop import read_gnd

    return read_gnd(published.truth_path(root, sources, "gnd_instre.pkl"), None)


def _key(member: str) -> str:
    return published.tail(member, 3)
