"""Archives in place: the same images whatever holds them, and nothing hostile gets through."""

import gzip
import hashlib
import io
import os
import pickle
import socket
import struct
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.benchmarks.published import read_texts
from cairn.errors import CairnError, ImageError, InputError, SourceError
from cairn.images.archives import (
    ArchiveReader,
    Member,
    archive_kind,
    list_members,
)
from cairn.images.gzip_tars import repack, write_gzip_index
from tests.images.pictures import files

FILES = files()
EXTRA = {
    "notes.txt": b"no image",
    "a/._000.jpg": b"finder",
    "__MACOSX/a/000.jpg": b"finder",
    ".hidden/x.jpg": b"x",
}


def write_folder(path: Path) -> Path:
    for name, data in (FILES | EXTRA).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def write_tar(path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in reversed(list((FILES | EXTRA).items())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_zip(path: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.mkdir("a")
        for name, data in (FILES | EXTRA).items():
            archive.writestr(name, data)
    return path


def make(kind: str, folder: Path) -> Path:
    return {
        "folder": lambda: write_folder(folder / "pictures"),
        "tar": lambda: write_tar(folder / "pictures.tar"),
        "tar.gz": lambda: write_tar(folder / "pictures.tgz", "w:gz"),
        "zip": lambda: write_zip(folder / "pictures.zip"),
        "deflated": lambda: write_zip(folder / "pictures.zip", zipfile.ZIP_DEFLATED),
    }[kind]()


KINDS = ["folder", "tar", "tar.gz", "zip", "deflated"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_container_gives_the_same_images(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    assert archive_kind(path) == ("zip" if kind == "deflated" else kind)
    members = list_members(path)
    assert [member.name for member in members] == sorted(FILES)
    reader = ArchiveReader(tmp_path)
    for member in reversed(members):
        assert reader.read(path.name, member.name, member.offset, member.size) == FILES[member.name]
    again = pickle.loads(pickle.dumps(reader))
    assert again.read(path.name, *vars(members[3]).values()) == FILES[members[3].name]


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_disturb_one_another(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    members = list_members(path) * 20
    reader = ArchiveReader(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        for member, data in zip(
            members,
            pool.map(lambda m: reader.read(path.name, m.name, m.offset, m.size), members),
            strict=True,
        ):
            assert data == FILES[member.name]


def test_offsets_point_at_the_bytes(tmp_path: Path) -> None:
    for path in (make("tar", tmp_path), make("zip", tmp_path)):
        content = path.read_bytes()
        for member in list_members(path):
            assert content[member.offset : member.offset + member.size] == FILES[member.name]
    assert {member.offset for member in list_members(make("deflated", tmp_path))} == {-1}


def test_a_gzip_tar_with_a_stored_index(tmp_path: Path) -> None:
    path = make("tar.gz", tmp_path)
    before = list_members(path)
    index = write_gzip_index(path, spacing=1 << 16)
    assert index.name == "pictures.tgz.gzidx"
    first = index.read_bytes()
    assert write_gzip_index(path, spacing=1 << 16).read_bytes() == first
    assert list_members(path) == before
    last = max(before, key=lambda member: member.offset)
    assert ArchiveReader(tmp_path).read(path.name, *vars(last).values()) == FILES[last.name]


def test_a_gzip_tar_repacked_is_the_tar_it_was(tmp_path: Path) -> None:
    path = make("tar.gz", tmp_path)
    plain = gzip.decompress(path.read_bytes())
    size, sha256 = repack(path, tmp_path / "plain.tar")
    assert (tmp_path / "plain.tar").read_bytes() == plain
    assert (size, sha256) == (len(plain), hashlib.sha256(plain).hexdigest())
    # Offsets in the plain tar are those in the inflated stream.
    assert list_members(tmp_path / "plain.tar") == list_members(path)


def test_a_gzip_tar_of_several_members_is_indexed(tmp_path: Path) -> None:
    plain = make("tar", tmp_path).read_bytes()
    path = tmp_path / "parts.tgz"
    path.write_bytes(gzip.compress(plain[:5000]) + gzip.compress(plain[5000:]))
    write_gzip_index(path)
    assert list_members(path) == list_members(tmp_path / "pictures.tar")


def gzip_bomb(path: Path) -> Path:
    """64 MiB of zeros, as a member that is no image, in 64 KiB."""
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("zeros.bin")
        info.size = 64 << 20
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    return path


@pytest.mark.parametrize(
    "read", [list_members, write_gzip_index, lambda path: repack(path, path.with_name("t"))]
)
def test_a_gzip_bomb_is_refused_by_whoever_inflates_it(tmp_path: Path, read) -> None:
    path = gzip_bomb(tmp_path / "bomb.tgz")
    with pytest.raises(SourceError, match=r"bomb\.tgz: grows more than 200 times"):
        read(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("read", [write_gzip_index, lambda path: repack(path, path.with_name("t"))])
@pytest.mark.parametrize("share", [0.3, 0.98, 0.9999])
def test_a_gzip_tar_cut_short_is_refused_by_whoever_inflates_it(tmp_path: Path, read, share: float) -> None:
    path = make("tar.gz", tmp_path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(SourceError, match=r"not a readable gzip file"):
        read(path)
    assert list(tmp_path.iterdir()) == [path]


def test_long_names_and_pax_headers(tmp_path: Path) -> None:
    name = "/".join(["ünïcode" * 10] * 3) + "/x.jpg"
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
            info = tarfile.TarInfo("./" + name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
        (member,) = list_members(tmp_path / "a.tar")
        assert member.name == "./" + name
        assert ArchiveReader(tmp_path).read("a.tar", *vars(member).values()) == b"abc"


def tar_with(path: Path, name: str, kind: bytes = tarfile.REGTYPE, size: int = 3) -> Path:
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "elsewhere.jpg"
        info.size = size if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(b"abc"[:size]))
    return path


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("/etc/x.jpg", tarfile.REGTYPE, "'/etc/x.jpg' has an absolute or foreign path"),
        ("C:/x.jpg", tarfile.REGTYPE, "absolute or foreign"),
        ("..\\x.jpg", tarfile.REGTYPE, "absolute or foreign"),
        ("a/../../x.jpg", tarfile.REGTYPE, r"'a/\.\./\.\./x\.jpg' leads out of the archive"),
        ("x\n.jpg", tarfile.REGTYPE, "control characters"),
        ("x.jpg", tarfile.SYMTYPE, "member x.jpg is a link or a device"),
        ("x.jpg", tarfile.LNKTYPE, "a link or a device"),
        ("x.jpg", tarfile.CHRTYPE, "a link or a device"),
        ("x.jpg", tarfile.FIFOTYPE, "a link or a device"),
    ],
)
def test_hostile_tar_members_are_refused(name: str, kind: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        list_members(tar_with(tmp_path / "bad.tar", name, kind))
    assert "bad.tar" in str(caught.value) and "\n" not in str(caught.value)


def test_doubled_and_empty_members_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        for _ in range(2):
            info = tarfile.TarInfo("x.jpg")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    with pytest.raises(SourceError, match=r"member x\.jpg occurs twice"):
        list_members(tmp_path / "bad.tar")
    with pytest.raises(SourceError, match=r"member x\.jpg has 0 bytes"):
        list_members(tar_with(tmp_path / "empty.tar", "x.jpg", size=0))


def test_absurd_sizes_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x.jpg")
    info.size = 1 << 40
    (tmp_path / "bad.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(SourceError, match=r"member x\.jpg has 1099511627776 bytes"):
        list_members(tmp_path / "bad.tar")
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 35
    (tmp_path / "bad.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(SourceError, match="a tar header claims 34359738368 bytes"):
        list_members(tmp_path / "bad.tar")


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_truncated_archives_are_refused(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=f"pictures.*{kind[-2:]}"):
        list_members(path)


def zip_with(path: Path, change, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        info = zipfile.ZipInfo("x.jpg")
        info.compress_type = compression
        change(info)
        archive.writestr(info, bytes(1 << 20))
    return path


def test_hostile_zip_members_are_refused(tmp_path: Path) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = 0o120777 << 16

    def outside(info: zipfile.ZipInfo) -> None:
        info.filename = "../x.jpg"

    with pytest.raises(SourceError, match=r"member x\.jpg is a link"):
        list_members(zip_with(tmp_path / "a.zip", link))
    with pytest.raises(SourceError, match="leads out of the archive"):
        list_members(zip_with(tmp_path / "b.zip", outside))
    with pytest.raises(SourceError, match=r"member x\.jpg would grow \d+ times"):
        list_members(zip_with(tmp_path / "c.zip", lambda info: None, zipfile.ZIP_DEFLATED))
    with pytest.raises(SourceError, match="neither stored nor deflated"):
        list_members(zip_with(tmp_path / "d.zip", lambda info: None, zipfile.ZIP_LZMA))


def test_overlapping_and_encrypted_zip_members_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    entries = [at for at in range(len(content)) if content[at : at + 4] == b"PK\x01\x02"]
    images = [at for at in entries if content[at + 46 : at + 48] in (b"a/", b"b/") and content[at + 28] > 3]
    content[images[1] + 42 : images[1] + 46] = content[images[0] + 42 : images[0] + 46]
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"overlap|damaged"):
        list_members(path)
    content = bytearray(write_zip(path).read_bytes())
    content[images[0] + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match="is encrypted"):
        list_members(path)


def test_links_in_folders(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "pictures")
    (folder / "again.jpg").symlink_to(folder / "a/000.jpg")
    assert "again.jpg" in [member.name for member in list_members(folder)]
    (tmp_path / "outside.jpg").write_bytes(b"abc")
    (folder / "again.jpg").unlink()
    (folder / "out.jpg").symlink_to(tmp_path / "outside.jpg")
    with pytest.raises(InputError, match=r"out\.jpg: a symbolic link that leaves.*; remove it"):
        list_members(folder)
    (folder / "out.jpg").unlink()
    (folder / "loop").symlink_to(folder)
    with pytest.raises(InputError, match="a folder may not be a symbolic link"):
        list_members(folder)


def put_socket(path: Path) -> None:
    # The path of a socket has at most 107 bytes.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


@pytest.mark.parametrize("place", ["", "a", ".hidden", "__MACOSX"])
@pytest.mark.parametrize(
    ("name", "put", "told"),
    [
        ("pipe.jpg", os.mkfifo, "not a regular file but a FIFO"),
        ("pipe", os.mkfifo, "not a regular file but a FIFO"),
        (".pipe", os.mkfifo, "not a regular file but a FIFO"),
        ("notes", put_socket, "not a regular file but a socket"),
        ("zero", lambda path: path.symlink_to("/dev/zero"), "leaves the folder"),
        ("notes.txt", lambda path: path.symlink_to("missing"), "a symbolic link that leads nowhere"),
        ("self.jpg", lambda path: path.symlink_to(path.name), "a symbolic link that leads nowhere"),
        (os.fsdecode(b"caf\xe9.txt"), Path.touch, "name is not UTF-8"),
        (os.fsdecode(b"caf\xe9"), Path.mkdir, "name is not UTF-8"),
        (".dvcignore", Path.touch, "DVC"),
        (".dvc", Path.mkdir, "DVC"),
    ],
)
def test_what_dvc_cannot_hash_is_refused(tmp_path: Path, place: str, name: str, put, told: str) -> None:
    folder = write_folder(tmp_path / "pictures")
    (folder / place / name).unlink(missing_ok=True)
    put(folder / place / name)
    with pytest.raises(InputError, match=rf"{told}.*; remove it from the folder of images") as caught:
        list_members(folder)
    shown = str(caught.value)
    shown.encode()
    assert "\n" not in shown and name.encode("unicode_escape", "replace").decode()[:3] in shown


def test_what_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "pictures")
    denied = folder / "notes.txt"
    # By hand, since permissions do not bind an administrator.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != denied)
    with pytest.raises(InputError, match=r"notes\.txt: cannot be read \(permission denied\); remove it"):
        list_members(folder)
    denied = folder / "a"
    with pytest.raises(InputError, match=r"/a: a folder that cannot be read .*; remove it"):
        list_members(folder)


def test_names_in_errors_are_short_and_on_one_line(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "pictures")
    (folder / ("x" * 200 + "\x1b\n.jpg")).touch()
    with pytest.raises(InputError, match="control characters") as caught:
        list_members(folder)
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < len(str(folder)) + 220
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "a\nb\x1b[31m")
    with pytest.raises(InputError, match=r"a\\nb\\x1b\[31m: not a regular file") as caught:
        list_members(tmp_path / "other")
    assert "\n" not in str(caught.value)


def test_a_fifo_in_place_of_an_archive_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "images.tar")
    with pytest.raises(SourceError, match=r"images\.tar: neither a folder nor a file"):
        list_members(tmp_path / "images.tar")


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    write_folder(tmp_path / "pictures")
    path = make("deflated", tmp_path)
    reader = ArchiveReader(tmp_path)
    with pytest.raises(SourceError, match=r"missing\.tar: no such folder or archive"):
        reader.read("missing.tar", "x.jpg", 0, 3)
    with pytest.raises(ImageError, match=r"x\.jpg in pictures: no such file"):
        reader.read("pictures", "x.jpg", -1, 3)
    with pytest.raises(ImageError, match=r"x\.jpg in pictures\.zip: no such member"):
        reader.read(path.name, "x.jpg", -1, 3)
    with pytest.raises(ImageError, match="bytes found where 7 were expected"):
        reader.read("pictures", "a/000.jpg", -1, 7)
    with pytest.raises(SourceError, match="leads out"):
        reader.read("pictures", "../secret.jpg", -1, 3)
    (tmp_path / "text.tar").write_text("not an archive")
    with pytest.raises(SourceError, match="neither a folder nor a tar"):
        reader.read("text.tar", "x.jpg", 0, 3)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip", "deflated"])
@settings(max_examples=40, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8
    ),
    kept=st.floats(0.05, 1),
)
def test_damage_ends_in_a_cairn_error_or_is_harmless(kind: str, changes, kept, tmp_path_factory) -> None:
    path = make(kind, tmp_path_factory.mktemp("fuzz"))
    content = bytearray(path.read_bytes())
    content = content[: int(len(content) * kept)]
    for place, value in changes:
        content[int(place * len(content))] = value
    path.write_bytes(content)
    try:
        members = list_members(path)
        reader = ArchiveReader(path.parent)
        for member in members:
            assert isinstance(member, Member)
            assert len(reader.read(path.name, *vars(member).values())) == member.size
    except CairnError as error:
        assert "\n" not in str(error)


def test_a_zip_member_before_the_file_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    content[-10:-6] = struct.pack("<I", struct.unpack("<I", content[-10:-6])[0] - 7)  # the directory's size
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.zip"):
        list_members(path)
    content = bytearray(write_zip(path).read_bytes())
    content[-6:-2] = struct.pack("<I", struct.unpack("<I", content[-6:-2])[0] + 9000)  # its offset
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.zip"):
        list_members(path)


def test_a_zip64_claim_is_bounded(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    entry = next(
        at
        for at in range(len(content))
        if content[at : at + 4] == b"PK\x01\x02" and b"000.jpg" in content[at : at + 60]
    )
    content[entry + 24 : entry + 28] = struct.pack("<I", (1 << 32) - 2)
    path.write_bytes(content)
    with pytest.raises(SourceError, match="has 4294967294 bytes"):
        list_members(path)


@pytest.mark.parametrize("size", [-1, -512, -1024, -(1 << 60)])
def test_a_header_that_leads_back_is_refused(tmp_path: Path, size: int) -> None:
    """tarfile follows a negative size to the same header for ever."""
    path = tar_with(tmp_path / "x.tar", "notes.txt")
    data = bytearray(path.read_bytes())
    data[124:136] = size.to_bytes(12, "big", signed=True)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    with pytest.raises(SourceError, match=f"claims {size} bytes; the archive is hostile"):
        list_members(path)
    with pytest.raises(SourceError, match="hostile"):
        read_texts(tmp_path, "x.tar", ".txt", str)


def test_a_tar_that_stops_at_no_header_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar")
    data = path.read_bytes()
    second = next(i for i in range(1024, len(data), 512) if data[i + 257 : i + 262] == b"ustar")
    path.write_bytes(data[: second + 100])
    with pytest.raises(SourceError, match="damaged or truncated at byte"):
        list_members(path)
    path.write_bytes(data[:second] + bytes([data[second] ^ 1]) + data[second + 1 :])
    with pytest.raises(SourceError, match="no tar header where one is expected"):
        list_members(path)
    path.write_bytes(data[:second])  # no blocks of zeros at the end: sloppy, and whole
    assert list_members(path) is not None


def test_two_names_of_one_image_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("a/b.jpg", "./a//b.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    with pytest.raises(SourceError, match="occurs twice"):
        list_members(path)
