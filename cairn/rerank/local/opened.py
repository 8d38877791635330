"""What a source of local features is that starts from files of the user's: weights, or descriptors of others."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cairn.errors import InputError
from cairn.files import file_digest
from cairn.store.local import LocalFeatures


class Seen(Protocol):
    """A view of an image (`cairn.systems.features.View`): its manifest row, a query's box, a name for messages."""

    @property
    def row(self) -> int: ...
    @property
    def box(self) -> tuple[float, float, float, float] | None: ...
    @property
    def name(self) -> str: ...


class Opened(Protocol):
    """An opened source. `about` goes into the HDF5 files, `facts` into `local.json`, `sources` into `sources.json`."""

    dim: int
    about: Mapping[str, str]
    facts: Mapping[str, Any]
    sources: Sequence[Mapping[str, Any]]

    def features(self, file: str, views: Sequence[Seen], most: int) -> Iterator[LocalFeatures]:
        """The first `most` features of each view, in order, strongest first; `file`: QUERIES_FILE or IMAGES_FILE."""
        ...


def source_entry(root: Path, path: str, note: str) -> dict[str, Any]:
    """An entry of `sources.json` for the user's file `path` (relative to `root`); InputError where there is none."""
    found = root / path
    if not found.is_file():
        raise InputError(f"{path}: no such file ({note})")
    size = found.stat().st_size
    return {
        "name": found.name,
        "path": path,
        "sha256": file_digest(found),
        "size": size,
        "note": note,
    }
