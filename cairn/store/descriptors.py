"""Global descriptors in Parquet: ordinary files for pyarrow and DuckDB, mapped at memory speed by Cairn.

A directory holds shards `0000.parquet`, `0001.parquet`, … with columns `image_id` and `descriptor`, and
`queries.parquet` with `query_id` and `descriptor`. In SQL: `read_parquet('descriptors/[0-9]*.parquet')`,
where `descriptor` is FLOAT[] (`descriptor::FLOAT[512]` for array functions).
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ArtifactError
from cairn.files import atomic
from cairn.store.tables import first_line

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_GROUP = 8_192
QUERIES_FILE = "queries.parquet"
COLUMN = "descriptor"

OWN_PREFIX = "shard."
"""Metadata keys with this prefix may differ from shard to shard; all others must be equal in all of them."""

_LAYOUT = b"cairn.layout"


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
    kept = {_LAYOUT: b"1"} | {key.encode(): value.encode() for key, value in sorted(metadata.items())}
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
    whose keys start with `shard.`; `metadata` the rest, which is the same in all files.
    """

    ids: list[str]
    dim: int
    dtype: np.dtype
    metadata: dict[str, str]
    shard_metadata: list[dict[str, str]]
    _files: "list[_File]"

    def __len__(self) -> int:
        return len(self.ids)

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
        try:
            return np.fromiter((self.row_of[name] for name in ids), np.int64, len(ids))
        except KeyError as error:
            folder = self._files[0].path.parent
            raise ArtifactError(f"{folder}: no descriptor for {error.args[0]}; extract again") from None

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the matrix in row order, [rows, dim] per row group: read-only views of the mapped files."""
        for file in self._files:
            for group in range(file.groups):
                yield file.block(group)

    def take(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The descriptors of some rows, in the order given, copied: [len(rows), dim] of the stored dtype."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows must be between 0 and {len(self) - 1}")
        taken = np.empty((len(rows), self.dim), self.dtype)
        order = np.argsort(rows, kind="stable")
        ordered, start = rows[order], 0
        for file in self._files:
            for group, count in enumerate(file.group_rows):
                first, last = np.searchsorted(ordered, (start, start + count))
                if first < last:
                    taken[order[first:last]] = file.block(group)[ordered[first:last] - start]
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


class _File:
    """One Parquet file of descriptors: its footer is checked and its values are mapped when opened."""

    def __init__(self, path: Path, id_column: str):
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        try:
            self._parquet: Any = pq.ParquetFile(path)
            self._footer = self._parquet.metadata
            schema = self._parquet.schema_arrow
            names = schema.names
            if id_column not in names or COLUMN not in names:
                raise ArtifactError(f"{path}: columns {', '.join(names)}; expected {id_column} and {COLUMN}")
            ids = self._parquet.read(columns=[id_column]).column(0)
            ids.validate(full=True)
            self.ids: list[str] = ids.cast(pa.string()).to_pylist()
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise ArtifactError(f"{path}: not a readable Parquet file ({first_line(error)})") from None
        if ids.null_count:
            raise ArtifactError(f"{path}: column {id_column} has {ids.null_count} nulls; none are allowed")
        kind = schema.field(COLUMN).type
        self.dtype = _dtype(kind, path)
        self.groups: int = self._footer.num_row_groups
        self.group_rows = [self._footer.row_group(group).num_rows for group in range(self.groups)]
        if sum(self.group_rows) != len(self.ids):
            raise ArtifactError(f"{path}: {len(self.ids)} ids for {sum(self.group_rows)} rows")
        raw_metadata = self._footer.metadata or {}
        self.ours = raw_metadata.get(_LAYOUT) == b"1"
        self.metadata = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in raw_metadata.items()
            if key not in (_LAYOUT, b"ARROW:schema")
        }
        self.dim = kind.list_size if pa.types.is_fixed_size_list(kind) else self._first_length()
        self._views = self._map()

    @property
    def mappable(self) -> bool:
        return self._views is not None

    def block(self, group: int) -> np.ndarray:
        if self._views is not None:
            return self._views[group]
        return self._decoded(group)

    def _map(self) -> list[np.ndarray] | None:
        """A view per row group, or None where a group cannot be mapped.

        Only for files of `write_shard`: that all lists have one length cannot be seen from counts alone.
        """
        from cairn.store.pages import mapped_values

        if not self.ours or self.dim < 1 or self.dtype not in (np.float16, np.float32):
            return None
        paths = [self._footer.schema.column(n).path for n in range(self._footer.num_columns)]
        if f"{COLUMN}.list.element" not in paths or not self.groups:
            return None
        column = paths.index(f"{COLUMN}.list.element")
        leaf = self._footer.schema.column(column)
        # One repetition and one definition level: the list is there and so is every element.
        if (leaf.max_repetition_level, leaf.max_definition_level) != (1, 1):
            return None
        stored = (leaf.physical_type, leaf.length if self.dtype == np.float16 else 0)
        if stored not in (("FIXED_LEN_BYTE_ARRAY", 2), ("FLOAT", 0)):
            return None
        raw = np.memmap(self.path, np.uint8, mode="r")
        views = []
        for group, rows in enumerate(self.group_rows):
            values = mapped_values(raw, self._footer, group, column, self.dtype.itemsize, self.dim)
            if values is None:
                return None
            views.append(np.frombuffer(values, self.dtype).reshape(rows, self.dim))
        return views

    def _decoded(self, group: int) -> np.ndarray:
        import pyarrow as pa

        try:
            column = self._parquet.read_row_group(group, columns=[COLUMN]).column(0).combine_chunks()
            column.validate(full=True)
            if column.null_count:
                raise ArtifactError(f"{self.path}: column {COLUMN} has nulls; none are allowed")
            values = column.flatten()
            if values.null_count:
                raise ArtifactError(f"{self.path}: a descriptor holds a null; none are allowed")
            if not pa.types.is_fixed_size_list(column.type):
                lengths = np.asarray(column.value_lengths())
                if len(lengths) and not (lengths == self.dim).all():
                    odd = int(lengths[lengths != self.dim][0])
                    raise ArtifactError(f"{self.path}: descriptors have {self.dim} and {odd} values")
            array = values.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
            return array.reshape(self.group_rows[group], self.dim)
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise ArtifactError(
                f"{self.path}: row group {group} cannot be read ({first_line(error)})"
            ) from None

    def _first_length(self) -> int:
        import pyarrow as pa

        filled = next((group for group, rows in enumerate(self.group_rows) if rows), None)
        if filled is None:
            return 0
        try:
            column = self._parquet.read_row_group(filled, columns=[COLUMN]).column(0)
            return len(column[0].as_py() or ())
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise ArtifactError(f"{self.path}: cannot be read ({first_line(error)})") from None


def _dtype(kind: "pa.DataType", path: Path) -> np.dtype:
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = kind.value_type  # type: ignore[attr-defined]
        if pa.types.is_float16(element):
            return np.dtype(np.float16)
        if pa.types.is_floating(element):
            return np.dtype(np.float32)
    raise ArtifactError(f"{path}: column {COLUMN} has type {kind}; expected a list of floating-point numbers")


def _open(paths: list[Path], id_column: str) -> DescriptorStore:
    files = [_File(path, id_column) for path in paths]
    # An empty shard of a foreign writer may not know its dimension.
    reference = next((file for file in files if file.ids), files[0])
    common = _split(reference.metadata)[0]
    ids: list[str] = []
    for file in files:
        if file.ids and file.dim != reference.dim:
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
        ids.extend(file.ids)
    if reference.dim < 1:
        raise ArtifactError(f"{reference.path}: descriptors have no values")
    if len(set(ids)) != len(ids):
        seen: set[str] = set()
        repeated = next(name for name in ids if name in seen or seen.add(name))
        raise ArtifactError(f"{paths[0].parent}: {repeated} has two descriptors")
    return DescriptorStore(
        ids, reference.dim, reference.dtype, common, [_split(file.metadata)[1] for file in files], files
    )


def _split(metadata: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    common = {key: value for key, value in metadata.items() if not key.startswith(OWN_PREFIX)}
    own = {key: value for key, value in metadata.items() if key.startswith(OWN_PREFIX)}
    return common, own
