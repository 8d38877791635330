"""Images where they lie: listing and reading members of folders, tar, gzip tar and zip files in place.

Nothing is ever unpacked. A member is found again by archive, name, offset and size: in a plain tar and for
stored zip members the offset is a position in the file, in a gzip tar a position in the uncompressed
stream, and -1 for a plain file in a folder and for a deflated zip member, which are found by name.
"""

import itertools
import os
import stat
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from cairn.errors import ImageError, InputError, SourceError
from cairn.images.names import one_line, shown
from cairn.store.tables import first_line

SUFFIXES = (".bmp", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""File name endings (in lower case) that make a member an image."""

MAX_BYTES = 1 << 28
"""Largest image file, 256 MiB: a member that claims more is an accident or a bomb."""

MAX_RATIO = 200
"""Largest ratio of uncompressed to compressed size of a zip member or gzip tar; image files hardly shrink at all."""

SLACK = 1 << 24
"""Bytes that a gzip tar may inflate to beyond MAX_RATIO."""

INDEX_SUFFIX = ".gzidx"
"""A gzip tar's seek index lies beside it, under its name with this ending."""

Kind = Literal["folder", "tar", "tar.gz", "zip"]


@dataclass(frozen=True)
class Member:
    """One image file inside a folder or an archive; `name` is its path there, `size` in bytes."""

    name: str
    offset: int
    size: int


def archive_kind(path: Path) -> Kind:
    """What `path` is, by its content and not its name. SourceError where it is none of the four."""
    path = Path(path)
    if path.is_dir():
        return "folder"
    if path.exists() and not path.is_file():  # opening a FIFO would wait for ever
        raise SourceError(f"{path}: neither a folder nor a file")
    try:
        with path.open("rb") as stream:
            head = stream.read(512)
    except FileNotFoundError:
        raise SourceError(f"{path}: no such folder or archive") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened ({error.strerror})") from None
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if head[:2] == b"\x1f\x8b":
        return "tar.gz"
    # Position 257 of a header block; an old (v7) tar has no magic, so its checksum decides.
    if head[257:262] == b"ustar" or _is_tar_header(head):
        return "tar"
    raise SourceError(f"{path}: neither a folder nor a tar, gzip tar or zip file")


def list_members(path: Path) -> list[Member]:
    """Every image in a folder or archive, sorted by name.

    Left out: what has no image's ending (SUFFIXES), hidden files and folders (a leading dot, among them the
    `._` files of macOS) and `__MACOSX`. SourceError, naming archive and member, for an absolute name, `..`,
    any link or device in an archive, a name that occurs twice, an encrypted member, a size out of bounds,
    overlapping zip members, and a damaged archive. InputError for anything in a folder, image or not, that
    DVC could not hash: a FIFO, socket or device, a link that leads nowhere, to a folder or out of this one, a
    name that is not UTF-8, a file that cannot be read, `.dvcignore` and `.dvc`.
    """
    path = Path(path)
    kind = archive_kind(path)
    if kind == "folder":
        members = _list_folder(path)
    elif kind == "zip":
        members = _list_zip(path)
    elif kind == "tar":
        members = _list_tar(path)
    else:
        members = _list_gzip_tar(path)
    names: set[str] = set()
    listed = []
    for member in members:
        image = image_id_of(member.name)  # `a.jpg` and `./a.jpg` are one
        if image in names:
            raise SourceError(f"{path}: member {member.name} occurs twice")
        names.add(image)
        listed.append(member)
    return sorted(listed, key=lambda member: member.name)


def check_inflation(inflated: int, compressed: int | None, path: Path) -> None:
    """SourceError where a file of `compressed` bytes (None: not compressed) gives `inflated` bytes that no images give.

    Image files hardly shrink: MAX_RATIO is far beyond any, and SLACK lets tiny archives be padded with zeros, as tar
    does.
    """
    if compressed is not None and inflated > MAX_RATIO * compressed + SLACK:
        raise SourceError(
            f"{path}: grows more than {MAX_RATIO} times when it is inflated; the archive is hostile"
        )


class ArchiveReader:
    """Reads members of archives below `root`; opens each archive once, and again after it was pickled.

    Safe to use from several threads at once.
    """

    def __init__(self, root: Path):
        self.root = Path(root)
        self._opened: dict[str, tuple[Kind, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "_opened": {}}

    def read(self, archive: str, member: str, offset: int, size: int) -> bytes:
        """The bytes of one member. ImageError, naming member and archive, where they are not all there."""
        kind, handle = self._open(archive)
        if not 0 <= size <= MAX_BYTES:
            raise ImageError(f"{member} in {archive}: size of {size} bytes is not between 0 and {MAX_BYTES}")
        try:
            if kind == "folder":
                data = _read_file(self.root / archive, member, size)
            elif offset < 0:
                with handle.open(member) as stream:
                    data = stream.read(size + 1)
            elif kind == "tar.gz":
                data = handle.pread(size, offset)
            else:
                # A stored zip member is read past zipfile: by offset, without its lock.
                stream = handle.fp if kind == "zip" else handle
                data = os.pread(stream.fileno(), size, offset)
        except SourceError:
            raise
        except FileNotFoundError:
            raise ImageError(f"{member} in {archive}: no such file") from None
        except KeyError:
            raise ImageError(f"{member} in {archive}: no such member") from None
        except Exception as error:  # zipfile, zlib and indexed_gzip have some twenty ways to say "damaged"
            raise ImageError(f"{member} in {archive}: cannot be read ({first_line(error)})") from None
        if len(data) != size:
            raise ImageError(f"{member} in {archive}: {len(data)} bytes found where {size} were expected")
        return data

    def _open(self, archive: str) -> tuple[Kind, Any]:
        if archive not in self._opened:
            path = self.root / archive
            kind = archive_kind(path)
            if kind == "folder":
                handle: Any = None
            elif kind == "zip":
                handle = _open_zip(path)
            elif kind == "tar.gz":
                handle = open_gzip(path)
            else:
                handle = path.open("rb")
            self._opened[archive] = (kind, handle)
        return self._opened[archive]


def check_name(name: str, archive: Path | str) -> str:
    """Return `name` if it is a plain relative path; SourceError for anything that could lead elsewhere."""
    if name.startswith("/") or "\\" in name or (len(name) > 1 and name[1] == ":" and name[0].isalpha()):
        raise SourceError(f"{archive}: member {shown(name)} has an absolute or foreign path")
    if ".." in name.split("/"):
        raise SourceError(f"{archive}: member {shown(name)} leads out of the archive")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise SourceError(f"{archive}: member {shown(name)} has control characters or is not UTF-8")
    return name


def image_id_of(name: str) -> str:
    """The image id a member's name gives: the name without a leading `./` and without doubled slashes."""
    return str(PurePosixPath(name))


def _wanted(name: str) -> bool:
    parts = image_id_of(name).split("/")
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
    return not hidden and PurePosixPath(name).suffix.lower() in SUFFIXES


def _list_folder(folder: Path) -> Iterator[Member]:
    """DVC hashes all that is in the folder, so what it cannot hash is refused whether or not it is an image."""
    inside = folder.resolve()
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise InputError(f"{one_line(place)}: cannot be listed ({error.strerror})") from None
        for entry in entries:
            path = place / entry.name
            size = _hashable(path, folder, inside)
            if size is None:
                waiting.append(path)
            elif _wanted(relative := path.relative_to(folder).as_posix()):
                try:
                    check_name(relative, folder)
                    yield Member(relative, -1, _checked_size(size, relative, folder))
                except SourceError as error:
                    raise InputError(one_line(error)) from None


def _hashable(path: Path, folder: Path, inside: Path) -> int | None:
    """Bytes of a file, None for a folder. InputError for anything that DVC hangs or fails on.

    Only `lstat` and `stat` are called: opening a FIFO would wait for ever.
    """

    def refused(what: str) -> InputError:
        name = one_line(path.relative_to(folder))
        short = name if len(name) <= 120 else name[:119] + "…"
        return InputError(f"{one_line(folder)}/{short}: {what}; remove it from the folder of images")

    if any(unicodedata.category(character) == "Cs" for character in path.name):
        raise refused("its name is not UTF-8")
    if path.name in (".dvc", ".dvcignore"):
        raise refused("DVC takes it for its own and cannot hash a folder that holds it")
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise refused("a folder may not be a symbolic link")
            if not path.resolve(strict=True).is_relative_to(inside):
                raise refused("a symbolic link that leaves the folder")
    except (OSError, RuntimeError):
        if path.is_symlink():
            raise refused("a symbolic link that leads nowhere") from None
        raise refused("it cannot be looked at") from None
    if stat.S_ISDIR(status.st_mode):
        if not os.access(path, os.R_OK | os.X_OK):
            raise refused("a folder that cannot be read (permission denied)")
        return None
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        raise refused(f"not a regular file but {kinds.get(stat.S_IFMT(status.st_mode), 'a device')}")
    if not os.access(path, os.R_OK):
        raise refused("cannot be read (permission denied)")
    return status.st_size


def _list_tar(path: Path) -> Iterator[Member]:
    end = path.stat().st_size
    with path.open("rb") as stream:
        for member in _tar_members(stream, path):
            if member.offset + member.size > end:
                raise SourceError(f"{path}: ends inside member {member.name}; the archive is truncated")
            yield member


def _list_gzip_tar(path: Path) -> Iterator[Member]:
    with open_gzip(path) as stream:
        yield from _tar_members(stream, path, path.stat().st_size)


class _ShortReads:
    """A stream that refuses large reads: while listing, tarfile reads headers only, unless one is a bomb."""

    def __init__(self, stream: IO[bytes], path: Path):
        self.seek, self.tell, self._stream, self._path = stream.seek, stream.tell, stream, path

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= 1 << 24:
            raise SourceError(
                f"{self._path}: a tar header claims {size} bytes; the archive is damaged or hostile"
            )
        return self._stream.read(size)


def tar_entries(tar: Any, path: Path) -> Iterator[Any]:
    """The members of an open tar, one after the other; SourceError where a header would lead back for ever."""
    before = -1
    while (entry := tar.next()) is not None:
        if entry.size < 0 or tar.offset <= before:
            raise SourceError(f"{path}: a tar header claims {entry.size} bytes; the archive is hostile")
        before = tar.offset
        tar.members.clear()  # tarfile keeps every member it has seen; a million of them are gigabytes
        yield entry


def _tar_members(stream: IO[bytes], path: Path, compressed: int | None = None) -> Iterator[Member]:
    """The images in a tar; `compressed`: bytes of the gzip file that it is inflated from."""
    import tarfile

    try:
        with tarfile.open(fileobj=_ShortReads(stream, path), mode="r:") as tar:  # type: ignore[arg-type]
            for entry in tar_entries(tar, path):
                name = check_name(entry.name, path)
                if entry.isdir():
                    continue
                if not entry.isreg():
                    raise SourceError(f"{path}: member {name} is a link or a device; only files are read")
                if not _wanted(name):
                    # The next header lies behind it: what is in between is inflated to get there.
                    check_inflation(entry.offset_data + entry.size, compressed, path)
                    continue
                if entry.issparse():
                    raise SourceError(
                        f"{path}: member {name} is a sparse file, which cannot be read in place"
                    )
                size = _checked_size(entry.size, name, path)
                check_inflation(entry.offset_data + size, compressed, path)
                yield Member(name, entry.offset_data, size)
            _check_end(stream, tar.offset, path)
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise SourceError(f"{path}: not a readable tar file ({first_line(error)})") from None


def _check_end(stream: IO[bytes], offset: int, path: Path) -> None:
    """SourceError where a tar stops at something else than a block of zeros or its end: tarfile then stops silently."""
    stream.seek(offset)
    block = stream.read(512)
    if block and (len(block) < 512 or any(block)):
        raise SourceError(
            f"{path}: damaged or truncated at byte {offset:,}: no tar header where one is expected"
        )


def _list_zip(path: Path) -> Iterator[Member]:
    import zipfile

    end = path.stat().st_size
    spans = []
    with _open_zip(path) as archive, path.open("rb") as stream:
        for entry in archive.infolist():
            name = check_name(entry.filename, path)
            if entry.is_dir():
                continue
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise SourceError(f"{path}: member {name} is a link or a device; only files are read")
            if not _wanted(name):
                continue
            if entry.flag_bits & 0x1:
                raise SourceError(f"{path}: member {name} is encrypted")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise SourceError(f"{path}: member {name} is neither stored nor deflated")
            size = _checked_size(entry.file_size, name, path)
            if size > MAX_RATIO * max(entry.compress_size, 64):
                raise SourceError(
                    f"{path}: member {name} would grow {size / max(entry.compress_size, 1):.0f} times"
                )
            stream.seek(min(max(entry.header_offset, 0), end))
            header = stream.read(30)
            if len(header) < 30 or header[:4] != b"PK\x03\x04":
                raise SourceError(f"{path}: member {name} has no local header; the archive is damaged")
            name_size, extra_size = struct.unpack("<HH", header[26:30])
            offset = entry.header_offset + 30 + name_size + extra_size
            if offset + entry.compress_size > end:
                raise SourceError(f"{path}: ends inside member {name}; the archive is truncated")
            spans.append((entry.header_offset, offset + entry.compress_size, name))
            stored = entry.compress_type == zipfile.ZIP_STORED
            if stored and entry.compress_size != entry.file_size:
                raise SourceError(
                    f"{path}: member {name} is stored but has two sizes; the archive is damaged"
                )
            yield Member(name, offset if stored else -1, size)
    _refuse_overlaps(spans, path)


def _refuse_overlaps(spans: Iterable[tuple[int, int, str]], path: Path) -> None:
    # Members that share bytes are how a small zip file unpacks to petabytes (Fifield, WOOT 2019).
    ordered = sorted(spans)
    for (_, end, first), (start, _, second) in itertools.pairwise(ordered):
        if start < end:
            raise SourceError(f"{path}: members {first} and {second} overlap; the archive is hostile")


def _open_zip(path: Path) -> Any:
    import zipfile

    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, struct.error) as error:
        raise SourceError(f"{path}: not a readable zip file ({first_line(error)})") from None


def open_gzip(path: Path, spacing: int = 1 << 22, *, keep_open: bool = False) -> Any:
    """A seekable stream of a gzip file's inflated bytes, by the index beside it where there is one.

    `keep_open`: hold the file open, so that its position can be asked for; else every read opens it anew.
    """
    import indexed_gzip

    index = path.with_name(path.name + INDEX_SUFFIX)
    try:
        if index.is_file() and not keep_open:
            return indexed_gzip.IndexedGzipFile(str(path), index_file=str(index))
        return indexed_gzip.IndexedGzipFile(str(path), spacing=spacing, drop_handles=not keep_open)
    except (OSError, ValueError, indexed_gzip.ZranError) as error:
        raise SourceError(f"{path}: not a readable gzip file ({first_line(error)})") from None


def _read_file(folder: Path, member: str, size: int) -> bytes:
    check_name(member, folder)
    with (folder / member).open("rb") as stream:
        return stream.read(size + 1)


def _checked_size(size: int, name: str, path: Path) -> int:
    if not 0 < size <= MAX_BYTES:
        raise SourceError(f"{path}: member {name} has {size} bytes; between 1 and {MAX_BYTES} are accepted")
    return size


def _is_tar_header(block: bytes) -> bool:
    if len(block) < 512 or not any(block):
        return False
    try:
        recorded = int(block[148:156].strip(b" \0") or b"0", 8)
    except ValueError:
        return False
    return recorded == sum(block[:148]) + 8 * 32 + sum(block[156:])
