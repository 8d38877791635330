"""The manifest: right rows in the right order, the same bytes each time, images that are those recorded."""

import hashlib
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError, CairnError, ImageError, InputError, SourceError
from cairn.images.decode import decode_bgr
from cairn.images.manifest import (
    Entry,
    ImageSource,
    build_manifest,
    list_entries,
    manifest_of,
    read_manifest,
    write_manifest,
)
from tests.images.pictures import draw, encode, files
from tests.images.test_archives import write_folder, write_tar, write_zip

FILES = files()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_folder(tmp_path / "photos")
    write_tar(tmp_path / "photos.tar")
    write_zip(tmp_path / "photos.zip")
    return tmp_path


def build(root: Path, archive: str = "photos", workers: int = 1):
    """Images of folder a are gallery, of b queries; 000.jpg is both, the last is for training."""
    entries = []
    for entry in list_entries(archive, root):
        entries.append(replace(entry, gallery=entry.image_id < "b", query=entry.image_id >= "b"))
    entries[-1] = replace(entries[-1], query=False, train=True, label="tower")
    entries.append(replace(entries[0], gallery=False, query=True))
    return build_manifest(reversed(entries), root, workers)


def test_rows_flags_and_order(project: Path) -> None:
    table = build(project)
    write_manifest(table, project / "manifest.parquet")
    manifest = read_manifest(project / "manifest.parquet")
    names = sorted(FILES)
    assert manifest.image_id == names == manifest.member
    assert manifest.gallery_size == 5 and len(manifest) == 10
    np.testing.assert_array_equal(manifest.rows(gallery=True), range(5))
    np.testing.assert_array_equal(manifest.rows(query=True), [0, 5, 6, 7, 8])
    np.testing.assert_array_equal(manifest.rows(query=True, gallery=False), [5, 6, 7, 8])
    np.testing.assert_array_equal(manifest.rows(train=True), [9])
    np.testing.assert_array_equal(manifest.rows(), range(10))
    assert manifest.label == [None] * 9 + ["tower"]
    assert manifest.row_of["b/001.png"] == 5
    assert set(manifest.width) == {48} and set(manifest.height) == {32}
    assert manifest.sha256 == [hashlib.sha256(FILES[name]).hexdigest() for name in names]


def test_query_only_and_training_images_come_last(project: Path) -> None:
    entries = list_entries("photos", project)
    flags = [{"train": True}, {"query": True}, {"gallery": True}, {"gallery": True, "query": True}]
    entries = [replace(entry, **flags[n % 4]) for n, entry in enumerate(entries)]
    manifest = manifest_of(build_manifest(entries, project))
    groups = np.where(manifest.gallery, 0, np.where(manifest.query, 1, 2))
    assert (np.diff(groups) >= 0).all()
    for group in range(3):
        ids = [manifest.image_id[row] for row in np.flatnonzero(groups == group)]
        assert ids == sorted(ids) and ids


@pytest.mark.parametrize("archive", ["photos", "photos.tar", "photos.zip"])
def test_source_reads_what_was_recorded(archive: str, project: Path) -> None:
    manifest = manifest_of(build(project, archive))
    source = pickle.loads(pickle.dumps(ImageSource(manifest, project)))
    for row, name in enumerate(manifest.image_id):
        assert source.read(row) == FILES[name]
        assert decode_bgr(source.read(row), name).shape == (manifest.height[row], manifest.width[row], 3)


def test_bytes_depend_on_neither_order_nor_workers(project: Path) -> None:
    for n in range(600):  # above the number from which processes are worth starting
        (project / "photos" / f"many{n:03d}.bmp").write_bytes(encode(draw(n, 8, 6), ".bmp"))
    entries = list_entries("photos", project, gallery=True)
    write_manifest(build_manifest(entries, project, workers=1), project / "one.parquet")
    write_manifest(build_manifest(reversed(entries), project, workers=2), project / "two.parquet")
    assert (project / "one.parquet").read_bytes() == (project / "two.parquet").read_bytes()


def test_a_changed_image_is_noticed(project: Path) -> None:
    manifest = manifest_of(build(project))
    row = manifest.row_of["a/002.webp"]
    path = project / "photos/a/002.webp"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ImageError, match=r"image a/002\.webp: a/002\.webp in photos is not the file"):
        ImageSource(manifest, project).read(row)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ImageError, match="bytes found where"):
        ImageSource(manifest, project).read(row)
    path.unlink()
    with pytest.raises(ImageError, match=r"image a/002\.webp: a/002\.webp in photos: no such file"):
        ImageSource(manifest, project).read(row)
    with pytest.raises(ImageError, match="no such folder or archive"):
        ImageSource(manifest, project / "elsewhere").read(row)


def test_damaged_images_fail_or_are_listed(project: Path) -> None:
    jpeg = project / "photos/a/000.jpg"
    jpeg.write_bytes(jpeg.read_bytes()[:-50])
    (project / "photos/b/text.jpg").write_text("hello")
    entries = list_entries("photos", project, gallery=True)
    with pytest.raises(
        ImageError, match=r"image a/000\.jpg in photos: truncated JPEG .*\(2 of 11 images are"
    ):
        build_manifest(entries, project)
    damaged: list[tuple[str, str]] = []
    table = build_manifest(entries, project, damaged=damaged)
    assert [image for image, _ in damaged] == ["a/000.jpg", "b/text.jpg"]
    assert table.num_rows == 9 and "b/text.jpg" not in table.column("image_id").to_pylist()


def test_contradictory_entries_are_refused(project: Path) -> None:
    entry = Entry("x", "photos", "a/000.jpg", -1, len(FILES["a/000.jpg"]), gallery=True)
    with pytest.raises(InputError, match="image x is both"):
        build_manifest([entry, replace(entry, member="b/001.png")], project)
    with pytest.raises(InputError, match="image x has two labels: s and t"):
        build_manifest([replace(entry, label="s"), replace(entry, label="t")], project)
    with pytest.raises(InputError, match="image x is neither gallery, query nor training image"):
        build_manifest([replace(entry, gallery=False)], project)
    with pytest.raises(SourceError, match="nowhere: no such folder or archive"):
        list_entries("nowhere", project)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns("sha256"), "no column sha256"),
        (lambda t: t.take([0, 0]), "an image id occurs twice"),
        (lambda t: t.take([1, 0]), "rows are out of order"),
        (lambda t: t.set_column(7, "sha256", [["zz"] * t.num_rows]), "'zz' is not a SHA-256"),
        (lambda t: t.set_column(5, "width", [[0] * t.num_rows]), "column width holds 0"),
        (lambda t: t.set_column(5, "width", [["wide"] * t.num_rows]), "column width has type string"),
        (lambda t: t.set_column(8, "gallery", [[False] * t.num_rows]), r"image a/000\.jpg is neither"),
    ],
)
def test_inconsistent_manifests_are_refused(project: Path, change, message: str) -> None:
    table = build_manifest(list_entries("photos", project, gallery=True), project)
    path = project / "manifest.parquet"
    pq.write_table(change(table), path)
    with pytest.raises(ArtifactError, match=message) as caught:
        read_manifest(path)
    assert str(path) in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_flipped_bytes_never_end_in_anything_but_a_cairn_error(data, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("manifest")
    write_folder(folder / "photos")
    path = folder / "manifest.parquet"
    write_manifest(build(folder), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read_manifest(path)
    except CairnError as error:
        assert "\n" not in str(error)
