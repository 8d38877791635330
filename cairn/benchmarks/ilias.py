"""Adapter `ilias`: instance-level retrieval at scale (Kordopatis-Zilos et al., CVPR 2025), and mini-ILIAS."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from cairn.benchmarks import published
from cairn.benchmarks.structure import POSITIVE, GroundTruth, Query
from cairn.errors import InputError

SOURCES = Path(__file__).with_name("ilias.yaml")
EXTERNAL: tuple[str, ...] = ()
METRIC = "ilias"
ABOUT: Mapping[str, Any] = {
    "title": "ILIAS",
    "synthetic": False,
    "protocol": "mAP@1000 over image or text queries (Kordopatis-Zilos et al., CVPR 2025)",
    "notes": [
        "Query images are used whole.",
        "Categories and subcategories are means over instances, all else means over queries.",
    ],
}


class Parameters(published.PublishedParameters):
    """Keys of the benchmark in `params.yaml`."""

    queries: Literal["image", "text", "all"] = Field("image", description="which queries are asked")
    distractors: Literal["mini", "yfcc100m", "none"] = Field(
        "mini", description="mini-ILIAS (5M images), all of YFCC100M (6.3 TB), or positives alone"
    )
    shards: int | None = Field(default=None, ge=1, description="take only the first shards of YFCC100M")


def parts(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of `ilias.yaml` that these settings need."""
    return ("core", *([] if settings["distractors"] == "none" else [settings["distractors"]]))


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Download the id lists, the core images, and the distractors' shards with their SHA-256s."""
    published.write_parts(SOURCES, parts(settings), settings, root, output)


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries of positives and image queries by their published ids, and of every distractor.

    A distractor's id is `SHARD.tar/NAME`, as the official feature extraction makes it.
    """
    dataset = _dataset(root, sources)
    core = published.archives(root, sources, "core")
    entries = published.find_images(
        root, core, published.keyed(dataset.positives, 3, "positive_ids.txt"), _key, "positive", gallery=True
    )
    if settings["queries"] != "text":
        wanted = published.keyed(dataset.image_queries, 3, "image_query_ids.txt")
        entries += published.find_images(root, core, wanted, _key, "query", query=True)
    return entries + published.all_images(
        root, published.archives(root, sources, "distractors"), distractor_name, gallery=True
    )


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Image or text queries (splits `image` and `text`); every positive of a query's instance is relevant.

    Queries have the attributes `category` and `subcategory` of the published taxonomy, positives `scale` (share of
    the image) and `clutter` (number of other objects) as published, in Python's shortest form.
    """
    from cairn.scoring.ilias import read_taxonomy

    dataset = _dataset(root, sources)
    queries: list[Query] = []
    if settings["queries"] != "text":
        queries += [Query(name, name, split="image") for name in dataset.image_queries]
    if settings["queries"] != "image":
        texts: dict[str, str] = {}
        for place in published.archives(root, sources, "core"):
            texts |= published.read_texts(root, place, ".txt", lambda name: "/".join(name.split("/")[-3:]))
        for name in dataset.text_queries:
            path = name if name.endswith(".txt") else f"{name}.txt"
            if not texts.get(path):
                raise InputError(f"text query {name}: no text in ilias_core ({path})")
            queries.append(Query(name, text=texts[path], split="text"))
    of_instance: dict[str, dict[str, str]] = {}
    for image in dataset.positives:
        of_instance.setdefault(image.split("/")[0], {})[image] = POSITIVE
    taxonomy = published.truth_path(root, sources, "taxonomy.json")
    labels = read_taxonomy(taxonomy)
    attributes, relevance = {}, {}
    for name in (query.query_id for query in queries):
        instance = name.split("/")[0]
        if instance not in labels:
            raise InputError(f"{taxonomy}: the instance of query {name} is not in it")
        category, subcategory = labels[instance]
        attributes[name] = {"category": category, "subcategory": subcategory}
        relevance[name] = of_instance.get(instance, {})
    measured = zip(dataset.positives, dataset.scale.tolist(), dataset.clutter.tolist(), strict=True)
    of_image = {name: {"scale": repr(scale), "clutter": repr(clutter)} for name, scale, clutter in measured}
    return GroundTruth(tuple(queries), relevance, attributes, of_image)


def distractor_name(archive: str, member: str) -> str:
    """`SHARD.tar/NAME` of a distractor."""
    return f"{archive.rsplit('/', 1)[-1]}/{published.tail(member, 8)}"


def _dataset(root: Path, sources: Path) -> Any:
    from cairn.scoring.ilias import read_dataset

    return read_dataset(Path(root) / sources / published.TRUTH_FOLDER)


def _key(member: str) -> str:
    return published.tail(member, 3)
