"""Local descriptors: exact, readable by the AMES authors' code and readable from their files."""

import pickle
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError, CairnError
from cairn.store.local import LocalFeatures, open_local, write_local

METADATA = {"positions": "pixels", "model": "sift"}
DTYPES = ["float32", "float16", "uint8"]


def features(count: int, dim: int = 16, seed: int = 0, dtype: str = "uint8") -> LocalFeatures:
    random = np.random.default_rng(seed)
    descriptors = (
        random.integers(0, 256, (count, dim)) if dtype == "uint8" else random.normal(size=(count, dim))
    )
    return LocalFeatures(
        (random.random((count, 2)) * 800).astype(np.float32),
        random.random(count).astype(np.float32),
        random.random(count).astype(np.float32),
        descriptors.astype(dtype),
    )


def collection(dtype: str) -> dict[str, LocalFeatures]:
    counts = {"a.jpg": 7, "ü/b.jpg": 0, "c.jpg": 10, "d.jpg": 1}
    return {name: features(count, 16, seed, dtype) for seed, (name, count) in enumerate(counts.items())}


def write(path: Path, images: dict[str, LocalFeatures], dtype: str, keypoints: int = 10) -> None:
    write_local(
        path, list(images), images.values(), dim=16, keypoints=keypoints, dtype=dtype, metadata=METADATA
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_is_exact(dtype: str, tmp_path: Path) -> None:
    images = collection(dtype)
    write(tmp_path / "local.hdf5", images, dtype)
    store = pickle.loads(pickle.dumps(open_local(tmp_path / "local.hdf5")))
    assert store.ids == list(images) and store.dim == 16 and store.keypoints == 10
    assert store.metadata == METADATA and store.dtype == dtype and len(store) == 4
    assert "a.jpg" in store and "x.jpg" not in store
    for name, image in images.items():
        found = store.read(name)
        for field in ("positions", "scales", "weights", "descriptors"):
            np.testing.assert_array_equal(getattr(found, field), getattr(image, field))
        assert found.descriptors.dtype == dtype and found.positions.dtype == np.float32
    with pytest.raises(ArtifactError, match=r"local\.hdf5: no local descriptors of x\.jpg"):
        store.read("x.jpg")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sift_is_exact_in_floating_point_too(dtype: str, tmp_path: Path) -> None:
    images = collection("uint8")
    write(tmp_path / "local.hdf5", images, dtype)
    store = open_local(tmp_path / "local.hdf5")
    for name, image in images.items():
        np.testing.assert_array_equal(store.read(name).descriptors, image.descriptors)
        np.testing.assert_array_equal(store.read(name).positions, image.positions)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_authors_read_our_files(dtype: str, tmp_path: Path) -> None:
    # As src/utils/tensor_dataset.py does it: shape of 'features', columns from 5 on, column 3 is the mask.
    images = collection("float32")
    write(tmp_path / "local.hdf5", images, dtype)
    with h5py.File(tmp_path / "local.hdf5") as file:
        images_count, top, width = file["features"].shape
        local = file["features"][[0, 2], :5]
        everything = file["features"][:]
    assert (images_count, top, width - 5) == (4, 10, 16)
    np.testing.assert_array_equal(local[:, :, 3].astype(bool), np.zeros((2, 5), bool))
    np.testing.assert_array_equal(everything[:, :, 3].sum(axis=1), [3, 10, 0, 9])
    np.testing.assert_array_equal(local[1, :, 5:], images["c.jpg"].descriptors[:5].astype(dtype))
    np.testing.assert_array_equal(local[1, :, :2], images["c.jpg"].positions[:5].astype(dtype))
    np.testing.assert_array_equal(local[1, :, 4], images["c.jpg"].weights[:5].astype(dtype))
    assert not everything[0, 7:, [0, 1, 2, 4]].any() and not everything[0, 7:, 5:].any()


def test_we_read_the_authors_files(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 8, 5 + 4)).astype(np.float32)
    rows[:, :, 3] = 0
    rows[1, 5:] = 0
    rows[1, 5:, 3] = 1
    with h5py.File(tmp_path / "dinov2_query_local.hdf5", "w") as file:
        file.create_dataset("features", data=rows)
    with pytest.raises(ArtifactError, match="holds no image_ids"):
        open_local(tmp_path / "dinov2_query_local.hdf5")
    with pytest.raises(ArtifactError, match="2 image ids for 3 images"):
        open_local(tmp_path / "dinov2_query_local.hdf5", ["a", "b"])
    store = pickle.loads(pickle.dumps(open_local(tmp_path / "dinov2_query_local.hdf5", ["a", "b", "c"])))
    np.testing.assert_array_equal(store.counts, [8, 5, 8])
    np.testing.assert_array_equal(store.read("b").descriptors, rows[1, :5, 5:])
    np.testing.assert_array_equal(store.read("c").weights, rows[2, :, 4])
    descriptors, mask = store.batch(["c", "b"], 6)
    np.testing.assert_array_equal(descriptors, rows[[2, 1], :6, 5:])
    np.testing.assert_array_equal(mask, rows[[2, 1], :6, 3].astype(bool))


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_are_padded(dtype: str, tmp_path: Path) -> None:
    images = collection(dtype)
    write(tmp_path / "local.hdf5", images, dtype)
    descriptors, mask = open_local(tmp_path / "local.hdf5").batch(["c.jpg", "ü/b.jpg", "a.jpg"], 8)
    assert descriptors.shape == (3, 8, 16) and descriptors.dtype == np.float32
    np.testing.assert_array_equal(mask.sum(axis=1), [0, 8, 1])
    np.testing.assert_array_equal(descriptors[0], images["c.jpg"].descriptors[:8])
    np.testing.assert_array_equal(descriptors[2, :7], images["a.jpg"].descriptors)
    assert not descriptors[mask].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_are_the_same_each_time(dtype: str, tmp_path: Path) -> None:
    write(tmp_path / "one.hdf5", collection(dtype), dtype)
    time.sleep(1.1)  # HDF5 keeps times in seconds
    write(tmp_path / "two.hdf5", collection(dtype), dtype)
    assert (tmp_path / "one.hdf5").read_bytes() == (tmp_path / "two.hdf5").read_bytes()


def test_many_images_are_packed_in_order(tmp_path: Path) -> None:
    images = {f"{n:04d}.jpg": features(n % 5, 16, n) for n in range(700)}
    write(tmp_path / "local.hdf5", images, "uint8")
    store = open_local(tmp_path / "local.hdf5")
    for name in ("0004.jpg", "0255.jpg", "0256.jpg", "0699.jpg"):
        np.testing.assert_array_equal(store.read(name).descriptors, images[name].descriptors)


def test_what_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "local.hdf5"

    def attempt(image: LocalFeatures, dtype: str = "float32", ids: tuple[str, ...] = ("a",)) -> None:
        write_local(path, ids, [image], dim=16, keypoints=10, dtype=dtype, metadata={})

    with pytest.raises(ArtifactError, match="a has 11 features; at most 10"):
        attempt(features(11))
    with pytest.raises(ArtifactError, match="expected 16 dimensions"):
        attempt(features(3, dim=8))
    with pytest.raises(ArtifactError, match="features of a hold a value that cannot be stored as uint8"):
        attempt(features(3, dtype="float32"), "uint8")
    huge = features(3, dtype="float32")
    huge.descriptors[0, 0] = 1e30
    with pytest.raises(ArtifactError, match="cannot be stored as float16"):
        attempt(huge, "float16")
    lost = features(3)
    lost.positions[0, 0] = np.nan
    with pytest.raises(ArtifactError, match="cannot be stored as uint8"):
        attempt(lost, "uint8")
    with pytest.raises(ArtifactError, match="numbers of ids and of images with features differ"):
        attempt(features(3), ids=("a", "b"))
    with pytest.raises(ArtifactError, match="differ"):
        attempt(features(3), ids=())
    with pytest.raises(ArtifactError, match="occurs twice"):
        attempt(features(3), ids=("a", "a"))
    with pytest.raises(ArtifactError, match="cannot be stored as int8"):
        attempt(features(3), "int8")
    assert list(tmp_path.iterdir()) == []


def test_data_in_other_files_is_never_followed(tmp_path: Path) -> None:
    path, secret = tmp_path / "local.hdf5", tmp_path / "secret"
    secret.write_bytes(bytes(range(252)))
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (1, 7, 9), np.float32, external=[(str(secret), 0, 252)])
    with pytest.raises(ArtifactError, match="features is stored in another file"):
        open_local(path, ["a"])
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["features"] = np.zeros((1, 7, 9), np.float32)
    with h5py.File(path, "w") as file:
        file["features"] = h5py.ExternalLink("other.hdf5", "features")
    with pytest.raises(ArtifactError, match="features is not a dataset of this file"):
        open_local(path, ["a"])
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((1, 7, 9), np.float32)
        layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "features", (1, 7, 9))
        file.create_virtual_dataset("features", layout)
    with pytest.raises(ArtifactError, match="features is stored in another file"):
        open_local(path, ["a"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.__delitem__("features"), "no dataset descriptors"),
        (lambda file: file["num_features"].__setitem__(0, 99), "num_features must lie between 0 and 10"),
        (lambda file: file["image_ids"].__setitem__(0, b"c.jpg"), "an image id occurs twice"),
        (lambda file: file.__delitem__("image_ids"), "holds no image_ids"),
    ],
)
def test_inconsistent_files_are_refused(change, message: str, tmp_path: Path) -> None:
    path = tmp_path / "local.hdf5"
    write(path, collection("float32"), "float32")
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(ArtifactError, match=message) as caught:
        open_local(path)
    assert "local.hdf5" in str(caught.value)


def test_other_wrong_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "local.hdf5"
    with pytest.raises(ArtifactError, match="not a readable HDF5 file"):
        open_local(path)
    for dtype in ("float32", "uint8"):
        write(path, collection(dtype), dtype)
        whole = path.read_bytes()
        for length in (0, 40, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:length])
            with pytest.raises(ArtifactError, match=r"local\.hdf5: not a readable HDF5 file"):
                open_local(path)
    with h5py.File(path, "w") as file:
        file["features"] = np.zeros((2, 3, 5), np.float32)
    with pytest.raises(ArtifactError, match="rows of 5 numbers hold no descriptor"):
        open_local(path, ["a", "b"])
    with h5py.File(path, "w") as file:
        file["features"] = np.zeros((2, 3), np.float32)
    with pytest.raises(ArtifactError, match="3 dimensions of kind f are expected"):
        open_local(path, ["a", "b"])
    rows = np.zeros((1, 4, 9), np.float32)
    rows[0, 1, 3] = 1
    with h5py.File(path, "w") as file:
        file["features"] = rows
    with pytest.raises(ArtifactError, match="a: features follow padding"):
        open_local(path, ["a"]).read("a")
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (1 << 40, 8, 9), np.float32, chunks=(16, 8, 9))
    with pytest.raises(ArtifactError, match="is not all there"):
        open_local(path, ["a"])


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_flipped_bytes_never_end_in_anything_but_a_cairn_error(data, dtype: str, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("flipped") / "local.hdf5"
    write(path, collection(dtype), dtype)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        store = open_local(path)
        for name in store.ids:
            store.read(name)
        store.batch(store.ids[:2], 4)
    except CairnError as error:
        assert "\n" not in str(error)
