"""Global descriptors in Parquet: ordinary files for pyarrow and DuckDB, mapped at memory speed by Cairn.

A directory holds shards `0000.parquet`, `0001.parquet`, … with columns `image_id` and `descriptor`, and
`queries.parquet` with `query_id` and `descriptor`. In SQL: `read_parquet('descriptors/[0-9]*.parquet')`,
where `descriptor` is FLOAT[] (`descriptor::FLOAT[512]` for array functions).
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cairn.errors import ArtifactError
from cairn.files import atomic
from cairn.store.descriptor_file import COLUMN, LAYOUT, DescriptorFile, blocks

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_GROUP = 8_192
QUERIES_FILE = "queries.parquet"

OWN_PREFIX = "shard."
"""Metadata keys with this prefix may differ from shard to shard; all others must be equal in all of them."""
MISSING = f"{OWN_PREFIX}missing"
"""Metadata of a shard: its images that could not be decoded, JSON of id → reason. Their descriptors are zero."""


def write_shard(
    path: Path,
    ids: Sequence[str],
    array: np.ndarray,
    metadata: Mapping[str, str],
    *,
    id_column: str = "image_id",
) -> None:
    """Write descriptors `array` (float16 or float32 [len(ids), dim]) as one Parquet file, deterministically.

    `metadata` says how they were made (model, revision, preprocessing, dtype, package versions) and is kept
    in the file. The layout: non-null list of non-null elements, uncompressed, PLAIN, no dictionary, no
    statistics, one v1 data page per row group of 8,192. ArtifactError, naming the image, for a value that is
    not finite, and for an id that occurs twice.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    array = np.ascontiguousarray(array)
    if array.ndim != 2 or len(array) != len(ids) or array.shape[1] < 1:
        raise ArtifactError(f"{path}: descriptors of shape {array.shape} do not fit {len(ids)} ids")
    if array.dtype not in (np.float16, np.float32):
        raise ArtifactError(f"{path}: descriptors are {array.dtype}; float16 or float32 is expected")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise ArtifactError(
            f"{path}: the descriptor of {ids[int(np.argmin(finite))]} holds a value that is not finite"
        )
    if len(set(ids)) != len(ids):
        raise ArtifactError(f"{path}: an id occurs twice")
    element = pa.float16() if array.dtype == np.float16 else pa.float32()
    kind = pa.list_(pa.field("element", element, nullable=False), array.shape[1])
    values = pa.Array.from_buffers(element, array.size, [None, pa.py_buffer(array)])
    kept = {LAYOUT: b"1"} | {key.encode(): value.encode() for key, value in sorted(metadata.items())}
    schema = pa.schema(
        [pa.field(id_column, pa.string(), nullable=False), pa.field(COLUMN, kind, nullable=False)],
        metadata=kept,
    )
    table = pa.table(
        [pa.array(ids, pa.string()), pa.FixedSizeListArray.from_arrays(values, type=kind)], schema=schema
    )
    with atomic(path) as temporary:
        pq.write_table(
            table,
            temporary,
            row_group_size=ROWS_PER_GROUP,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            data_page_size=1 << 30,
            data_page_version="1.0",
            column_encoding={id_column: "PLAIN", f"{COLUMN}.list.element": "PLAIN"},
        )


def open_shards(directory: Path) -> "DescriptorStore":
    """Open the image descriptors of a directory. ArtifactError, naming the file, where they do not fit."""
    directory = Path(directory)
    paths = sorted(directory.glob("[0-9]*.parquet"), key=lambda path: (len(path.stem), path.stem))
    if not paths:
        raise ArtifactError(
            f"{directory}: no descriptor shards (0000.parquet, …); run the step that writes them"
        )
    return _open(paths, "image_id")


def open_shard(path: Path, id_column: str = "image_id") -> "DescriptorStore":
    """Open one file of descriptors. ArtifactError, naming it, where it is none."""
    return _open([Path(path)], id_column)


def has_shards(directory: Path) -> bool:
    """Whether a directory holds image descriptors: a step that had nothing to do leaves none."""
    return any(Path(directory).glob("[0-9]*.parquet"))


def open_queries(directory: Path) -> "DescriptorStore":
    """Open the query descriptors of a directory; their ids are query ids."""
    path = Path(directory) / QUERIES_FILE
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run the step that writes it")
    return _open([path], "query_id")


@dataclass(frozen=True, eq=False)
class DescriptorStore:
    """Descriptors of one or more files as one matrix that is never loaded as a whole unless asked.

    Row i belongs to `ids[i]`. `dtype` is float16 or float32. `shard_metadata` has, per file, the metadata
    whose keys start with `shard.`; `metadata` the rest, which is the same in all files. Only one or two files
    are open at a time (and those of blocks that are kept), and nothing that was read stays in memory.
    ArtifactError where a file changes meanwhile.
    """

    dim: int
    dtype: np.dtype
    metadata: dict[str, str]
    shard_metadata: list[dict[str, str]]
    _names: "pa.ChunkedArray"
    _files: "list[DescriptorFile]"

    def __len__(self) -> int:
        return len(self._names)

    @functools.cached_property
    def ids(self) -> list[str]:
        """The ids in row order."""
        return self._names.to_pylist()

    @property
    def image_ids(self) -> list[str]:
        """The ids, under the name that image stores use."""
        return self.ids

    @functools.cached_property
    def row_of(self) -> dict[str, int]:
        """Row by id."""
        return {name: row for row, name in enumerate(self.ids)}

    def rows_of(self, ids: Sequence[str]) -> np.ndarray:
        """Rows (int64) of the given ids, in their order. ArtifactError naming the first that is missing."""
        if 2 * len(ids) < len(self) or len(ids) < 1000:
            found = np.fromiter((self.row_of.get(name, -1) for name in ids), np.int64, len(ids))
        else:  # most of many: Arrow looks them up without making Python texts of a million ids
            import pyarrow as pa
            import pyarrow.compute as pc

            wanted = pa.array(ids, pa.large_string())
            places = pc.index_in(wanted, value_set=self._names.combine_chunks())  # type: ignore[attr-defined]
            found = places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if (found < 0).any():
            missing = ids[int(np.argmax(found < 0))]
            folder = self._files[0].path.parent
            raise ArtifactError(f"{folder}: no descriptor for {missing}; extract again")
        return found

    @property
    def missing(self) -> dict[str, str]:
        """The images that could not be decoded, id → reason, sorted."""
        found: dict[str, str] = {}
        for metadata in self.shard_metadata:
            found.update(json.loads(metadata.get(MISSING, "{}")))
        return dict(sorted(found.items()))

    def missing_rows(self) -> np.ndarray:
        """Their rows, int64."""
        return self.rows_of(list(self.missing))

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the matrix in row order, [rows, dim] per row group: read-only views of the mapped files."""
        for _, _, block in blocks(self._files):
            yield block

    def part(self, start: int, stop: int) -> "StorePart":
        """Rows `start` to `stop` - 1, as something that another process can read."""
        pieces, first = [], 0
        for file in self._files:
            begin, end = max(start, first), min(stop, first + len(file))
            if begin < end:
                pieces.append((file.path.absolute(), begin - first, end - first))
            first += len(file)
        return StorePart(self.dim, tuple(pieces))

    def take(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The descriptors of some rows, in the order given, copied: [len(rows), dim] of the stored dtype."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows must be between 0 and {len(self) - 1}")
        taken = np.empty((len(rows), self.dim), self.dtype)
        order = np.argsort(rows, kind="stable")
        ordered, start = rows[order], 0
        for file in self._files:
            first, last = np.searchsorted(ordered, (start, start + len(file)))
            reading = file.open() if first < last else None
            for group, count in enumerate(file.group_rows):
                first, last = np.searchsorted(ordered, (start, start + count))
                if reading is not None and first < last:
                    taken[order[first:last]] = reading.group(group)[ordered[first:last] - start]
                start += count
        return taken

    def array(self) -> np.ndarray:
        """All descriptors, copied into memory: [len(self), dim] of the stored dtype."""
        whole = np.empty((len(self), self.dim), self.dtype)
        start = 0
        for block in self.blocks():
            whole[start : start + len(block)] = block
            start += len(block)
        return whole

    @property
    def mapped(self) -> bool:
        """Whether every block is mapped from its file; False where one is decoded by pyarrow."""
        return all(file.mappable for file in self._files)


@dataclass(frozen=True)
class StorePart:
    """Consecutive rows of a store by the files they lie in: small to send, opened where it is read."""

    dim: int
    pieces: tuple[tuple[Path, int, int], ...]
    """File, first row in it, and the row behind the last."""

    def __len__(self) -> int:
        return sum(stop - start for _, start, stop in self.pieces)

    def blocks(self) -> Iterator[np.ndarray]:
        """As `DescriptorStore.blocks`, cut where the part begins and ends."""
        files = [DescriptorFile(path, "image_id", with_names=False) for path, _, _ in self.pieces]
        wanted = {file.path: (start, stop) for file, (_, start, stop) in zip(files, self.pieces, strict=True)}
        place: dict[Path, int] = {}
        for file, _, block in blocks(files):
            first = place.get(file.path, 0)
            place[file.path] = first + len(block)
            start, stop = wanted[file.path]
            cut = block[max(start - first, 0) : max(stop - first, 0)]
            if len(cut):
                yield cut


def _open(paths: list[Path], id_column: str) -> DescriptorStore:
    import pyarrow as pa
    import pyarrow.compute as pc

    files = [DescriptorFile(path, id_column) for path in paths]
    # An empty shard of a foreign writer may not know its dimension.
    reference = next((file for file in files if len(file)), files[0])
    common = _split(reference.metadata)[0]
    for file in files:
        if len(file) and file.dim != reference.dim:
            raise ArtifactError(
                f"{file.path}: descriptors of {file.dim} values; {reference.path.name} has {reference.dim}"
            )
        if file.dtype != reference.dtype:
            raise ArtifactError(
                f"{file.path}: {file.dtype} values; {reference.path.name} has {reference.dtype}"
            )
        theirs = _split(file.metadata)[0]
        for key in sorted(common.keys() | theirs.keys()):
            if common.get(key) != theirs.get(key):
                raise ArtifactError(
                    f"{file.path}: metadata {key} is {theirs.get(key)!r}; in {reference.path.name} it is "
                    f"{common.get(key)!r}"
                )
    if reference.dim < 1:
        raise ArtifactError(f"{reference.path}: descriptors have no values")
    names = pa.chunked_array([chunk for file in files for chunk in file.names.chunks], pa.large_string())
    if pc.count_distinct(names).as_py() != len(names):  # type: ignore[attr-defined]
        seen: set[str] = set()
        repeated = next(name for name in names.to_pylist() if name in seen or seen.add(name))
        raise ArtifactError(f"{paths[0].parent}: {repeated} has two descriptors")
    for file in files:
        file.names = None
    own = [_split(file.metadata)[1] for file in files]
    return DescriptorStore(reference.dim, reference.dtype, common, own, names, files)


def _split(metadata: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    common = {key: value for key, value in metadata.items() if not key.startswith(OWN_PREFIX)}
    own = {key: value for key, value in metadata.items() if key.startswith(OWN_PREFIX)}
    return common, own
