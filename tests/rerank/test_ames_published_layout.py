"""AMES on files in the authors' HDF5 layout, as published and as the store writes them."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bench.dense_ames import DenseAmes
from cairn.errors import ArtifactError, InputError
from cairn.rerank.ames import Ames, AmesShape
from cairn.rerank.ames_images import feature_rows, select_descriptors
from cairn.rerank.ames_pairs import PairOptions, RootSource, Shortlist, pair_logits
from cairn.store.local import LocalFeatures, open_local, write_local

DIM = 20


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CAIRN_WORKERS", "2")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network() -> Ames:
    torch.manual_seed(0)
    built = Ames(AmesShape(local_dim=DIM, model_dim=16, layers=2, feedforward=32))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return built.eval()


def published(path: Path, names: list[str], seed: int, top: int = 8) -> np.ndarray:
    """A file such as the authors' script writes: one dataset, float32, no names."""
    generator = np.random.default_rng(seed)
    blocks = []
    for row in range(len(names)):
        size = (28, 14 * (1 + row % 6))
        tokens = generator.normal(size=(2 * (1 + row % 6), DIM)).astype(np.float32)
        blocks.append(feature_rows(select_descriptors(tokens, size, names[row], top=top), top))
    features = np.stack(blocks)
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=features)
    return features


def test_published_files_are_used_as_they_are(tmp_path: Path):
    images, queries = [f"i{i}" for i in range(9)], ["qa", "qb"]
    gallery_rows = published(tmp_path / "gallery.hdf5", images, 1)
    query_rows = published(tmp_path / "query.hdf5", queries, 2)
    shortlists = [Shortlist("qb", ("i4", "i0", "i7")), Shortlist("qa", ("i8",))]
    stores = open_local(tmp_path / "query.hdf5", queries), open_local(tmp_path / "gallery.hdf5", images)
    logits = pair_logits(network(), *stores, shortlists, PairOptions(8, 5))
    dense = DenseAmes(network())
    for shortlist, values in zip(shortlists, logits, strict=True):
        query = torch.from_numpy(query_rows[[queries.index(shortlist.query_id)], :8])
        for image, value in zip(shortlist.image_ids, values, strict=True):
            local = torch.from_numpy(gallery_rows[[images.index(image)], :5])
            with torch.inference_mode():
                # As the authors' loader takes the file apart: column 3 is the mask, 5 columns are skipped.
                expected = dense(query[..., 5:], query[..., 3].bool(), local[..., 5:], local[..., 3].bool())
            assert value == pytest.approx(expected.item(), abs=5e-6)


def test_the_stores_own_files_and_what_can_be_wrong_in_them(tmp_path: Path):
    generator = np.random.default_rng(0)

    def features(n: int) -> LocalFeatures:
        return LocalFeatures(
            generator.random((n, 2)).astype(np.float32),
            np.zeros(n, np.float32),
            np.sort(generator.random(n).astype(np.float32))[::-1],
            generator.normal(size=(n, DIM)).astype(np.float32),
        )

    path = tmp_path / "local.hdf5"
    counts = {"q": 6, "a": 8, "b": 3, "empty": 0}
    write_local(
        path, list(counts), map(features, counts.values()), dim=DIM, keypoints=8, dtype="float16", metadata={}
    )
    store, options = open_local(path), PairOptions(8, 5)
    (logits,) = pair_logits(network(), store, store, [Shortlist("q", ("b", "a"))], options)
    assert logits.shape == (2,) and np.isfinite(logits).all()
    with pytest.raises(InputError, match="image empty: every local descriptor is masked"):
        pair_logits(network(), store, store, [Shortlist("q", ("empty",))], options)
    with pytest.raises(ArtifactError, match="no local descriptors of image c, shortlisted for query q"):
        pair_logits(network(), store, store, [Shortlist("q", ("c",))], options)


def test_sift_is_compared_as_rootsift(tmp_path: Path):
    generator = np.random.default_rng(3)
    sift = generator.integers(0, 200, (2, 4, DIM)).astype(np.uint8)
    geometry = np.zeros((4, 2), np.float32), np.zeros(4, np.float32), np.ones(4, np.float32)
    path = tmp_path / "sift.hdf5"
    features = [LocalFeatures(*geometry, block) for block in sift]
    write_local(path, ["q", "a"], features, dim=DIM, keypoints=4, dtype="uint8", metadata={})
    store = RootSource(open_local(path))
    descriptors, mask = store.batch(["q", "a"], 6)
    expected = np.sqrt(sift / sift.sum(axis=2, keepdims=True))
    np.testing.assert_allclose(descriptors[:, :4], expected, atol=1e-6)
    assert mask[:, 4:].all() and not mask[:, :4].any() and not descriptors[:, 4:].any()
    (logits,) = pair_logits(network(), store, store, [Shortlist("q", ("a",))], PairOptions(6, 6))
    assert np.isfinite(logits).all()
