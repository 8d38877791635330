"""Adapter `folder`: a user's own images and one CSV, read where they lie."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cairn.benchmarks.folder import read_folder_benchmark
from cairn.benchmarks.structure import GroundTruth
from cairn.files import file_digest, write_json
from cairn.images.manifest import Entry

EXTERNAL = ("images", "truth")
METRIC = "map"
ABOUT: Mapping[str, Any] = {
    "title": "a folder of images with a table of relevance",
    "synthetic": False,
    "protocol": "the metric named in params.yaml, over the queries of the CSV",
    "notes": ["The images and the ground truth are the user's own; nothing was downloaded."],
}


class Parameters(BaseModel):
    """Keys of a folder benchmark in `params.yaml`; paths are relative to the project, or absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    images: str = Field(min_length=1, description="folder (or tar or zip) with the images")
    damaged: int = Field(0, ge=0, description="how many damaged images that no query needs may be left out")
    truth: str = Field(min_length=1, description="CSV: query,image,relevance[,x1,y1,x2,y2][,split][,text]")


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Check the images and the CSV against each other, and record what they hash to.

    Raises `InputError` where the two do not fit each other.
    """
    entries, _ = _read(settings, root)
    images, truth = root / settings["images"], root / settings["truth"]
    checksum = _folder_checksum(images, entries) if images.is_dir() else _file_checksum(images)
    own = {"licence": "the user's own", "synthetic": False}
    sources = [
        {"name": "images", "path": settings["images"], **own, **checksum},
        {"name": "truth", "path": settings["truth"], **own, **_file_checksum(truth)},
    ]
    write_json(output / "sources.json", {"sources": sources})


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> list[Entry]:
    """Entries for the manifest: every image, with its role."""
    return _read(settings, root)[0]


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries and relevance from the CSV."""
    return _read(settings, root)[1]


def _read(settings: Mapping[str, Any], root: Path) -> tuple[list[Entry], GroundTruth]:
    return read_folder_benchmark(Path(settings["images"]), Path(settings["truth"]), root)


def _folder_checksum(folder: Path, entries: Sequence[Entry]) -> dict[str, Any]:
    """SHA-256 of what `sha256sum` prints for the images sorted by path, with their number and bytes."""
    total, size = hashlib.sha256(), 0
    for entry in sorted(entries, key=lambda entry: entry.member):
        path = folder / entry.member
        size += path.stat().st_size
        total.update(f"{file_digest(path)}  {entry.member}\n".encode())
    explained = "of the lines `sha256  relative path` of the images, sorted by path"
    return {"files": len(entries), "size": size, "sha256": total.hexdigest(), "sha256_of": explained}


def _file_checksum(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": file_digest(path)}
