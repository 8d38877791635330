"""Adapter `gldv2`: Google Landmarks v2 retrieval (Weyand et al., CVPR 2020), ground truth version 2.1."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.benchmarks import published
from cairn.benchmarks.structure import POSITIVE, GroundTruth, Query
from cairn.errors import InputError

SOURCES = Path(__file__).with_name("gldv2.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "gldv2"
ABOUT: Mapping[str, Any] = {
    "title": "Google Landmarks v2, retrieval",
    "synthetic": False,
    "protocol": "mAP@100, AP by rectangles over min(positives, 100); public, private, all (Weyand et al., CVPR 2020)",
    "notes": ["Ground truth version 2.1; test images that it marks None are no queries."],
}


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`: only where its files are."""


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `gldv2.yaml` that are needed."""
    return ("truth", "index", "test")


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Download the lists, the solution, and the 100 + 20 tars of index and test images with their MD5s."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of the images in `index.csv` (gallery) and of the test images that are queries, by id."""
    gallery = {image: image for image in _ids(published.truth_path(root, sources, "index.csv"))}
    queries = {query.query_id: query.query_id for query in ground_truth(settings, root, sources).queries}
    return [
        *published.find_images(
            root, published.archives(root, sources, "gallery"), gallery, _stem, "index", gallery=True
        ),
        *published.find_images(
            root, published.archives(root, sources, "query"), queries, _stem, "test", query=True
        ),
    ]


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """The test images that are not ignored, their positives, and their split (public or private)."""
    from cairn.scoring.gldv2 import read_solution

    path = published.truth_path(root, sources, "retrieval_solution_v2.1.csv")
    usage, positives = read_solution(path)
    known = set(_ids(published.truth_path(root, sources, "test.csv")))
    if unknown := next((name for name in usage if name not in known), None):
        raise InputError(f"{path}: test image {unknown} is not in test.csv")
    asked = [name for name, use in usage.items() if use != "Ignored"]
    return GroundTruth(
        tuple(Query(name, name, split=usage[name].lower()) for name in asked),
        {name: dict.fromkeys(positives[name], POSITIVE) for name in asked},
    )


def _ids(path: Path) -> list[str]:
    from cairn.scoring.files import read_table

    table = read_table(path, ("id",), more_columns=True)
    if not len(table):
        raise InputError(f"{path}: no id; expected one image a line below the header")
    return table.columns["id"]


def _stem(member: str) -> str:
    return published.tail(member, 1)
