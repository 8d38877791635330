"""Parquet tables between steps: written with the same bytes each time, read with every column checked."""

from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import ArtifactError
from cairn.files import atomic

if TYPE_CHECKING:
    import pyarrow as pa


def write_table(table: "pa.Table", path: Path) -> None:
    """Write `table` as zstd-compressed Parquet with page checksums: the same table gives the same bytes."""
    import pyarrow.parquet as pq

    with atomic(path) as temporary:
        # One row group per million rows, whatever chunks the table was put together from.
        pq.write_table(
            table.combine_chunks(),
            temporary,
            compression="zstd",
            row_group_size=1_000_000,
            write_page_checksum=True,
        )


def read_table(path: Path, schema: "pa.Schema", *, extra_columns: bool = False) -> "pa.Table":
    """Read a Parquet table and bring it to `schema`, in the schema's column order.

    With `extra_columns` the columns that `schema` does not name follow it as they are; without, they are
    dropped. Metadata of the file is kept. Raises ArtifactError, naming the file, where it is missing, not
    Parquet, damaged, lacks a column, has one of another type, or a null where the schema allows none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run the step that writes it")
    try:
        table = pq.ParquetFile(path, memory_map=False, page_checksum_verification=True).read()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        raise ArtifactError(f"{path}: not a readable Parquet file ({first_line(error)})") from None
    names = table.column_names
    if len(set(names)) != len(names):
        raise ArtifactError(f"{path}: a column name occurs twice (columns: {', '.join(names)})")
    if missing := [name for name in schema.names if name not in names]:
        raise ArtifactError(f"{path}: no column {', '.join(missing)} (columns: {', '.join(names) or 'none'})")
    columns, fields = [], []
    for field in schema:
        column = table.column(field.name)
        try:
            column = column.cast(field.type)
        except (pa.ArrowException, ValueError):
            raise ArtifactError(
                f"{path}: column {field.name} has type {column.type}; expected {field.type}"
            ) from None
        if not field.nullable and column.null_count:
            raise ArtifactError(
                f"{path}: column {field.name} has {column.null_count} nulls; none are allowed"
            )
        columns.append(column)
        fields.append(field)
    if extra_columns:
        for name in names:
            if name not in schema.names:
                columns.append(table.column(name))
                fields.append(table.schema.field(name))
    metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != b"ARROW:schema"}
    return pa.table(columns, schema=pa.schema(fields, metadata=metadata or None))


def first_line(error: BaseException) -> str:
    """The first line of an error's text, for a message of one line."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
