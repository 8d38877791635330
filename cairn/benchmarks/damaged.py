"""Damaged images among a million: an error, or as many as `damaged` allows left out, listed, and said so."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ArtifactError, ImageError
from cairn.files import write_json
from cairn.images.manifest import Entry, build_manifest

if TYPE_CHECKING:
    import pyarrow as pa

DAMAGED_FILE = "damaged.json"


def manifest_without_damaged(
    entries: Iterable[Entry], root: Path, truth: GroundTruth, allowed: int | None, output: Path
) -> "pa.Table":
    """The manifest's table. With `allowed` above 0 that many damaged images may be left out; None: none ever may.

    Those are listed with their reasons in `damaged.json` under `output`, which is there even if there is none. Only
    images that no query needs can be missing: ImageError where one is a query or judged, and where there are more
    than `allowed`.
    """
    if not allowed:
        try:
            return build_manifest(entries, root)
        except ImageError as error:
            if allowed is None:
                raise
            raise ImageError(
                f"{error}; replace it, or let some that no query needs be left out: `damaged: 1` in the "
                "benchmark's entry"
            ) from None
    found: list[tuple[str, str]] = []
    table = build_manifest(entries, root, damaged=found)
    needed = {query.image_id for query in truth.queries}
    needed.update(image for judged in truth.relevance.values() for image in judged)
    for image, reason in found:
        if image in needed:
            raise ImageError(f"{reason}; it is a query or judged, so it cannot be left out")
    if len(found) > allowed:
        raise ImageError(
            f"{found[0][1]} ({len(found):,} images are damaged; `damaged` lets {allowed:,} be left out)"
        )
    listed = [{"image_id": image, "reason": reason} for image, reason in found]
    write_json(output / DAMAGED_FILE, {"left_out": len(found), "images": listed})
    return table


def damaged_notes(manifest: Path) -> list[str]:
    """What is to stand beside every number of a benchmark whose manifest artifact leaves damaged images out."""
    path = manifest / DAMAGED_FILE
    if not path.is_file():
        return []
    try:
        count = int(json.loads(path.read_text("utf-8"))["left_out"])
    except (ValueError, KeyError, TypeError):
        raise ArtifactError(f"{path}: damaged; run the step `manifest` again") from None
    if not count:
        return []
    images = "image is" if count == 1 else "images are"
    return [f"{count:,} damaged {images} left out; {DAMAGED_FILE} in the manifest's folder lists them."]
