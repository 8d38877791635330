"""A download folder: every file once, each remembered, taken from a mirror or a directory where asked."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.fetch.addresses import resolve
from cairn.fetch.folder import RECORD, UNPINNED, describe, fetch_sources
from cairn.fetch.http import Policy
from cairn.fetch.sources import Listing, Source, parse_checksums, read_sources

FAST = Policy(connect=30, read=30, retries=1, backoff=0)
BENCHMARKS = Path(__file__).resolve().parents[2] / "cairn" / "benchmarks"


def source(name: str, **values) -> Source:
    return Source(**{"name": name, "part": "all", "kind": "truth", "licence": "none", **values})


def tarball(names: list[str], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"bytes"))
    return buffer.getvalue()


def test_a_pinned_file_is_verified_and_an_unpinned_one_says_so(server, tmp_path):
    data = b"truth"
    pinned = source("a.csv", url=server.put("a.csv", data), sha256=hashlib.sha256(data).hexdigest())
    unpinned = source("b.csv", url=server.put("b.csv", b"other"))
    found = fetch_sources([pinned, unpinned], tmp_path / "d", policy=FAST)
    assert [(each.checked_by, each.verified) for each in found] == [("pinned", True), (UNPINNED, False)]
    entries = describe(found, tmp_path)
    assert entries[0]["path"] == "d/a.csv"
    assert entries[1]["sha256"] == hashlib.sha256(b"other").hexdigest()
    assert "no checksum" in entries[1]["note"]
    assert entries[0]["note"] is None


def test_a_second_fetch_reads_and_requests_nothing(server, tmp_path, monkeypatch):
    sources = [source("a.csv", url=server.put("a.csv", b"truth"))]
    first = fetch_sources(sources, tmp_path / "d", policy=FAST)
    monkeypatch.setattr("cairn.fetch.folder.fetch_file", None)
    assert fetch_sources(sources, tmp_path / "d", policy=FAST) == first
    assert len(server.log) == 1


def test_an_unpinned_file_must_stay_what_it_was(server, tmp_path):
    sources = [source("a.csv", url=server.put("a.csv", b"truth"))]
    fetch_sources(sources, tmp_path / "d", policy=FAST)
    (tmp_path / "d" / "a.csv").unlink()
    server.put("a.csv", b"changed", etag='"2"')
    with pytest.raises(SourceError, match=r"a\.csv: expected sha256"):
        fetch_sources(sources, tmp_path / "d", policy=FAST)


def test_a_touched_file_is_hashed_again(server, tmp_path):
    sources = [source("a.csv", url=server.put("a.csv", b"truth"))]
    fetch_sources(sources, tmp_path / "d", policy=FAST)
    (tmp_path / "d" / "a.csv").write_bytes(b"other")
    with pytest.raises(SourceError, match="remove the file"):
        fetch_sources(sources, tmp_path / "d", policy=FAST)
    (tmp_path / "d" / "a.csv").write_bytes(b"truth")
    assert fetch_sources(sources, tmp_path / "d", policy=FAST)[0].size == 5


@pytest.mark.parametrize("damage", ["[]", "{", "null", '{"a.csv": 3}'])
def test_a_damaged_record_is_one_line(server, tmp_path, damage):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / RECORD).write_text(damage)
    with pytest.raises(SourceError, match=r"fetched\.json: damaged"):
        fetch_sources([source("a.csv", url=server.put("a.csv", b"truth"))], tmp_path / "d", policy=FAST)


def test_published_md5_files_are_used(server, tmp_path):
    data = tarball(["a.jpg"])
    sums = server.put("sums/md5.a.txt", f"{hashlib.md5(data).hexdigest()}  a.tar\n".encode())
    entry = source("x/a.tar", kind="images", url=server.put("a.tar", data), checksums=sums)
    [found] = fetch_sources([entry], tmp_path / "d", policy=FAST)
    assert (found.checked_by, found.verified, found.md5) == (sums, True, hashlib.md5(data).hexdigest())
    server.put("a.tar", b"other", etag='"2"')
    with pytest.raises(SourceError, match="expected md5"):
        fetch_sources([entry], tmp_path / "e", policy=FAST)
    server.put("sums/md5.a.txt", b"0" * 32 + b"  b.tar\n")
    with pytest.raises(SourceError, match=r"md5.a.txt: no checksum of a.tar in it"):
        fetch_sources([entry], tmp_path / "f", policy=FAST)
    server.put("sums/md5.a.txt", b"<html>")
    with pytest.raises(SourceError, match=r"line 1: an MD5 or SHA-256 was expected"):
        fetch_sources([entry], tmp_path / "g", policy=FAST)


def test_a_list_of_checksums_names_the_shards(server, tmp_path):
    shards = {f"yfcc100m_{n}.tar": tarball([f"{n}.jpg"]) for n in range(3)}
    lines = [f"{'0' * 64} {server.url}/core.tar"]
    for name, data in shards.items():
        lines.append(f"{hashlib.sha256(data).hexdigest()} {server.put(name, data)}")
    listing = Listing(
        listed_in=server.put("checksums.txt", "\n".join(lines).encode()),
        match="yfcc100m",
        folder="shards",
        part="all",
        kind="images",
        licence="none",
        role="distractors",
    )
    found = fetch_sources([listing], tmp_path / "d", policy=FAST, shards=2)
    assert [each.source.name for each in found] == ["shards/yfcc100m_0.tar", "shards/yfcc100m_1.tar"]
    assert all(each.verified for each in found)
    assert not server.requests("core.tar")
    for address in ("file:///etc/yfcc100m_0.tar", "yfcc100m_0.tar", "http://[::yfcc100m"):
        server.put("checksums.txt", f"{'0' * 64} {address}".encode())
        with pytest.raises(SourceError, match=r"checksums.txt: .* is no http or https address"):
            fetch_sources([listing], tmp_path / "e", policy=FAST)


def test_gzip_tars_get_a_seek_index_and_plain_tars_none(server, tmp_path):
    sources = [
        source("a.tgz", kind="images", url=server.put("a.tgz", tarball(["a.jpg"], "w:gz"))),
        source("b.tar", kind="images", url=server.put("b.tar", tarball(["b.jpg"]))),
    ]
    fetch_sources(sources, tmp_path / "d", policy=FAST)
    assert (tmp_path / "d" / "a.tgz.gzidx").is_file()
    assert not (tmp_path / "d" / "b.tar.gzidx").exists()


def test_a_gzip_tar_is_repacked_once_and_both_hashes_are_kept(server, tmp_path, monkeypatch, capsys):
    data = tarball(["a.jpg"], "w:gz")
    entry = source("x/a.tgz", kind="images", role="gallery", url=server.put("a.tgz", data))
    plain_tar = source("b.tar", kind="images", url=server.put("b.tar", tarball(["b.jpg"])))
    found = fetch_sources([entry, plain_tar], tmp_path / "d", policy=FAST, repack=True)
    assert [each.path.name for each in found] == ["a.tgz.tar", "b.tar"]
    plain = gzip.decompress(data)
    assert found[0].path.read_bytes() == plain
    assert not (tmp_path / "d/x/a.tgz.gzidx").exists()
    original, inflated, other = describe(found, tmp_path)
    assert (original["path"], original["kind"], original["sha256"]) == (
        "d/x/a.tgz", "original", hashlib.sha256(data).hexdigest(),
    )  # fmt: skip
    assert (inflated["path"], inflated["kind"], inflated["role"]) == ("d/x/a.tgz.tar", "images", "gallery")
    assert inflated["sha256"] == hashlib.sha256(plain).hexdigest() and inflated["url"] is None
    assert original["sha256"] in inflated["note"] and other["kind"] == "images"
    assert "repacking a.tgz" in capsys.readouterr().err
    monkeypatch.setattr("cairn.images.gzip_tars.repack", None)
    assert fetch_sources([entry, plain_tar], tmp_path / "d", policy=FAST, repack=True) == found
    monkeypatch.undo()
    # A plain tar that was touched is made again from the archive.
    found[0].path.write_bytes(b"other")
    assert fetch_sources([entry], tmp_path / "d", policy=FAST, repack=True) == found[:1]
    assert found[0].path.read_bytes() == plain


def test_only_truth_or_images(server, tmp_path):
    sources = [
        source("a.csv", url=server.put("a.csv", b"truth")),
        source("b.tar", kind="images", url=server.put("b.tar", tarball(["b.jpg"]))),
    ]
    fetch_sources(sources, tmp_path / "d", only="truth", policy=FAST)
    assert [each["path"] for each in server.log] == ["a.csv"]
    fetch_sources(sources, tmp_path / "d", only="images", policy=FAST)
    assert [each["path"] for each in server.log] == ["a.csv", "b.tar"]


def test_what_must_be_brought_by_hand_says_how_and_is_taken_when_there(tmp_path):
    entry = source("a.csv", obtain="accept the terms at example.org")
    with pytest.raises(
        SourceError, match=r"d/a.csv is missing; accept the terms at example.org, and put it there"
    ):
        fetch_sources([entry], tmp_path / "d", policy=FAST)
    (tmp_path / "d" / "a.csv").write_bytes(b"by hand")
    [found] = fetch_sources([entry], tmp_path / "d", policy=FAST)
    assert (found.checked_by, found.size) == (UNPINNED, 7)


def test_a_directory_with_the_files_is_linked_and_nothing_is_downloaded(server, tmp_path):
    hand = tmp_path / "hand"
    (hand / "jpg").mkdir(parents=True)
    (hand / "a.csv").write_bytes(b"truth")
    (hand / "jpg" / "x.jpg").write_bytes(b"12345")
    (hand / "jpg" / "y.jpg").write_bytes(b"123")
    archive = {"kind": "images", "url": f"{server.url}/b.tar", "unpacked": "jpg"}
    sources = [
        source("x/a.csv", url=f"{server.url}/a.csv"),
        source("b.tar", **archive),
        source("c.tar", **archive),
    ]
    found = fetch_sources(sources, tmp_path / "d", directory=hand, policy=FAST)
    assert [each.path for each in found] == [tmp_path / "d" / "x" / "a.csv", tmp_path / "d" / "jpg"]
    assert found[0].path.is_symlink()
    assert (found[1].files, found[1].size, found[1].checked_by) == (2, 8, "directory")
    assert describe(found, tmp_path)[1]["sha256"] == hashlib.sha256(b"3  y.jpg\n5  x.jpg\n").hexdigest()
    assert server.log == []
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.csv").write_bytes(b"truth")
    with pytest.raises(SourceError, match=f"directory {other} has none of: b.tar, jpg/b.tar, jpg"):
        fetch_sources(sources, tmp_path / "d", directory=other, policy=FAST)
    assert (tmp_path / "d" / "x" / "a.csv").resolve() == other / "a.csv"


def test_a_directory_is_checked_like_a_download(tmp_path):
    hand = tmp_path / "hand"
    hand.mkdir()
    (hand / "a.csv").write_bytes(b"wrong")
    entry = source("a.csv", url="http://example.org/a.csv", sha256="0" * 64)
    with pytest.raises(SourceError, match="expected sha256"):
        fetch_sources([entry], tmp_path / "d", directory=hand, policy=FAST)


def test_a_mirror_holds_the_original_addresses(server, tmp_path, monkeypatch):
    entry = source("a.csv", url="https://example.org/~vgg/data/a.csv")
    server.put("mirror/example.org/~vgg/data/a.csv", b"truth")
    [found] = fetch_sources([entry], tmp_path / "d", mirror=f"{server.url}/mirror", policy=FAST)
    assert found.source.url == "https://example.org/~vgg/data/a.csv"
    monkeypatch.setenv("CAIRN_MIRROR", f"{server.url}/mirror/")
    assert fetch_sources([entry], tmp_path / "e", policy=FAST)[0].size == 5


def test_addresses():
    assert resolve("hf://datasets/a/b@main/x/y.tar", "n", None) == (
        "https://huggingface.co/datasets/a/b/resolve/main/x/y.tar"
    )
    assert resolve("hf://datasets/a/b@main/y.tar", "n", "http://m") == (
        "http://m/huggingface.co/datasets/a/b/resolve/main/y.tar"
    )
    assert resolve(None, "set/y.tar", "file:///m") == "file:///m/set/y.tar"
    assert resolve(None, "set/y.tar", None) is None
    for wrong in ("ftp://example.org/a", "/etc/passwd", "s3://b/k", "data:,x"):
        with pytest.raises(SourceError, match="only http, https, file and hf"):
            resolve(wrong, "n", None)
    with pytest.raises(SourceError, match="expected hf://datasets"):
        resolve("hf://models/x", "n", None)


def test_the_hub_states_the_checksum_of_a_large_file(server, tmp_path, monkeypatch):
    data = tarball(["a.jpg"])
    digest = hashlib.sha256(data).hexdigest()
    monkeypatch.setattr(
        "huggingface_hub.get_hf_file_metadata", lambda url, **_: type("M", (), {"etag": digest, "url": url})
    )
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.put("datasets/a/b/resolve/main/x.tar", data)
    entry = source("x.tar", kind="images", url="hf://datasets/a/b@main/x.tar")
    [found] = fetch_sources([entry], tmp_path / "d", policy=FAST)
    assert (found.verified, found.sha256) == (True, digest)


def test_parse_checksums():
    assert parse_checksums("a" * 32 + "\n", "x") == {"": "a" * 32}
    assert parse_checksums(f"{'A' * 64} *b.tar\n\n", "x") == {"b.tar": "a" * 64}
    for wrong in ("", "b.tar\n", "a" * 31 + " b", "é" * 32):
        with pytest.raises(SourceError, match="x"):
            parse_checksums(wrong, "x")


@pytest.mark.parametrize(
    "path",
    sorted(p for p in BENCHMARKS.glob("*.yaml") if p.stem not in ("registry", "known")),
    ids=lambda p: p.stem,
)
def test_every_source_file_of_the_repository_is_well_formed(path):
    import yaml

    loaded = yaml.safe_load(path.read_text("utf-8"))
    parts = {entry["part"] for entry in loaded["sources"]}
    entries = read_sources(path, parts)
    assert {entry.part for entry in entries} == parts
    for entry in entries:
        if isinstance(entry, Source) and entry.url:
            assert resolve(entry.url, entry.name, None).startswith(("http://", "https://"))
        assert entry.licence
    with pytest.raises(SourceError, match=f"no part '{min(parts)}x' .did you mean '{min(parts)}'"):
        read_sources(path, [min(parts) + "x"])


def test_malformed_source_files_are_one_line(tmp_path):
    base = {"name": "a", "part": "p", "kind": "truth", "licence": "l", "url": "http://x/a"}
    for change, complaint in (
        ({"name": "../a"}, "name"),
        ({"name": "a/../../b"}, "may not hold"),
        ({"sha256": "abc"}, "sha256"),
        ({"url": None}, "either url or obtain"),
        ({"kind": "other"}, "kind"),
        ({"colour": "red"}, "colour"),
    ):
        path = tmp_path / "s.yaml"
        path.write_text(json.dumps({"sources": [{**base, **change}]}))
        with pytest.raises(SourceError, match=rf"s.yaml: entry 1: .*{complaint}"):
            read_sources(path, ["p"])
    path.write_text(json.dumps({"sources": [base, base]}))
    with pytest.raises(SourceError, match="a is listed twice"):
        read_sources(path, ["p"])


def test_bars_and_notes_go_to_standard_error(server, tmp_path, monkeypatch, capfd):
    sources = [source(f"{name}.csv", url=server.put(name, b"truth")) for name in "ab"]
    fetch_sources(sources, tmp_path / "d", policy=FAST)
    assert capfd.readouterr() == ("", "fetching a.csv (all of 5)\nfetching b.csv (all of 5)\n")
    monkeypatch.setenv("CAIRN_PROGRESS", "1")
    fetch_sources(sources, tmp_path / "e", policy=FAST)
    drawn = capfd.readouterr()
    assert drawn.out == ""
    assert "a.csv" in drawn.err and "2 files" in drawn.err


def test_a_disk_that_cannot_be_written_is_one_line(server, tmp_path, monkeypatch):
    entry = source("a.csv", url=server.put("a", b"truth"))

    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "d" / "x"))

    monkeypatch.setattr("cairn.fetch.download.write_json", full)
    with pytest.raises(SourceError, match=r"d/x: the disk is full; free some space") as caught:
        fetch_sources([entry], tmp_path / "d", policy=FAST)
    assert "\n" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="file/d: Not a directory"):
        fetch_sources([entry], tmp_path / "file" / "d", policy=FAST)
