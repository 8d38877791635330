"""Descriptors of training images: for systems that learn on them, described as a gallery image is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cairn.cache import Cache
from cairn.errors import InputError
from cairn.images.manifest import Manifest
from cairn.store.descriptors import open_shards
from cairn.systems.descriptors import extract_descriptors, extract_training_descriptors
from cairn.systems.vocabulary import learn_vocabulary
from tests.systems.conftest import PARAMETERS, TRAINING, Town

VLAD = "rootsift-vlad"


@pytest.fixture(scope="module")
def vocabulary(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary")
    learn_vocabulary(town.manifest, town.root, VLAD, PARAMETERS, path, cache=None, features_code="f")
    return path


def describe(manifest: Manifest, town: Town, vocabulary: Path, output: Path, **more: Any) -> Path:
    output.mkdir()
    arguments = {"wanted": True, "cache": None, "code": "c", "features_code": "f", **more}
    extract_training_descriptors(manifest, town.root, vocabulary, VLAD, PARAMETERS, output, **arguments)
    return output


def test_they_are_those_of_the_training_images_in_the_layout_of_a_gallery(
    town: Town, vocabulary: Path, tmp_path: Path
):
    store = open_shards(describe(town.manifest, town, vocabulary, tmp_path / "training"))
    assert sorted(store.ids) == [f"t{number:02d}" for number in range(TRAINING)]
    (tmp_path / "gallery").mkdir()
    extract_descriptors(
        town.manifest, town.truth, town.root, vocabulary, VLAD, PARAMETERS, tmp_path / "gallery",
        cache=None, code="c", features_code="f",
    )  # fmt: skip
    gallery = open_shards(tmp_path / "gallery")
    assert (store.dim, store.dtype, store.metadata) == (gallery.dim, gallery.dtype, gallery.metadata)
    assert np.allclose(np.linalg.norm(store.array().astype(np.float32), axis=1), 1, atol=2e-3)
    facts = json.loads((tmp_path / "training" / "training_descriptors.json").read_text("utf-8"))
    assert facts["images"] == TRAINING and facts["without_features"] == []


def test_a_warm_cache_gives_the_same_bytes(town: Town, vocabulary: Path, tmp_path: Path):
    cache = Cache(tmp_path / "cache")
    first = describe(town.manifest, town, vocabulary, tmp_path / "first", cache=cache)
    second = describe(town.manifest, town, vocabulary, tmp_path / "second", cache=cache)
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {
        p.name: p.read_bytes() for p in second.iterdir()
    }


def test_nobody_asks(town: Town, vocabulary: Path, tmp_path: Path):
    output = describe(town.manifest, town, vocabulary, tmp_path / "none", wanted=False)
    assert [path.name for path in output.iterdir()] == ["training_descriptors.json"]
    facts = json.loads((output / "training_descriptors.json").read_text("utf-8"))
    assert facts["images"] == 0 and "no head" in facts["note"]


def test_no_training_image_is_an_error(town: Town, vocabulary: Path, tmp_path: Path):
    from dataclasses import replace

    none = replace(town.manifest, train=np.zeros(len(town.manifest), bool))
    with pytest.raises(InputError, match="training manifest has none"):
        describe(none, town, vocabulary, tmp_path / "empty")
