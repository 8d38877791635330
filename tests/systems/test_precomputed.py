"""A user's own features in every kind of file, and what is wrong with them, said by name."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import torch

from cairn.encoders import load_encoder
from cairn.encoders.feature_files import read_named
from cairn.errors import InputError, ParameterError
from cairn.files import file_digest
from cairn.store.descriptors import open_queries, open_shards
from cairn.systems.precomputed import write_descriptors, write_training_descriptors
from cairn.systems.vocabulary import learn_vocabulary
from cairn.systems.writing import Writing
from tests.systems.conftest import GALLERY, QUERIES, TRAINING, Town

DIM = 6
IDS = [f"g{number:02d}" for number in range(GALLERY)]
ASKED = [f"q{number}" for number in range(QUERIES)]
LEARNED = [f"t{number:02d}" for number in range(TRAINING)]


def drawn(count: int, seed: int, dtype: str = "float32") -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((count, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)


X, Q, T = drawn(GALLERY, 0), drawn(QUERIES, 1), drawn(TRAINING, 2)


def write(town: Town, tmp_path: Path, output: str = "out", **settings: Any) -> Path:
    folder = tmp_path / output
    folder.mkdir()
    settings = {"features": str(tmp_path / "features"), **settings}
    job = Writing(town.root, "town", Path(), settings, folder)
    write_descriptors(town.manifest, town.truth, job, folder)
    return folder


@pytest.fixture
def features(tmp_path: Path) -> Path:
    folder = tmp_path / "features"
    folder.mkdir()
    return folder


def as_npy(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", X)
    np.save(folder / "q.npy", Q)
    return {
        "images": {"file": "x.npy", "ids": "manifest"},
        "queries": {"file": "q.npy", "ids": "manifest"},
    }


def as_npy_in_another_order(folder: Path) -> dict[str, Any]:
    order = np.random.default_rng(5).permutation(GALLERY)
    np.save(folder / "x.npy", X[order])
    np.save(folder / "q.npy", Q)
    (folder / "x.txt").write_text("".join(f"{IDS[row]}\n" for row in order))
    (folder / "q.json").write_text(json.dumps(ASKED))
    return {"images": {"file": "x.npy", "ids": "x.txt"}, "queries": {"file": "q.npy", "ids": "q.json"}}


def as_npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "all.npz", gallery=X[::-1], names=np.array(IDS[::-1]), asked=Q, who=np.array(ASKED))
    return {
        "images": {"file": "all.npz", "array": "gallery", "ids": "names"},
        "queries": {"file": "all.npz", "array": "asked", "ids": "who"},
    }


def as_torch(folder: Path) -> dict[str, Any]:
    torch.save({"gallery": {"X": torch.tensor(X), "ids": IDS}, "Q": torch.tensor(Q)}, folder / "all.pt")
    return {
        "images": {"file": "all.pt", "array": "gallery/X", "ids": "gallery/ids"},
        "queries": {"file": "all.pt", "array": "Q", "ids": "manifest"},
    }


def as_matlab(folder: Path) -> dict[str, Any]:
    scipy.io.savemat(folder / "town.mat", {"X": X.T, "Q": Q.T})
    return {"images": {"file": "town.mat"}, "queries": {"file": "town.mat"}}


def as_matlab_73(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "town.mat", "w", userblock_size=512) as file:
        # MATLAB lays arrays out by columns: HDF5 shows a [dim, images] array as [images, dim].
        file["X"], file["Q"] = X, Q
        file.create_group("#refs#")
    return {"images": {"file": "town.mat"}, "queries": {"file": "town.mat"}}


def as_pickle(folder: Path) -> dict[str, Any]:
    held = {"X": X, "Q": Q.tolist(), "ids": IDS}
    (folder / "all.pkl").write_bytes(pickle.dumps(held, protocol=2))
    return {
        "images": {"file": "all.pkl", "array": "X", "ids": "ids"},
        "queries": {"file": "all.pkl", "array": "Q", "ids": "manifest"},
    }


def as_hdf5(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "all.h5", "w") as file:
        file["town/X"], file["town/Q"], file["town/ids"] = X, Q, IDS
    return {
        "images": {"file": "all.h5", "array": "town/X", "ids": "town/ids"},
        "queries": {"file": "all.h5", "array": "town/Q", "ids": "manifest"},
    }


def as_parquet(folder: Path) -> dict[str, Any]:
    for name, column, ids, rows in (("x", "image_id", IDS, X), ("q", "query_id", ASKED, Q)):
        kind = pa.list_(pa.float32(), DIM) if name == "x" else pa.list_(pa.float32())
        table = {column: pa.array(ids), "descriptor": pa.array(rows.tolist(), kind)}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    return {"images": {"file": "x.parquet"}, "queries": {"file": "q.parquet"}}


@pytest.mark.parametrize(
    "kind",
    [
        as_npy,
        as_npy_in_another_order,
        as_npz,
        as_torch,
        as_matlab,
        as_matlab_73,
        as_pickle,
        as_hdf5,
        as_parquet,
    ],
)
def test_every_kind_of_file_gives_the_same_descriptors(
    town: Town, tmp_path: Path, features: Path, kind: Callable[[Path], dict[str, Any]]
):
    output = write(town, tmp_path, **kind(features))
    gallery, queries = open_shards(output), open_queries(output)
    assert gallery.dtype == np.float32
    np.testing.assert_array_equal(gallery.take(gallery.rows_of(IDS)), X)
    np.testing.assert_array_equal(queries.take(queries.rows_of(ASKED)), Q)
    facts = json.loads((output / "descriptors.json").read_text())
    assert (facts["images"], facts["queries"], facts["dim"]) == (GALLERY, QUERIES, DIM)
    sources = json.loads((output / "sources.json").read_text())["sources"]
    assert {source["name"] for source in sources} == {path.name for path in features.iterdir()}
    for source in sources:
        assert source["sha256"] == file_digest(features / source["name"])
        assert source["path"] == str(features / source["name"])


def test_half_precision_stays_and_doubles_become_single(town: Town, tmp_path: Path, features: Path):
    settings = as_npy(features)
    np.save(features / "x.npy", X.astype(np.float16))
    np.save(features / "q.npy", Q.astype(np.float64))
    output = write(town, tmp_path, **settings)
    assert open_shards(output).dtype == np.float16
    assert open_queries(output).dtype == np.float32
    output = write(town, tmp_path, "again", dtype="float16", **settings)
    assert open_queries(output).dtype == np.float16


def test_rows_that_are_no_unit_vectors_need_a_word(town: Town, tmp_path: Path, features: Path):
    settings = as_npy(features)
    scaled = X.copy()
    scaled[7] *= 3
    scaled[9] = 0
    np.save(features / "x.npy", scaled)
    with pytest.raises(
        InputError, match=r"x\.npy: the feature of 'g07' has the norm 3, not 1; say `norm: l2`"
    ):
        write(town, tmp_path, **settings)
    output = write(town, tmp_path, "l2", norm="l2", **settings)
    gallery = open_shards(output)
    expected = X.copy()
    expected[9] = 0
    np.testing.assert_allclose(gallery.take(gallery.rows_of(IDS)), expected, atol=1e-6)
    assert json.loads((output / "descriptors.json").read_text())["without_features"]["images"] == ["g09"]
    gallery = open_shards(write(town, tmp_path, "none", norm="none", **settings))
    np.testing.assert_array_equal(gallery.take(gallery.rows_of(IDS)), scaled)


def ids_wrong(change: Callable[[list[str]], list[str]]) -> Callable[[Path], dict[str, Any]]:
    def change_ids(folder: Path) -> dict[str, Any]:
        settings = as_npy(folder)
        ids = change(list(IDS))
        np.save(folder / "x.npy", drawn(len(ids), 3))
        (folder / "x.txt").write_text("\n".join(ids))
        return settings | {"images": {"file": "x.npy", "ids": "x.txt"}}

    return change_ids


def cut(folder: Path) -> dict[str, Any]:
    settings = as_npy(folder)
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:-8])
    return settings


def turned(folder: Path) -> dict[str, Any]:
    settings = as_npy(folder)
    np.save(folder / "x.npy", X.T)
    return settings


def not_finite(folder: Path) -> dict[str, Any]:
    settings = as_npy(folder)
    rows = X.copy()
    rows[4, 2] = np.nan
    np.save(folder / "x.npy", rows)
    return settings


def other_dimension(folder: Path) -> dict[str, Any]:
    settings = as_npy(folder)
    np.save(folder / "q.npy", np.eye(QUERIES, 5, dtype=np.float32))
    return settings


def linked(folder: Path) -> dict[str, Any]:
    as_hdf5(folder)
    with h5py.File(folder / "link.h5", "w") as file:
        file["X"] = h5py.ExternalLink("all.h5", "town/X")
    side = {"file": "link.h5", "array": "X", "ids": "manifest"}
    return {"images": side, "queries": side}


def evil(folder: Path) -> dict[str, Any]:
    (folder / "x.pkl").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    return {"images": {"file": "x.pkl", "ids": "manifest"}, "queries": {"file": "x.pkl", "ids": "manifest"}}


def evil_torch(folder: Path) -> dict[str, Any]:
    (folder / "x.pt").write_bytes(b"\x80\x02cos\nsystem\nX\x05\x00\x00\x00pwnedq\x00\x85q\x01Rq\x02.")
    return {"images": {"file": "x.pt", "ids": "manifest"}, "queries": {"file": "x.pt", "ids": "manifest"}}


def which(folder: Path) -> dict[str, Any]:
    as_npz(folder)
    return {"images": {"file": "all.npz", "ids": "names"}}


def nobody(folder: Path) -> dict[str, Any]:
    as_npy(folder)
    return {"images": {"file": "x.npy"}}


def whole_numbers(folder: Path) -> dict[str, Any]:
    settings = as_npy(folder)
    np.save(folder / "x.npy", np.ones((GALLERY, DIM), np.int32))
    return settings


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ids_wrong(lambda ids: ids[:-2]), "no feature for 'g38', 'g39'"),
        (ids_wrong(lambda ids: [*ids, "h1"]), "'h1' is not in the benchmark .*extra: ignore"),
        (ids_wrong(lambda ids: [*ids[:-1], "h1"]), "no feature for 'g39'; 'h1' is not in the benchmark"),
        (ids_wrong(lambda ids: [*ids, "g03", "g05"]), "'g03', 'g05' of images more than once"),
        (cut, "x.npy"),
        (turned, "6 rows of images for 40 ids; its columns are as many"),
        (not_finite, "the feature of 'g04' is not finite"),
        (other_dimension, "images have 6 numbers, queries 5"),
        (linked, "a link to elsewhere"),
        (evil, "refused pickle"),
        (evil_torch, "weights_only refuses"),
        (which, "say which array: it holds gallery, names, asked, who"),
        (nobody, r"whose rows are these\? Say images.ids: `manifest`"),
        (whole_numbers, r"int32 \[40, 6\]"),
    ],
)
def test_a_fault_is_one_line_that_names_it(
    town: Town,
    tmp_path: Path,
    features: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Path], dict[str, Any]],
    words: str,
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words) as caught:
        write(town, tmp_path, **fault(features))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(lambda x: x.to_sparse(), id="sparse"),
        pytest.param(lambda x: x.to("meta"), id="without values"),
        pytest.param(lambda x: x.to(torch.float8_e4m3fn), id="8 bits"),
        pytest.param(lambda x: torch.complex(x, x).conj(), id="conjugate"),
    ],
)
def test_a_tensor_that_is_no_plain_one_is_named(tmp_path: Path, odd: Callable[[Any], Any]):
    torch.save({"x": odd(torch.from_numpy(X))}, tmp_path / "x.pt")
    with pytest.raises(InputError, match=r"x\.pt: x is no plain dense tensor"):
        read_named(tmp_path / "x.pt", "x")


def test_keys_that_are_numbers_can_be_named(tmp_path: Path):
    torch.save({1: torch.from_numpy(X), 2: torch.zeros(1)}, tmp_path / "x.pt")
    assert np.array_equal(read_named(tmp_path / "x.pt", "1"), X)


def test_a_dataset_without_its_values_fills_no_memory(tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (20_000, 20_000), "f4", chunks=(100, 100))
    with pytest.raises(InputError, match=r"'x' of shape \(20000, 20000\) is not all there"):
        read_named(tmp_path / "x.h5", "x")


def test_ids_of_no_interest_are_left_out_where_that_is_said(town: Town, tmp_path: Path, features: Path):
    settings = as_npy(features)
    np.save(features / "x.npy", np.concatenate([drawn(3, 9), X]))
    (features / "x.txt").write_text("\n".join(["a", "b", "c", *IDS]))
    side = {"file": "x.npy", "ids": "x.txt", "extra": "ignore"}
    gallery = open_shards(write(town, tmp_path, **settings | {"images": side}))
    np.testing.assert_array_equal(gallery.take(gallery.rows_of(IDS)), X)


def test_training_features_are_brought_too(town: Town, tmp_path: Path, features: Path):
    settings = {"features": str(features), **as_npy(features)}
    np.save(features / "t.npy", T)
    output = tmp_path / "training"
    output.mkdir()
    job, images = Writing(town.root, "town", Path(), settings, output), town.manifest
    with pytest.raises(InputError, match="say where they are under `training`"):
        write_training_descriptors(images, images, job, output)
    settings["training"] = {"file": "t.npy", "ids": "manifest"}
    write_training_descriptors(images, images, job, output)
    store = open_shards(output)
    np.testing.assert_array_equal(store.take(store.rows_of(LEARNED)), T)
    part = replace(images, train=images.train & (np.array(images.image_id) != "t03"))
    (tmp_path / "part").mkdir()
    write_training_descriptors(images, part, job, tmp_path / "part")
    store = open_shards(tmp_path / "part")
    assert sorted(store.ids) == [one for one in LEARNED if one != "t03"]
    np.testing.assert_array_equal(store.take(store.rows_of(["t04"])), T[4:5])


def test_features_of_each_benchmark_stand_in_its_own_folder(town: Town, tmp_path: Path, features: Path):
    (features / "town").mkdir()
    settings = as_npy(features / "town")
    output = write(town, tmp_path, features=str(tmp_path / "features" / "{benchmark}"), **settings)
    assert len(open_shards(output)) == GALLERY


def test_a_file_of_its_own_needs_no_folder(town: Town, tmp_path: Path, features: Path):
    as_matlab(features)
    output = write(town, tmp_path, features=str(features / "town.mat"))
    gallery = open_shards(output)
    np.testing.assert_array_equal(gallery.take(gallery.rows_of(IDS)), X)
    source = json.loads((output / "sources.json").read_text())["sources"][0]
    assert source["path"] == str(features / "town.mat")


def test_paths_stay_below_the_folder_and_keys_are_checked():
    with pytest.raises(ParameterError, match=r"images\.file = '\.\./x\.npy'"):
        load_encoder("precomputed", {"features": "f", "images": {"file": "../x.npy"}})
    with pytest.raises(ParameterError, match="features is missing"):
        load_encoder("precomputed", {})


def test_features_have_nothing_to_learn(town: Town, tmp_path: Path):
    learn_vocabulary(town.manifest, town.root, "precomputed", {}, tmp_path, cache=None, features_code="")
    assert json.loads((tmp_path / "vocabulary.json").read_text())["learns"] is False
