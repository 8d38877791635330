"""Gzip tars made fit for reading in place: a seek index beside them, or one streaming repack to a plain tar."""

import errno
import gzip
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from cairn.errors import SourceError
from cairn.files import atomic
from cairn.images.archives import INDEX_SUFFIX, check_inflation, open_gzip
from cairn.progress import track_bytes
from cairn.store.tables import first_line

BLOCK = 1 << 20


def write_gzip_index(path: Path, spacing: int = 1 << 22) -> Path:
    """Write the seek index of a gzip tar beside it and return its path; `spacing` in uncompressed bytes.

    With it a member is reached by inflating at most `spacing` bytes; without it everything before it. The file is
    inflated once for it, with progress on standard error. SourceError for a damaged file and for one that inflates far
    more than images do (`archives.check_inflation`): a bomb would keep this busy for ever.
    """
    import indexed_gzip

    path = Path(path)
    index = path.with_name(path.name + INDEX_SUFFIX)
    try:
        with atomic(index) as temporary, open_gzip(path, spacing, keep_open=True) as stream:
            crc = size = 0
            # Reading on is what builds the index.
            for block in _inflated(
                path, stream, lambda: os.lseek(stream.fileno(), 0, os.SEEK_CUR), "indexing"
            ):
                crc, size = zlib.crc32(block, crc), size + len(block)
            _check_whole(path, crc, size)
            stream.export_index(str(temporary))
    except (OSError, EOFError, zlib.error, ValueError, indexed_gzip.ZranError) as error:
        raise SourceError(f"{path}: not a readable gzip file ({first_line(error)})") from None
    return index


def repack(path: Path, target: Path) -> tuple[int, str]:
    """Inflate a gzip tar into the plain tar `target`, which appears when it is whole: its size and SHA-256.

    Streamed: nothing is unpacked, a block is all that is in memory, and gzip's own checksum is checked. SourceError
    for a damaged file, for one that inflates far more than images do, and where the disk is too small.
    """
    path, target = Path(path), Path(target)
    digest = hashlib.sha256()
    try:
        with (
            atomic(target) as temporary,
            path.open("rb") as raw,
            gzip.GzipFile(fileobj=raw) as stream,
            temporary.open("wb") as output,
        ):
            for block in _inflated(path, stream, raw.tell, "repacking"):
                _write(output, block, target)
                digest.update(block)
            size = output.tell()
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: not a readable gzip file ({first_line(error)})") from None
    return size, digest.hexdigest()


def _inflated(path: Path, stream: Any, position: Callable[[], int], doing: str) -> Iterator[bytes]:
    """The inflated blocks of `stream`, while a bar follows the `position` in the file; SourceError for a bomb."""
    total = path.stat().st_size
    inflated = 0
    for block in track_bytes(iter(lambda: stream.read(BLOCK), b""), f"{doing} {path.name}", total, position):
        inflated += len(block)
        check_inflation(inflated, total, path)
        yield block


def _check_whole(path: Path, crc: int, size: int) -> None:
    """Compare what was inflated with the trailer: indexed_gzip takes a file that is cut short for a whole one.

    A file of several gzip members has a trailer of its last one alone; it is read once more, by the standard library.
    """
    with path.open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        if struct.unpack("<II", stream.read(8)) == (crc, size & 0xFFFFFFFF):
            return
    with gzip.open(path) as stream:
        while stream.read(BLOCK):
            pass


def _write(output: IO[bytes], block: bytes, target: Path) -> None:
    try:
        output.write(block)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SourceError(f"{target}: the disk is full; free some space and run again") from None
        raise SourceError(f"{target}: cannot be written ({error.strerror})") from None
