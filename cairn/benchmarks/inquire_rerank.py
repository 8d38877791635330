"""Adapter `inquire-rerank`: INQUIRE's fixed lists of 100 images per question (Vendrow et al., NeurIPS 2024)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.benchmarks import published
from cairn.benchmarks.inquire import SOURCES as SOURCES
from cairn.benchmarks.structure import NEGATIVE, POSITIVE, GroundTruth, Query
from cairn.errors import InputError

EXTERNAL: tuple[str, ...] = ()
METRIC = "inquire-rerank"
ABOUT: Mapping[str, Any] = {
    "title": "INQUIRE, re-rank",
    "synthetic": False,
    "protocol": "AP, nDCG and MRR of each query's fixed 100 images, per supercategory, category and iconic group "
    "(Vendrow et al., NeurIPS 2024)",
    "notes": ["Text queries: a system needs a text encoder.", "Only a query's own images are ranked."],
}
TRUTH = "inquire_rerank.csv"


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`: only where its files are."""


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `inquire.yaml` that are needed."""
    return ("rerank",)


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Take the lists and their images, which the authors hand out without an address that stays."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of the listed images; ids are the paths in the lists."""
    names = {image for _, image in _lists(root, sources).relevant}
    wanted = published.keyed(sorted(names), 2, TRUTH)
    return published.find_images(
        root, published.archives(root, sources, "gallery"), wanted, _key, "listed", gallery=True
    )


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Text queries; every image of a query's list is `positive` or `negative`. Attributes make the slices."""
    from cairn.scoring.inquire import ATTRIBUTES

    lists = _lists(root, sources)
    if lists.texts is None or not all(text.strip() for text in lists.texts):
        raise InputError(
            f"{published.truth_path(root, sources, TRUTH)}: a query has no text; expected the column query"
        )
    names = tuple(lists.ids)
    relevance: dict[str, dict[str, str]] = {name: {} for name in names}
    for (number, image), relevant in lists.relevant.items():
        relevance[names[number]][image] = POSITIVE if relevant else NEGATIVE
    attributes = {
        name: {
            title: lists.attributes[column][row]
            for column, title in ATTRIBUTES.items()
            if _has(lists, column, row)
        }
        for name, row in lists.ids.items()
    }
    queries = tuple(Query(name, text=text.strip()) for name, text in zip(names, lists.texts, strict=True))
    return GroundTruth(queries, relevance, attributes)


def _lists(root: Path, sources: Path) -> Any:
    from cairn.scoring.inquire import read_fixed_lists

    return read_fixed_lists(published.truth_path(root, sources, TRUTH))


def _has(lists: Any, column: str, row: int) -> bool:
    return bool(lists.attributes.get(column) and lists.attributes[column][row])


def _key(member: str) -> str:
    return published.tail(member, 2)
