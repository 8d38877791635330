"""One Parquet file of descriptors: its footer is checked when it is opened, its values are mapped when they are read.

No file stays open between two reads: ten thousand shards are more than a process may hold open. A mapping ends with
the last view of it, which also drops its pages behind a reader that goes through a whole store.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ArtifactError
from cairn.store.footer import codecs_are_known
from cairn.store.tables import first_line

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "descriptor"
LAYOUT = b"cairn.layout"


class DescriptorFile:
    """`group_rows` int per row group, `dim`, `dtype` (float16 or float32), `metadata` of the file.

    `names` are its ids, as an Arrow array of text, unless it was opened without. ArtifactError, naming the file,
    where it cannot be read.
    """

    def __init__(self, path: Path, id_column: str, *, with_names: bool = True):
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        self.names: Any = None
        try:
            self._stamp = _stamp(path)
            with pq.ParquetFile(path) as parquet:
                self._footer = parquet.metadata
                schema = parquet.schema_arrow
                columns = schema.names
                if id_column not in columns or COLUMN not in columns:
                    raise ArtifactError(
                        f"{path}: columns {', '.join(columns)}; expected {id_column} and {COLUMN}"
                    )
                if with_names:
                    names = parquet.read(columns=[id_column]).column(0)
                    names.validate(full=True)
                    self.names = names.cast(pa.large_string())
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise ArtifactError(f"{path}: not a readable Parquet file ({first_line(error)})") from None
        if with_names and self.names.null_count:
            raise ArtifactError(
                f"{path}: column {id_column} has {self.names.null_count} nulls; none are allowed"
            )
        kind = schema.field(COLUMN).type
        self.dtype = _dtype(kind, path)
        groups = range(self._footer.num_row_groups)
        self.group_rows = [self._footer.row_group(group).num_rows for group in groups]
        if with_names and len(self) != len(self.names):
            raise ArtifactError(f"{path}: {len(self.names)} ids for {len(self)} rows")
        raw_metadata = self._footer.metadata or {}
        self._ours = raw_metadata.get(LAYOUT) == b"1"
        self.metadata = {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in raw_metadata.items()
            if key not in (LAYOUT, b"ARROW:schema")
        }
        self.dim = kind.list_size if pa.types.is_fixed_size_list(kind) else self._first_length()
        self._places = self._mappable_places()
        del self._footer  # ten thousand of them are a gigabyte

    def __len__(self) -> int:
        return sum(self.group_rows)

    @property
    def mappable(self) -> bool:
        """Whether every row group is mapped; otherwise all are decoded by pyarrow."""
        return self._places is not None

    def open(self) -> "Reading":
        """What gives its row groups. ArtifactError where the file is no longer the one that was opened."""
        try:
            if _stamp(self.path) != self._stamp:
                raise ArtifactError(f"{self.path}: changed while it was being read; run again")
            return Reading(self, self._map() if self._places else None)
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{self.path}: cannot be read ({first_line(error)})") from None

    def _map(self) -> np.ndarray:
        with self.path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_WILLNEED"):
            mapped.madvise(mmap.MADV_WILLNEED)  # all of it will be read, so the disk may start now
        return np.frombuffer(mapped, np.uint8)

    def mapped_view(self, raw: np.ndarray, group: int) -> np.ndarray:
        """A row group as a read-only view [rows, dim] of `raw`, the mapped file."""
        assert self._places is not None
        start, stop = self._places[group]
        return np.frombuffer(raw[start:stop], self.dtype).reshape(self.group_rows[group], self.dim)

    def decoded(self, group: int) -> np.ndarray:
        """A row group decoded by pyarrow, for files that cannot be mapped."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as parquet:
                column = parquet.read_row_group(group, columns=[COLUMN]).column(0).combine_chunks()
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

    def _mappable_places(self) -> list[tuple[int, int]] | None:
        """First and last byte of each row group's values, or None where one cannot be mapped.

        Only for files of `write_shard`: that all lists have one length cannot be seen from counts alone.
        """
        from cairn.store.pages import mapped_range

        if not self._ours or self.dim < 1 or self.dtype not in (np.float16, np.float32):
            return None
        paths = [self._footer.schema.column(n).path for n in range(self._footer.num_columns)]
        if f"{COLUMN}.list.element" not in paths or not self.group_rows:
            return None
        column = paths.index(f"{COLUMN}.list.element")
        leaf = self._footer.schema.column(column)
        # One repetition and one definition level: the list is there and so is every element.
        if (leaf.max_repetition_level, leaf.max_definition_level) != (1, 1):
            return None
        stored = (leaf.physical_type, leaf.length if self.dtype == np.float16 else 0)
        if stored not in (("FIXED_LEN_BYTE_ARRAY", 2), ("FLOAT", 0)):
            return None
        places = []
        with self.path.open("rb") as stream:
            if not codecs_are_known(stream, self._stamp[0]):
                return None
            for group in range(len(self.group_rows)):
                place = mapped_range(
                    stream, self._stamp[0], self._footer, group, column, self.dtype.itemsize, self.dim
                )
                if place is None:
                    return None
                places.append(place)
        return places

    def _first_length(self) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        filled = next((group for group, rows in enumerate(self.group_rows) if rows), None)
        if filled is None:
            return 0
        try:
            with pq.ParquetFile(self.path) as parquet:
                column = parquet.read_row_group(filled, columns=[COLUMN]).column(0)
            return len(column[0].as_py() or ())
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise ArtifactError(f"{self.path}: cannot be read ({first_line(error)})") from None


class Reading:
    """A file while it is read; views keep the mapping alive."""

    def __init__(self, file: DescriptorFile, raw: np.ndarray | None) -> None:
        self._file, self._raw = file, raw

    def group(self, number: int) -> np.ndarray:
        """One row group, read-only [rows, dim]."""
        if self._raw is None:
            return self._file.decoded(number)
        return self._file.mapped_view(self._raw, number)


def blocks(files: "list[DescriptorFile]") -> "Iterator[tuple[DescriptorFile, int, np.ndarray]]":
    """Every row group of the files in order: the file, the group's number, its rows.

    The next file is mapped before the last block of this one is given out, so that the disk reads ahead.
    """
    ahead = files[0].open() if files else None
    for number, file in enumerate(files):
        reading = ahead or file.open()
        ahead = files[number + 1].open() if number + 1 < len(files) else None
        for group in range(len(file.group_rows)):
            yield file, group, reading.group(group)


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _dtype(kind: "pa.DataType", path: Path) -> np.dtype:
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = kind.value_type  # type: ignore[attr-defined]
        if pa.types.is_float16(element):
            return np.dtype(np.float16)
        if pa.types.is_floating(element):
            return np.dtype(np.float32)
    raise ArtifactError(f"{path}: column {COLUMN} has type {kind}; expected a list of floating-point numbers")
