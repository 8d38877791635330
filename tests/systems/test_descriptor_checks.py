"""Checks of stored descriptors: sound ones pass, each kind of damage is found by the check that is for it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.store.descriptors import QUERIES_FILE, open_queries, open_shards, write_shard
from cairn.systems.descriptor_checks import Check, check_descriptors
from cairn.systems.vocabulary import learn_vocabulary
from tests.systems.conftest import PARAMETERS, Town
from tests.systems.test_steps import VLAD, describe

NAMES = ["counts", "finite", "unit_norms", "duplicates", "fresh_sample", "metadata"]


@pytest.fixture(scope="module")
def made(town: Town, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of what was learned and of the descriptors."""
    folder = tmp_path_factory.mktemp("checked")
    vocabulary = folder / "vocabulary"
    vocabulary.mkdir()
    learn_vocabulary(town.manifest, town.root, VLAD, PARAMETERS, vocabulary, cache=None, features_code="f")
    return vocabulary, describe(town, vocabulary, folder / "descriptors")


def check(town: Town, vocabulary: Path, stored: Path, parameters=PARAMETERS) -> dict[str, Check]:
    found = check_descriptors(
        stored, town.manifest, town.truth, town.root, vocabulary, VLAD, parameters, sample=6, seed=1
    )
    assert [one.name for one in found] == NAMES
    assert all("\n" not in one.found for one in found)
    return {one.name: one for one in found}


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, one in checks.items() if not one.passed}


def test_sound_descriptors_pass(town: Town, made: tuple[Path, Path]):
    found = check(town, *made)
    assert failed(found) == set(), found
    assert found["counts"].found == "40 images, 4 queries"
    assert found["unit_norms"].found.endswith("1 are zero")  # g38 is flat
    assert found["duplicates"].found.startswith("0 of 40")  # g39 is g00, byte for byte
    assert found["fresh_sample"].found.startswith("6 described again: least cosine 1.0000")


Change = Callable[[list[str], np.ndarray], tuple[list[str], np.ndarray]]


def rewritten(made: tuple[Path, Path], folder: Path, change: Change, metadata: dict[str, str] | None = None):
    """A copy of the descriptors whose gallery was changed."""
    shutil.copytree(made[1], folder)
    store = open_shards(folder)
    ids, array = change(list(store.ids), store.array())
    write_shard(folder / "0000.parquet", ids, array, store.metadata | (metadata or {}))
    return folder


def swapped(ids: list[str], array: np.ndarray):
    return ids, array[::-1].copy()


def longer(ids: list[str], array: np.ndarray):
    array[3] *= 2
    return ids, array


def same_for_all(ids: list[str], array: np.ndarray):
    return ids, np.repeat(array[:1], len(array), axis=0)


@pytest.mark.parametrize(
    ("change", "wrong", "told"),
    [
        (lambda ids, array: (ids[:-1], array[:-1]), {"counts"}, "no descriptor of 1, first image g39"),
        (lambda ids, array: ([*ids[:5], "x", *ids[6:]], array), {"counts"}, "1 too many, first image x"),
        (longer, {"unit_norms"}, "1 farther than 0.002 from 1, first image g03 (norm 2.0"),
        (swapped, {"fresh_sample"}, "least cosine"),
        (same_for_all, {"duplicates", "fresh_sample"}, "40 of 40 images"),
    ],
    ids=["missing", "another", "norm", "swapped", "constant"],
)
def test_damage_is_found(town: Town, made, tmp_path: Path, change: Change, wrong: set[str], told: str):
    folder = rewritten(made, tmp_path / "changed", change)
    found = check(town, made[0], folder)
    assert wrong <= failed(found) <= wrong | {"fresh_sample"}
    assert any(told in found[name].found for name in wrong)


def test_what_is_not_a_number_is_found(town: Town, made, tmp_path: Path):
    folder = tmp_path / "changed"
    shutil.copytree(made[1], folder)
    store = open_queries(folder)
    array = store.array().astype(np.float32)
    array[2, 5] = np.nan
    metadata = {key.encode(): value.encode() for key, value in store.metadata.items()}
    kind = pa.list_(pa.float16())
    table = pa.table({"query_id": store.ids, "descriptor": pa.array(list(array.astype(np.float16)), kind)})
    pq.write_table(table.replace_schema_metadata(metadata), folder / QUERIES_FILE)
    found = check(town, made[0], folder)
    assert "finite" in failed(found) and found["finite"].found == "1 not finite, first query q2"


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"encoder": "other"}, "image files: encoder is 'other', not 'rootsift-vlad'"),
        ({"learned": "0"}, "learned is '0'"),
        ({"dtype": "float32"}, "dtype is 'float32', not 'float16'"),
    ],
)
def test_other_metadata_is_found(town: Town, made, tmp_path: Path, metadata: dict[str, str], told: str):
    folder = rewritten(made, tmp_path / "changed", lambda ids, array: (ids, array), metadata)
    found = check(town, made[0], folder)
    assert failed(found) == {"metadata"} and told in found["metadata"].found


def test_changed_parameters_are_found(town: Town, made):
    found = check(town, *made, parameters={**PARAMETERS, "local": {"limit": 60}})
    assert "metadata" in failed(found) and "parameters is" in found["metadata"].found
