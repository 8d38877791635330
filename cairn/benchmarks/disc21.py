"""Adapter `disc21`: the Image Similarity Challenge's data set (Douze et al., arXiv 2106.09672)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.benchmarks import published
from cairn.benchmarks.structure import POSITIVE, GroundTruth, Query
from cairn.errors import InputError

SOURCES = Path(__file__).with_name("disc21.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "disc21"
ABOUT: Mapping[str, Any] = {
    "title": "DISC21, image copy detection",
    "synthetic": False,
    "protocol": "micro-AP over the predictions of all queries, false matches first among equal scores; recall at "
    "precision 90 (Douze et al., arXiv 2106.09672)",
    "notes": ["A query without a reference is a distractor: what is predicted for it is a false match."],
}
TRUTH = {"dev": "public_ground_truth.csv", "test": "private_ground_truth.csv"}


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`."""

    split: Literal["dev", "test"] = Field(
        "dev", description="the 50,000 development or the 50,000 test queries"
    )
    training_images: bool = Field(
        False, description="take the 1M training images as well (score normalisation, whitening)"
    )


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `disc21.yaml` that these settings need."""
    return (settings["split"], "references", *(["train"] if settings["training_images"] else []))


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Take the images, which need a licence accepted by hand, and the ground truth."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of all references (gallery), of the split's queries, and of the training images if asked for."""
    truth = ground_truth(settings, root, sources)
    queries = {query.query_id: query.query_id for query in truth.queries}
    training = published.archives(root, sources, "train") if settings["training_images"] else []
    return [
        *published.all_images(root, published.archives(root, sources, "gallery"), _name, gallery=True),
        *published.find_images(
            root, published.archives(root, sources, "query"), queries, _stem, "query", query=True
        ),
        *published.all_images(root, training, _name, train=True),
    ]


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries in the file's order, each with its references, none for a distractor query."""
    from cairn.scoring.disc21 import read_truth

    path = published.truth_path(root, sources, TRUTH[settings["split"]])
    names, pairs, all_listed = read_truth(path)
    if not all_listed:
        raise InputError(
            f"{path}: no distractor query is listed (a row without reference_id); the run needs every query"
        )
    relevance: dict[str, dict[str, str]] = {name: {} for name in names}
    for query, reference in pairs:
        relevance[query][reference] = POSITIVE
    return GroundTruth(tuple(Query(name, name) for name in names), relevance)


def _stem(member: str) -> str:
    return published.tail(member, 1)


def _name(_: str, member: str) -> str:
    return published.tail(member, 1)
