"""The codecs that a Parquet footer names, read without Arrow: asked for one that it does not know, Arrow aborts.

`ColumnChunkMetaData.compression` of pyarrow throws a C++ exception that Python never sees. Formats: Apache Parquet,
`parquet.thrift`; Thrift's compact protocol.
"""

import struct
from typing import Any, BinaryIO

from cairn.store.thrift import signed, varint

KNOWN_CODECS = range(8)
"""UNCOMPRESSED to LZ4_RAW."""
_ROW_GROUPS, _COLUMNS, _META_DATA, _CODEC = 4, 1, 3, 4
_DEEPEST = 16


def codecs_are_known(stream: BinaryIO, size: int) -> bool:
    """Whether every column chunk of an (unencrypted) file of `size` bytes names a codec of the format."""
    try:
        stream.seek(size - 8)
        (length,) = struct.unpack("<I", stream.read(4))
        stream.seek(size - 8 - length)
        footer, _ = _value(stream.read(length), 0, 12, 0)
        return all(
            column[_META_DATA][_CODEC] in KNOWN_CODECS
            for group in footer[_ROW_GROUPS]
            for column in group[_COLUMNS]
        )
    except (IndexError, KeyError, TypeError, ValueError, OSError, struct.error):
        return False


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """A value of a compact type, and the position behind it. IndexError or ValueError where there is none."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if kind in (1, 2):  # a field that is true or false; its type says which
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return signed(data, at)
    if kind == 7:
        return data[at : at + 8], at + 8
    if kind == 8:
        length, at = varint(data, at)
        return data[at : at + length], at + length
    if kind in (9, 10):
        head, at = data[at], at + 1
        count = head >> 4
        if count == 15:
            count, at = varint(data, at)
        items = []
        for _ in range(count):
            # True and false take a byte in a list.
            item, at = _value(data, at, 3 if head & 15 in (1, 2) else head & 15, depth + 1)
            items.append(item)
            if at > len(data):
                raise ValueError("a list is longer than the footer")
        return items, at
    if kind != 12:
        raise ValueError("a type that no footer holds")
    fields: dict[int, Any] = {}
    number = 0
    while data[at]:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = signed(data, at)
        fields[number], at = _value(data, at, head & 15, depth + 1)
    return fields, at + 1
