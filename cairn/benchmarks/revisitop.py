"""Adapter `revisitop`: ROxford5k and RParis6k (Radenović et al., CVPR 2018), with or without 1M distractors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.benchmarks import published
from cairn.benchmarks.structure import GroundTruth

SOURCES = Path(__file__).with_name("revisitop.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "revisitop"
ABOUT: Mapping[str, Any] = {
    "title": "Revisited Oxford and Paris",
    "synthetic": False,
    "protocol": "easy, medium, hard; mAP (AP by trapezoids) and mP@{1,5,10}; junk removed; queries cropped to "
    "their box, gallery images never (Radenović et al., CVPR 2018)",
    "notes": [
        "Queries without a positive under a setup are left out of its mean, as the official code does."
    ],
}


class Parameters(published.PublishedParameters):
    """Keys of a revisited benchmark in `params.yaml`."""

    dataset: Literal["roxford5k", "rparis6k"] = Field(description="which of the two")
    distractors: bool = Field(False, description="add the 1M distractors of revisitop1m to the gallery")


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `revisitop.yaml` that these settings need."""
    return (settings["dataset"], *(["revisitop1m"] if settings["distractors"] else []))


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Download ground truth and images; `sources.json` says what they hash to."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of the images in `imlist` and `qimlist`, by name without ending, and of the distractors.

    A distractor's id is `revisitop1m/` and its path in the archive.
    """
    gnd = _gnd(settings, root, sources)
    places = published.archives(root, sources, "gallery")
    entries = [
        *published.find_images(
            root, places, published.keyed(gnd.images, 1, str(gnd.path)), _stem, "gallery", gallery=True
        ),
        *published.find_images(
            root, places, published.keyed(gnd.queries, 1, str(gnd.path)), _stem, "query", query=True
        ),
    ]
    extra = published.archives(root, sources, "distractors") if settings["distractors"] else []
    return entries + published.all_images(
        root, extra, lambda _, member: f"revisitop1m/{member}", gallery=True
    )


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries with their boxes, and easy, hard and junk images."""
    from cairn.benchmarks.revisited_layout import truth_of

    return truth_of(_gnd(settings, root, sources), "corners")


def _gnd(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    from cairn.scoring.revisitop import read_gnd

    return read_gnd(published.truth_path(root, sources, f"gnd_{settings['dataset']}.pkl"))


def _stem(member: str) -> str:
    return published.tail(member, 1)
