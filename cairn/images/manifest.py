"""The manifest: one row per image of a benchmark, saying where its bytes lie and what they must be.

The number of an image's row is the image's number everywhere else. Rows are ordered: gallery images, then
images that are only queries, then images that are only for training; inside each group by image id.
"""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ArtifactError, CairnError, ImageError, InputError, UnrecordedImageError
from cairn.images.archives import ArchiveReader, image_id_of, list_members

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Entry:
    """One image to be put into a manifest: where its bytes lie and what it is for.

    `archive` is the path of a folder, tar or zip file relative to the project root (or absolute, where a
    user's images lie outside it), `member` the name inside; `offset` and `size` are those of its Member.
    """

    image_id: str
    archive: str
    member: str
    offset: int
    size: int
    gallery: bool = False
    query: bool = False
    train: bool = False
    label: str | None = None


@dataclass(frozen=True, eq=False)
class Manifest:
    """A manifest in memory; every field has one element per row.

    `offset` and `size` are int64 (bytes), `width` and `height` int32 (pixels as stored), `gallery`, `query`
    and `train` bool, `label` the training class or None, `sha256` of the image file in hexadecimal.
    """

    image_id: list[str]
    archive: list[str]
    member: list[str]
    offset: np.ndarray
    size: np.ndarray
    width: np.ndarray
    height: np.ndarray
    sha256: list[str]
    gallery: np.ndarray
    query: np.ndarray
    train: np.ndarray
    label: list[str | None]

    def __len__(self) -> int:
        return len(self.image_id)

    def rows(
        self, *, gallery: bool | None = None, query: bool | None = None, train: bool | None = None
    ) -> np.ndarray:
        """Numbers (int64, ascending) of the rows whose flags have the given values; None takes either."""
        chosen = np.ones(len(self), bool)
        for flags, wanted in ((self.gallery, gallery), (self.query, query), (self.train, train)):
            if wanted is not None:
                chosen &= flags == wanted
        return np.flatnonzero(chosen)

    @functools.cached_property
    def row_of(self) -> dict[str, int]:
        """Row number by image id."""
        return {image: row for row, image in enumerate(self.image_id)}

    @property
    def gallery_size(self) -> int:
        """Number of gallery images; they are rows 0 to gallery_size - 1."""
        return int(self.gallery.sum())


def list_entries(
    archive: str, root: Path, *, gallery: bool = False, query: bool = False, train: bool = False
) -> list[Entry]:
    """An entry for every image in a folder or archive; its id is the member's name.

    Where ids or flags differ from image to image, change them with `dataclasses.replace`. Errors as
    `archives.list_members`.
    """
    return [
        Entry(
            image_id_of(member.name), archive, member.name, member.offset, member.size, gallery, query, train
        )
        for member in list_members(Path(root) / archive)
    ]


def build_manifest(
    entries: Iterable[Entry],
    root: Path,
    workers: int | None = None,
    damaged: list[tuple[str, str]] | None = None,
) -> "pa.Table":
    """Read, hash and check every image, and return the manifest's table.

    Entries with one image id are put together if they name the same member (an image that is query and
    gallery). Every image is decoded once, so that a corrupt one is found here and not hours later; ImageError
    tells how many there are and names the first. Where a list is given as `damaged`, such images are appended
    to it as (image id, reason) and left out instead. InputError for contradictory entries and an image that
    is neither gallery, query nor training image. The result does not depend on `workers`.
    """
    import pyarrow as pa

    from cairn.parallel import map_processes
    from cairn.parallel import workers as default_workers
    from cairn.progress import track

    rows = sorted(_merged(entries), key=_order)
    # Spawned processes cost about a second; few images are done sooner than that.
    processes = (workers or default_workers()) if len(rows) > 512 else 1
    results = map_processes(
        _examine, rows, chunksize=32, initializer=_start, initargs=(Path(root),), processes=processes
    )
    found = list(track(results, "Checking images", total=len(rows), unit="images"))
    failures = [
        (row.image_id, result) for row, result in zip(rows, found, strict=True) if isinstance(result, str)
    ]
    if failures and damaged is None:
        more = f" ({len(failures)} of {len(rows)} images are damaged)" if len(failures) > 1 else ""
        raise ImageError(failures[0][1] + more)
    if damaged is not None:
        damaged.extend(failures)
    kept = [(row, result) for row, result in zip(rows, found, strict=True) if not isinstance(result, str)]
    columns = {
        "image_id": [row.image_id for row, _ in kept],
        "archive": [row.archive for row, _ in kept],
        "member": [row.member for row, _ in kept],
        "offset": [row.offset for row, _ in kept],
        "size": [row.size for row, _ in kept],
        "width": [result[1] for _, result in kept],
        "height": [result[2] for _, result in kept],
        "sha256": [result[0] for _, result in kept],
        "gallery": [row.gallery for row, _ in kept],
        "query": [row.query for row, _ in kept],
        "train": [row.train for row, _ in kept],
        "label": [row.label for row, _ in kept],
    }
    return pa.table(columns, schema=manifest_schema())


def write_manifest(table: "pa.Table", path: Path) -> None:
    """Write a manifest's table as Parquet (`manifest.parquet`); the same table gives the same bytes."""
    from cairn.store.tables import write_table

    write_table(table, path)


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest. ArtifactError, naming the file, where it is damaged or inconsistent."""
    import pyarrow.compute

    from cairn.store.tables import read_table

    path = Path(path)
    table = read_table(path, manifest_schema())
    manifest = manifest_of(table)
    # Over whole columns in Arrow: a million rows are checked in a fraction of a second.
    pc: Any = pyarrow.compute  # whose functions are made at run time
    ids = table.column("image_id").combine_chunks()
    if pc.count_distinct(ids).as_py() != len(ids):
        raise ArtifactError(f"{path}: an image id occurs twice; rebuild the manifest")
    proper = pc.match_substring_regex(table.column("sha256"), "^[0-9a-f]{64}$")
    if not pc.all(proper, min_count=0).as_py():
        bad = manifest.sha256[pc.index(proper, False).as_py()]
        raise ArtifactError(f"{path}: {bad!r} is not a SHA-256 in hexadecimal")
    for name, least in (("size", 1), ("offset", -1), ("width", 1), ("height", 1)):
        values = getattr(manifest, name)
        if len(values) and values.min() < least:
            raise ArtifactError(f"{path}: column {name} holds {values.min()}; at least {least} is expected")
    groups = np.where(manifest.gallery, 0, np.where(manifest.query, 1, np.where(manifest.train, 2, 3)))
    if (groups == 3).any():
        image = manifest.image_id[int(np.flatnonzero(groups == 3)[0])]
        raise ArtifactError(f"{path}: image {image} is neither gallery, query nor training image")
    falling = pc.less(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False).astype(bool)
    if ((np.diff(groups) < 0) | ((np.diff(groups) == 0) & falling)).any():
        raise ArtifactError(f"{path}: rows are out of order; rebuild the manifest")
    return manifest


def manifest_of(table: "pa.Table") -> Manifest:
    """A table with the manifest's columns as a Manifest, unchecked."""
    columns = {name: table.column(name) for name in manifest_schema().names}
    arrays = ("offset", "size", "width", "height", "gallery", "query", "train")
    values = {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
    # A million rows name a handful of archives: each name is one string in memory.
    names: dict[str, str] = {}
    archives = [names.setdefault(name, name) for name in values.pop("archive").tolist()]
    return Manifest(
        archive=archives,
        **{name: value if name in arrays else value.tolist() for name, value in values.items()},
    )


def manifest_schema() -> "pa.Schema":
    """Columns of manifest.parquet; training.parquet has the same."""
    import pyarrow as pa

    text, flag = pa.string(), pa.bool_()
    kinds = {
        "image_id": text,
        "archive": text,
        "member": text,
        "offset": pa.int64(),
        "size": pa.int64(),
        "width": pa.int32(),
        "height": pa.int32(),
        "sha256": text,
        "gallery": flag,
        "query": flag,
        "train": flag,
        "label": text,
    }
    return pa.schema([pa.field(name, kind, nullable=name == "label") for name, kind in kinds.items()])


class ImageSource:
    """Reads the images of a manifest: `root` is what its archives' paths are relative to.

    Can be pickled for worker processes and used by several threads.
    """

    def __init__(self, manifest: Manifest, root: Path):
        self.manifest = manifest
        self.root = Path(root)
        self._reader = ArchiveReader(root)

    def read(self, row: int) -> bytes:
        """The file of the image in `row`, which is exactly the one the manifest recorded.

        UnrecordedImageError, naming image and archive, where it is gone, cut short, or has another SHA-256.
        """
        manifest = self.manifest
        image, archive, member = manifest.image_id[row], manifest.archive[row], manifest.member[row]
        try:
            data = self._reader.read(archive, member, int(manifest.offset[row]), int(manifest.size[row]))
        except CairnError as error:
            raise UnrecordedImageError(f"image {image}: {error}") from None
        if hashlib.sha256(data).hexdigest() != manifest.sha256[row]:
            raise UnrecordedImageError(
                f"image {image}: {member} in {archive} is not the file that the manifest recorded "
                "(its SHA-256 differs)"
            )
        return data


_reader: ArchiveReader | None = None


def _start(root: Path) -> None:
    global _reader
    _reader = ArchiveReader(root)


def _examine(entry: Entry) -> tuple[str, int, int] | str:
    from cairn.images.decode import check_decodable

    assert _reader is not None
    try:
        data = _reader.read(entry.archive, entry.member, entry.offset, entry.size)
        header = check_decodable(data, f"{entry.image_id} in {entry.archive}")
    except CairnError as error:
        return str(error)
    return hashlib.sha256(data).hexdigest(), header.width, header.height


def _merged(entries: Iterable[Entry]) -> Sequence[Entry]:
    merged: dict[str, Entry] = {}
    for entry in entries:
        before = merged.get(entry.image_id)
        if before is None:
            merged[entry.image_id] = entry
            continue
        if (before.archive, before.member) != (entry.archive, entry.member):
            raise InputError(
                f"image {entry.image_id} is both {before.member} in {before.archive} and {entry.member} in "
                f"{entry.archive}; image ids must be unique"
            )
        if None not in (before.label, entry.label) and before.label != entry.label:
            raise InputError(f"image {entry.image_id} has two labels: {before.label} and {entry.label}")
        merged[entry.image_id] = replace(
            before,
            gallery=before.gallery or entry.gallery,
            query=before.query or entry.query,
            train=before.train or entry.train,
            label=before.label if before.label is not None else entry.label,
        )
    for entry in merged.values():
        if not (entry.gallery or entry.query or entry.train):
            raise InputError(f"image {entry.image_id} is neither gallery, query nor training image")
        if not entry.image_id:
            raise InputError(f"{entry.member} in {entry.archive} has an empty image id")
    return list(merged.values())


def _order(entry: Entry) -> tuple[int, str]:
    return (0 if entry.gallery else 1 if entry.query else 2), entry.image_id
