"""Adapter `inquire`: expert questions in words over iNaturalist 2024 (Vendrow et al., NeurIPS 2024)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.benchmarks import published
from cairn.benchmarks.structure import POSITIVE, GroundTruth, Query
from cairn.errors import InputError

SOURCES = Path(__file__).with_name("inquire.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "inquire"
ABOUT: Mapping[str, Any] = {
    "title": "INQUIRE, full rank",
    "synthetic": False,
    "protocol": "AP@50, nDCG@50, MRR, precision@50 over the whole of iNaturalist 2024, per supercategory, category "
    "and iconic group (Vendrow et al., NeurIPS 2024)",
    "notes": ["Text queries: a system needs a text encoder."],
}


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`."""

    split: Literal["val", "test"] = Field("test", description="the 50 validation or the 200 test queries")


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `inquire.yaml` that these settings need."""
    return ("truth", settings["split"], "images")


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Download queries, annotations and the images of iNaturalist 2024."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of all images of iNaturalist 2024; ids are the paths that the annotations use (`train/…`)."""
    return published.all_images(root, published.archives(root, sources, "gallery"), _name, gallery=True)


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Text queries of the split with their relevant images; attributes make the official slices."""
    from cairn.scoring.files import read_table
    from cairn.scoring.inquire import ATTRIBUTES, read_annotations, read_queries

    path = published.truth_path(root, sources, f"inquire_queries_{settings['split']}.csv")
    ids, columns = read_queries(path)
    table = read_table(path, ("query_id", "query_text"), more_columns=True)
    for row, text in enumerate(table.columns["query_text"]):
        if not text.strip():
            table.fail(row, f"query {table.columns['query_id'][row]} has an empty query_text")
    annotated = published.truth_path(root, sources, "inquire_annotations.csv")
    relevance: dict[str, dict[str, str]] = {name: {} for name in ids}
    names = list(ids)
    for number, image in sorted(read_annotations(annotated, ids)):
        if not image.startswith("train/"):
            raise InputError(f"{annotated}: query {names[number]}: {image!r:.80} is not a path below train/")
        relevance[names[number]][image] = POSITIVE
    attributes = {
        name: {title: columns[column][row] for column, title in ATTRIBUTES.items() if columns[column][row]}
        for name, row in ids.items()
    }
    queries = tuple(
        Query(name, text=text.strip(), split=settings["split"])
        for name, text in zip(ids, table.columns["query_text"], strict=True)
    )
    return GroundTruth(queries, relevance, attributes)


def _name(_: str, member: str) -> str:
    """`train/FOLDER/FILE`, whether the archive's members start there or a folder `train` was unpacked."""
    return "/".join(("train", *member.split("/")[-2:]))
