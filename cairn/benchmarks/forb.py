"""Adapter `forb`: flat objects (Wu et al., NeurIPS 2023 Datasets and Benchmarks), and the published subset."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.benchmarks import published
from cairn.benchmarks.structure import POSITIVE, GroundTruth, Query
from cairn.errors import InputError

SOURCES = Path(__file__).with_name("forb.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "forb"
ABOUT: Mapping[str, Any] = {
    "title": "FORB, flat objects",
    "synthetic": False,
    "protocol": "retrieval over eight object types, by difficulty (Wu et al., NeurIPS 2023 Datasets and Benchmarks)",
    "notes": [
        "mAP@k divides by all positives. The thresholds of t-mAP are read off the out-of-distribution images of the "
        "same ranking; a re-ranked list has no t-mAP.",
    ],
}
OBJECTS = (
    "animated_cards",
    "photorealistic_cards",
    "bookcovers",
    "paintings",
    "currency",
    "logos",
    "packaged_goods",
    "movie_posters",
)
"""Object types in the order of the whole gallery (official `ID_OFFSET`)."""


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`."""

    subset: bool = Field(False, description="the published FORB_subset")
    gallery: Literal["all", "oods"] = Field(
        "all", description="the whole gallery, or the out-of-distribution one that has no positives"
    )


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `forb.yaml` that these settings need."""
    return ("subset" if settings["subset"] else "full", "images")


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Download the metadata; the images come as one archive from the authors' Google Drive, by hand."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of the listed gallery images and of the query images, by `object/kind/name.jpg`."""
    places = published.archives(root, sources, "gallery")
    gallery = _gallery(settings, root, sources, settings["gallery"])
    queries = [query.image_id for query in ground_truth(settings, root, sources).queries if query.image_id]
    return [
        *published.find_images(
            root, places, published.keyed(gallery, 3, "gallery list"), _key, "gallery", gallery=True
        ),
        *published.find_images(
            root, places, published.keyed(queries, 3, "ground truth"), _key, "query", query=True
        ),
    ]


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries of all object types; attributes: object type and difficulty.

    A positive is the gallery image with its number: they count from 1 within the object type. Positives that
    the chosen gallery lacks are left out, so that the out-of-distribution gallery has distractor queries alone.
    Where the out-of-distribution gallery is part of the whole one, all other images have the attribute
    `out-of-distribution` = `no`: the run over it is then a part of the run over the whole gallery.
    """
    from cairn.scoring.files import read_records
    from cairn.scoring.forb import DIFFICULTIES

    gallery = _gallery(settings, root, sources, "all")
    present = set(_gallery(settings, root, sources, settings["gallery"]))
    of_object: dict[str, list[str]] = {name: [] for name in OBJECTS}
    for image in gallery:
        of_object.setdefault(image.split("/")[0], []).append(image)
    queries, relevance, attributes = [], {}, {}
    for name in OBJECTS:
        path = published.truth_path(root, sources, f"{_prefix(settings)}{name}_gt.ndjson")
        for line, record in read_records(path):
            where = f"{path}:{line}"
            query_id = f"{name}/{_whole(record.get('query_id'), where, 'query_id')}"
            image = record.get("query_image")
            if not isinstance(image, str) or not image:
                raise InputError(f"{where}: query_image is {image!r:.60}; expected an image's path")
            numbers = record.get("groundtruth_ids")
            if not isinstance(numbers, list):
                raise InputError(f"{where}: groundtruth_ids is {numbers!r:.60}; expected a list of numbers")
            images = [_image(number, of_object[name], name, where) for number in numbers]
            if record.get("groundtruth_images", images) != images:
                raise InputError(f"{where}: groundtruth_images and groundtruth_ids name different images")
            difficulty = record.get("difficulty")
            if difficulty not in (*DIFFICULTIES, None):
                raise InputError(
                    f"{where}: difficulty is {difficulty!r:.40}; expected {', '.join(DIFFICULTIES)}"
                )
            queries.append(Query(query_id, image))
            relevance[query_id] = {image: POSITIVE for image in images if image in present}
            attributes[query_id] = {"object": name, **({"difficulty": difficulty} if difficulty else {})}
    outside = set(_gallery(settings, root, sources, "oods"))
    known = set(gallery) - outside if settings["gallery"] == "all" and outside < set(gallery) else set()
    of_image = {image: {"out-of-distribution": "no"} for image in known}
    return GroundTruth(tuple(queries), relevance, attributes, of_image)


def _gallery(settings: Mapping[str, Any], root: Path, sources: Path, which: str) -> list[str]:
    from cairn.scoring.files import read_lines

    path = published.truth_path(root, sources, f"{_prefix(settings)}{which}_database_images.txt")
    listed: dict[str, int] = {}
    for line, name in read_lines(path):
        if name in listed:
            raise InputError(f"{path}:{line}: {name} is listed twice (line {listed[name]} too)")
        listed[name] = line
    return list(listed)


def _prefix(settings: Mapping[str, Any]) -> str:
    return "FORB_subset/" if settings["subset"] else ""


def _image(number: Any, images: list[str], name: str, where: str) -> str:
    index = _whole(number, where, "groundtruth_ids")
    if not 1 <= index <= len(images):
        raise InputError(f"{where}: image {index} does not exist; {name} has 1 to {len(images)}")
    return images[index - 1]


def _whole(value: Any, where: str, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{where}: {key} holds {value!r:.40}; whole numbers are expected")
    return value


def _key(member: str) -> str:
    return published.tail(member, 3)
