"""Where a column of vectors lies in a Parquet file, if it lies there as one plain array per row group.

Ordinary decoding of list<float16> reaches a quarter of the speed of `numpy.memmap`. A column chunk that is
one uncompressed PLAIN v1 data page ends with its values as they are in memory, so they can be mapped. The
layout is checked, never assumed: metadata and page header must account for every byte of the chunk.
Formats: Apache Parquet, `parquet.thrift` and Encodings.md; page headers are in Thrift's compact protocol.
"""

import struct
from typing import TYPE_CHECKING, BinaryIO

from cairn.store.thrift import signed

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_DATA_PAGE, _PLAIN, _RLE = 0, 0, 3
_I32, _STRUCT = 5, 12


def mapped_range(
    stream: BinaryIO,
    file_size: int,
    metadata: "pq.FileMetaData",
    group: int,
    column: int,
    itemsize: int,
    dim: int,
) -> tuple[int, int] | None:
    """First byte of a row group's values in the file, and the byte behind them, or None if not mappable.

    In between lie rows × dim × itemsize bytes, little-endian numbers in row order.
    """
    rows = metadata.row_group(group).num_rows
    chunk = metadata.row_group(group).column(column)
    values = rows * dim
    start, length = chunk.data_page_offset, chunk.total_compressed_size
    plain = (
        chunk.compression == "UNCOMPRESSED"
        and not chunk.has_dictionary_page
        and chunk.dictionary_page_offset in (None, 0)
        and set(chunk.encodings) <= {"PLAIN", "RLE", "BIT_PACKED"}
        and chunk.num_values == values
        and length == chunk.total_uncompressed_size
        and 0 <= start <= start + length <= file_size
    )
    if not plain:
        return None
    page = _page_header(_read(stream, start, min(length, 1024)))
    if page is None:
        return None
    header, size, counted = page
    if header + size != length or counted != values:
        return None  # more than one page in this chunk
    body = start + header
    end = body + size
    # Before the values: repetition levels, then definition levels, each behind a length of four bytes.
    for _ in range(2):
        if body + 4 > end:
            return None
        body += 4 + struct.unpack("<I", _read(stream, body, 4))[0]
    if end - body != values * itemsize:
        return None
    return body, end


def _read(stream: BinaryIO, start: int, length: int) -> bytes:
    stream.seek(start)
    return stream.read(length)


def _page_header(data: bytes) -> tuple[int, int, int] | None:
    """Length of the header, size of the page, and its number of values; None unless a plain v1 data page."""
    try:
        fields, position = _read_struct(data, 0)
    except (IndexError, ValueError):
        return None
    page = fields.get(5)
    if not isinstance(page, dict) or fields.get(1) != _DATA_PAGE or fields.get(2) != fields.get(3):
        return None
    if page.get(2) != _PLAIN or page.get(3) != _RLE or page.get(4) != _RLE:
        return None
    size, values = fields.get(3), page.get(1)
    if not isinstance(size, int) or not isinstance(values, int):
        return None
    return position, size, values


def _read_struct(data: bytes, position: int) -> tuple[dict[int, object], int]:
    """Fields by number of a Thrift compact struct that holds 32-bit integers and structs of them."""
    fields: dict[int, object] = {}
    number = 0
    while True:
        head = data[position]
        position += 1
        if head == 0:
            return fields, position
        if not head >> 4:
            raise ValueError("a field without a difference to the last")
        number += head >> 4
        if head & 15 == _I32:
            fields[number], position = signed(data, position)
        elif head & 15 == _STRUCT:
            fields[number], position = _read_struct(data, position)
        else:
            # Statistics (which our writer leaves out) hold other types; such a file takes the slow path.
            raise ValueError("a field of another type")
