"""Adapter `folder`: a user's own images and one CSV, read where they lie."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cairn.benchmarks.folder import read_folder_benchmark
from cairn.benchmarks.structure import GroundTruth
from cairn.files import file_digest, write_json

EXTERNAL = ("images", "truth")
METRIC = "map"
ABOUT: Mapping[str, Any] = {
    "title": "a folder of images with a table of relevance",
    "synthetic": False,
    "protocol": "the metric named in params.yaml, over the queries of the CSV",
    "notes": ["The images and the ground truth are the user's own; nothing was downloaded."],
}


class Parameters(BaseModel):
    """Keys of a folder benchmark in `params.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    images: str = Field(
        min_length=1, description="folder with the images, relative to the project or absolute"
    )
    truth: str = Field(
        min_length=1, description="CSV with query,image,relevance[,x1,y1,x2,y2][,split][,text]"
    )


def write_sources(settings: Mapping[str, Any], root: Path, output: Path) -> None:
    """Check the folder and the CSV, and record what they hash to.

    The folder's checksum is the SHA-256 over the lines `sha256  relative path` of its images, sorted by path:
    what `sha256sum` prints for each of them. Raises `InputError` where the two do not fit each other.
    """
    images, truth = root / settings["images"], root / settings["truth"]
    entries, _ = read_folder_benchmark(images, truth)
    total, size = hashlib.sha256(), 0
    for entry in sorted(entries, key=lambda entry: entry.member):
        path = images / entry.member
        size += path.stat().st_size
        total.update(f"{file_digest(path)}  {entry.member}\n".encode())
    sources = [
        {
            "name": "images",
            "path": settings["images"],
            "files": len(entries),
            "size": size,
            "sha256": total.hexdigest(),
            "sha256_of": "lines 'sha256  relative path' of the images, sorted by path",
            "licence": "the user's own",
            "synthetic": False,
        },
        {
            "name": "truth",
            "path": settings["truth"],
            "size": truth.stat().st_size,
            "sha256": file_digest(truth),
            "licence": "the user's own",
            "synthetic": False,
        },
    ]
    write_json(output / "sources.json", {"sources": sources})


def images(settings: Mapping[str, Any], root: Path, sources: Path) -> Any:
    """Entries for the manifest: every image of the folder, with its role."""
    entries, _ = read_folder_benchmark(
        root / settings["images"], root / settings["truth"], settings["images"]
    )
    return entries


def ground_truth(settings: Mapping[str, Any], root: Path, sources: Path) -> GroundTruth:
    """Queries and relevance from the CSV."""
    return read_folder_benchmark(root / settings["images"], root / settings["truth"])[1]
