"""The bag of visual words from pictures to ranking, against the same by hand."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from cairn.encoders import load_encoder
from cairn.encoders.rootsift import RootSift, root
from cairn.errors import InputError, ParameterError
from cairn.images.decode import crop
from cairn.parameters import load_parameters
from cairn.store.sparse import QUERIES_FILE, read_bags, sparse_shards
from cairn.systems.ranking import search
from cairn.systems.readout import make_readout
from cairn.systems.sparse_descriptors import write_descriptors
from cairn.systems.tail import estimate_run
from cairn.systems.vocabulary import learn_vocabulary, read_learned
from cairn.systems.writing import Writing
from tests.systems.conftest import TRAINING, Town

SETTINGS: dict[str, Any] = {
    "local": {"limit": 120},
    "vocabulary": {"words": 40, "sample": 2000, "iterations": 3},
    "power": 0.5,
}


@pytest.fixture(scope="module")
def made(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `vocabulary`, `descriptors` and `ranking`."""
    root_folder = tmp_path_factory.mktemp("bovw")
    for name in ("vocabulary", "descriptors", "ranking"):
        (root_folder / name).mkdir()
    vocabulary = root_folder / "vocabulary"
    learn_vocabulary(
        town.manifest, town.root, "rootsift-bovw", SETTINGS, vocabulary, cache=None, features_code=""
    )
    job = Writing(town.root, "town", vocabulary, SETTINGS, root_folder / "descriptors")
    write_descriptors(town.manifest, town.truth, job, job.output)
    search(job.output, town.manifest, town.truth, {"top": 10}, root_folder / "ranking")
    return root_folder


def features_of(town: Town, name: str, box: Any = None) -> np.ndarray:
    grey = cv2.imread(str(town.root / "images" / f"{name}.jpg"), cv2.IMREAD_GRAYSCALE)
    extractor = RootSift(120, 640, 0.02)
    return root(extractor(grey if box is None else crop(grey, box, name)).descriptors).astype(np.float64)


def bag_of(features: np.ndarray, words: np.ndarray, idf: np.ndarray) -> np.ndarray:
    distances = ((features[:, None] - words[None]) ** 2).sum(axis=2)
    counts = (
        np.bincount(distances.argmin(axis=1), minlength=len(words)) if len(features) else np.zeros(len(words))
    )
    weights = np.sqrt(counts) * idf
    norm = np.linalg.norm(weights)
    return weights / norm if norm else weights


def test_words_weigh_by_how_few_training_images_have_them(town: Town, made: Path):
    learned = read_learned(made / "vocabulary")
    words = learned["words"].astype(np.float64)
    having = np.zeros(len(words))
    for number in range(TRAINING):
        features = features_of(town, f"t{number:02d}")
        having[np.unique(((features[:, None] - words[None]) ** 2).sum(axis=2).argmin(axis=1))] += 1
    np.testing.assert_allclose(learned["idf"], np.log(TRAINING / np.maximum(having, 1)), rtol=1e-6)
    assert len(set(having)) > 1, "or all words weigh the same"


def test_the_ranking_is_that_of_all_products_of_tf_idf(town: Town, made: Path):
    learned = read_learned(made / "vocabulary")
    words, idf = learned["words"].astype(np.float64), learned["idf"].astype(np.float64)
    names = [town.manifest.image_id[row] for row in town.manifest.rows(gallery=True)]
    gallery = np.array([bag_of(features_of(town, name), words, idf) for name in names])
    table = pq.read_table(made / "ranking" / "ranking.parquet").to_pylist()
    for query in town.truth.queries:
        scores = gallery @ bag_of(features_of(town, query.query_id, query.box), words, idf)
        rows = [row for row in table if row["query_id"] == query.query_id]
        for row in rows:
            assert row["score"] == pytest.approx(scores[names.index(row["image_id"])], abs=1e-6)
        order = np.argsort(-scores, kind="stable")
        assert [row["image_id"] for row in rows[:10]] == [names[row] for row in order[:10]]
        assert [row["rank"] for row in rows[:10]] == list(range(10))
        assert {row["image_id"] for row in rows} >= set(town.truth.relevance[query.query_id])
    facts = json.loads((made / "ranking" / "ranking.json").read_text())
    assert facts["stage"] == "global"
    assert facts["index"]["kind"] == "inverted"
    assert facts["index"]["postings"] == int((gallery > 0).sum())


def test_descriptors_are_stored_sparse_and_the_flat_image_has_none(made: Path):
    bags = list(sparse_shards(made / "descriptors"))
    assert sum(map(len, bags)) == 40
    facts = json.loads((made / "descriptors" / "descriptors.json").read_text())
    assert facts["without_features"]["images"] == ["g38"]
    assert len(read_bags(made / "descriptors" / QUERIES_FILE, "query_id")) == 4
    assert facts["words_per_image"] == sum(len(one.words) for one in bags) / 40


def test_the_same_bytes_twice(town: Town, made: Path, tmp_path: Path):
    job = Writing(town.root, "town", made / "vocabulary", SETTINGS, tmp_path)
    write_descriptors(town.manifest, town.truth, job, tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (made / "descriptors" / path.name).read_bytes(), path.name


def test_too_few_features_for_so_many_words_are_said():
    encoder = load_encoder("rootsift-bovw", {"vocabulary": {"words": 5000}})
    features = [encoder.prepare(np.zeros((60, 60), np.uint8))]
    with pytest.raises(InputError, match="5000 words needs as many features; the 1 training images gave 0"):
        encoder.learn(lambda: iter(features), 1)


def test_what_needs_dense_descriptors_is_refused(town: Town, made: Path, tmp_path: Path):
    descriptors = made / "descriptors"
    with pytest.raises(InputError, match="needs dense descriptors"):
        make_readout(descriptors, None, {"centre": "gallery"}, tmp_path)
    with pytest.raises(InputError, match=r"search options \(aqe-n3\) need dense"):
        options = {"expansion": {"method": "average", "neighbours": 3}}
        search(descriptors, town.manifest, town.truth, options, tmp_path)
    with pytest.raises(InputError, match="dense descriptors"):
        estimate_run(descriptors, town.truth, {"gallery": 100}, tmp_path)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("rerank: {method: aqe}", "systems.words.rerank: descriptors of rootsift-bovw are sparse"),
        (
            "rerank: {method: geometry, shortlist: 10, after: {method: superglobal, shortlist: 20}}",
            "systems.words.rerank.after: descriptors of rootsift-bovw are sparse",
        ),
        ("readout: {dimension: 5}", "systems.words.readout: descriptors of rootsift-bovw are sparse"),
        ("search: {expansion: {}}", "systems.words.search.expansion: descriptors"),
        (
            "{encoder: colour-histogram, heads: {}, search: {normalisation: {}}}",
            "remove heads or normalisation",
        ),
        ("uncropped_queries: 1", "systems.words.uncropped_queries = 1: true or false"),
        ("{uncropped_queries: true, rerank: {method: geometry}}", "nothing is added; remove rerank"),
        ("search: {index: {kind: ivf-flat}}", "systems.words.search.index.kind = 'ivf-flat'"),
    ],
)
def test_params_say_so_before_anything_runs(tmp_path: Path, more: str, words: str):
    path = tmp_path / "params.yaml"
    entry = {"encoder": "rootsift-bovw", **yaml.safe_load(more)}
    path.write_text(yaml.safe_dump({"systems": {"words": entry}}))
    with pytest.raises(ParameterError, match=words):
        load_parameters(path)
