"""Adapter `toytown`: draws the town, then reads it like any other benchmark's files."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model, model_validator

from cairn.benchmarks.structure import GroundTruth, read_ground_truth
from cairn.benchmarks.toytown.settings import ToytownSettings

EXTERNAL: tuple[str, ...] = ()
METRIC = "revisitop"
ABOUT: Mapping[str, Any] = {
    "title": "toytown, a drawn town",
    "synthetic": True,
    "protocol": "revisited Oxford / Paris (Radenović et al., CVPR 2018): easy, medium, hard; mAP and mP@k",
    "notes": [
        "Synthetic: every picture is drawn by code from one seed; the numbers say nothing about photographs."
    ],
}


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="after")
    def _fits(self) -> "_Checked":
        ToytownSettings(**self.model_dump())
        return self


# The keys of a toytown benchmark in `params.yaml` are the generator's settings.
_FIELDS: dict[str, Any] = {field.name: (field.type, field.default) for field in fields(ToytownSettings)}
Parameters = create_model("Parameters", __base__=_Checked, **_FIELDS)


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Draw the town under `output`: `images.tar`, ground truth, training classes, `sources.json`."""
    from cairn.benchmarks.toytown.town import draw_town

    draw_town(output, ToytownSettings(**settings))


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries for the manifest: every member of the archive with its role and training class."""
    from cairn.benchmarks.toytown.town import image_roles
    from cairn.images.manifest import list_entries

    roles = {role.image_id: role for role in image_roles(root / sources)}
    entries = []
    for entry in list_entries((sources / "images.tar").as_posix(), root):
        role = roles[entry.image_id]
        flags = {
            key: value for key, value in asdict(role).items() if key in ("gallery", "query", "train", "label")
        }
        entries.append(replace(entry, **flags))
    return entries


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries and relevance as the geometry of the views gave them."""
    return read_ground_truth(root / sources / "ground_truth")


def categories(settings: Mapping[str, Any], root: Path, sources: Path) -> Path:
    """The names of the training classes, in GLDv2's format."""
    from cairn.benchmarks.toytown.town import CATEGORIES_FILE

    return root / sources / CATEGORIES_FILE


def landmarks(settings: Mapping[str, Any], root: Path, sources: Path) -> list[str]:
    """What an auditor may know of the queried landmarks."""
    from cairn.benchmarks.toytown.town import LANDMARKS_FILE

    return [str(root / sources / LANDMARKS_FILE)]


def known_overlap(settings: Mapping[str, Any], root: Path, sources: Path) -> dict[int, list[str]]:
    """What the audit has to find out: the training classes that show a queried landmark, and their images that do."""
    import json

    from cairn.benchmarks.toytown.town import TRUTH_FILE

    classes = json.loads((root / sources / TRUTH_FILE).read_text("utf-8"))["classes"]
    return {int(one): what["images_that_show_it"] for one, what in classes.items() if what["shows"]}
