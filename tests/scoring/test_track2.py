"""DISC21 track 2: matching, normalisation and the HDF5 reader."""

import re

import h5py
import numpy as np
import pytest

from cairn.errors import InputError, UsageError
from cairn.metrics.normalization import nth_neighbor_norms
from cairn.scoring import disc21, track2
from tests.scoring.cases import write_csv


def unit(generator, *shape):
    vectors = generator.standard_normal(shape, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write(path, names, vectors):
    with h5py.File(path, "w") as file:
        file["vectors"] = vectors
        file["image_names"] = np.array([name.encode() for name in names])
    return path


def test_norms_are_the_nth_largest_similarity():
    generator = np.random.default_rng(0)
    query, training = unit(generator, 9, 8), unit(generator, 50, 8)
    similarity = np.sort(query @ training.T, axis=1)[:, ::-1]
    for n in (1, 3, 50):
        np.testing.assert_allclose(
            nth_neighbor_norms(query, training, n, 0.5), -0.5 * similarity[:, n - 1], rtol=1e-6
        )
    with pytest.raises(ValueError, match="expected 1 to 50"):
        nth_neighbor_norms(query, training, 51)


@pytest.mark.parametrize("limit", [1, 7, 40, 10_000])
def test_best_matches(monkeypatch, limit):
    monkeypatch.setattr(track2, "BLOCK", 64)
    generator = np.random.default_rng(1)
    query, reference = unit(generator, 30, 4), unit(generator, 20, 4)
    reference[5] = reference[6]  # an exact duplicate: ties
    norms = generator.standard_normal(30).astype(np.float32)
    distance = -((query[:, None] - reference[None]) ** 2).sum(axis=2)
    for scores, given in ((distance, None), (query @ reference.T + norms[:, None], norms)):
        rows, columns, value = track2.best_matches(query, reference, given, limit)
        np.testing.assert_allclose(value, scores[rows, columns], atol=1e-5)
        assert len(value) == min(limit, scores.size)
        assert np.sort(scores.ravel())[::-1][: len(value)] == pytest.approx(np.sort(value)[::-1], abs=1e-5)
        assert np.array_equal(np.lexsort((columns, rows)), np.arange(len(rows)))


def test_as_predictions_in_a_file(tmp_path):
    generator = np.random.default_rng(2)
    query, reference, training = (unit(generator, n, 16) for n in (12, 40, 30))
    query[:6] = reference[:6] + 0.1 * query[:6]
    names = [f"Q{i:05d}" for i in range(12)]
    references = [f"R{i:06d}" for i in range(40)]
    pairs = [(name, references[i] if i < 8 else "") for i, name in enumerate(names[:11])]
    truth = write_csv(tmp_path / "truth.csv", ["query_id", "reference_id"], pairs)
    paths = (
        [write(tmp_path / "q.h5", [f"queries/{name}.jpg" for name in names], query)],
        [
            write(tmp_path / "r0.h5", references[:15], reference[:15]),
            write(tmp_path / "r1.h5", references[15:], reference[15:]),
        ],
    )
    third = [write(tmp_path / "t.h5", [f"T{i}" for i in range(30)], training)]
    unweighted = np.zeros(len(query), np.float32)
    weights = nth_neighbor_norms(query, training, 2, 0.7)
    for options, norms in (((), None), ((third, 2, 0.7), weights), (((), 1, 1.0, True), unweighted)):
        run = track2.score(truth, *paths, *options)
        rows, columns, value = track2.best_matches(
            query[:11], reference, None if norms is None else norms[:11]
        )
        predictions = [
            (names[q], references[r], repr(float(s))) for q, r, s in zip(rows, columns, value, strict=True)
        ]
        written = write_csv(tmp_path / "p.csv", ["query_id", "reference_id", "score"], predictions)
        assert run.rows == disc21.score(written, truth).rows
    with pytest.raises(UsageError, match="expected 1 to 30"):
        track2.score(truth, *paths, third, 31)


@pytest.mark.parametrize(
    ("names", "vectors", "message"),
    [
        (["a"], np.zeros((1, 257), np.float32), "shape (1, 257); expected floats [images, at most 256]"),
        (["a"], np.zeros((1, 4), np.int32), "expected floats"),
        (["a"], np.zeros(4, np.float32), "shape (4,)"),
        (["a", "b"], np.zeros((1, 4), np.float32), "image_names and vectors differ in length"),
        (["a", "a.jpg"], np.zeros((2, 4), np.float32), "image a occurs twice"),
        (["a", "b"], np.array([[0, 0], [0, np.nan]], np.float32), "image b: its descriptor is not finite"),
        (["a", ""], np.zeros((2, 4), np.float32), "something that is not a name"),
    ],
)
def test_hostile_descriptors(tmp_path, names, vectors, message):
    with pytest.raises(InputError, match=re.escape(message)):
        track2.read_descriptors([write(tmp_path / "d.h5", names, vectors)])


def test_files_that_are_no_descriptors(tmp_path):
    path = write(tmp_path / "d.h5", ["a", "b"], np.ones((2, 4), np.float32))
    whole = path.read_bytes()
    for data in (b"", b"text", whole[:100], whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"d\.h5"):
            track2.read_descriptors([path])
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["vectors"] = h5py.ExternalLink("d.h5", "vectors")
        file["image_names"] = np.array([b"a"])
    with pytest.raises(InputError, match="the dataset 'vectors' is missing"):
        track2.read_descriptors([tmp_path / "link.h5"])
    with h5py.File(tmp_path / "soft.h5", "w") as file:
        file["elsewhere"] = np.ones((1, 4), np.float32)
        file["vectors"] = h5py.SoftLink("/elsewhere")
    (tmp_path / "raw.bin").write_bytes(bytes(64))
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file.create_dataset("vectors", (4, 4), "f4", external=[(tmp_path / "raw.bin", 0, 64)])
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((2, 4), "f4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "d.h5"), "vectors", (2, 4))
        file.create_virtual_dataset("vectors", layout)
    for name in ("soft", "raw", "virtual"):
        with pytest.raises(InputError, match="the dataset 'vectors' is missing"):
            track2.read_descriptors([tmp_path / f"{name}.h5"])
    with h5py.File(tmp_path / "bomb.h5", "w") as file:  # 16 GiB of zeros that were never written
        file.create_dataset("vectors", (1 << 24, 256), "f4", chunks=(1024, 256), compression="gzip")
        file["image_names"] = np.array([b"a"])
    with pytest.raises(InputError, match=r"claims 17,179,869,184 bytes where 0 are stored"):
        track2.read_descriptors([tmp_path / "bomb.h5"])
    with h5py.File(tmp_path / "chunk.h5", "w") as file:  # a compressed chunk that does not inflate
        chunked = file.create_dataset("vectors", (1, 4), "f4", chunks=(1, 4), compression="gzip")
        chunked.id.write_direct_chunk((0, 0), b"no deflated bytes")
        file["image_names"] = np.array([b"a"])
    with pytest.raises(InputError, match=r"chunk\.h5: not a readable HDF5 file") as caught:
        track2.read_descriptors([tmp_path / "chunk.h5"])
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        track2.read_descriptors([tmp_path / "none.h5"])
    one = write(tmp_path / "one.h5", ["a"], np.ones((1, 4), np.float32))
    two = write(tmp_path / "two.h5", ["b"], np.ones((1, 5), np.float32))
    with pytest.raises(InputError, match="5 dimensions"):
        track2.read_descriptors([one, two])


@pytest.mark.parametrize(
    ("value", "message"), [(1e30, "has the length 2e"), (3e38, "has the length 6e"), (1e300, "is not finite")]
)
def test_descriptors_whose_products_overflow_are_refused(tmp_path, value, message):
    (tmp_path / "gt.csv").write_text("q0,r0\n")
    queries = write(tmp_path / "q.hdf5", ["q0"], np.full((1, 4), value))
    references = write(tmp_path / "r.hdf5", ["r0"], np.eye(1, 4))
    with pytest.raises(InputError, match=f"q.hdf5: image q0: its descriptor {message}"):
        track2.score(tmp_path / "gt.csv", [queries], [references], inner_product=True)


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), -1e30])
def test_a_factor_that_is_none(tmp_path, factor):
    with pytest.raises(UsageError, match="the factor is"):
        track2.score(tmp_path / "gt.csv", [], [], [], 1, factor)
