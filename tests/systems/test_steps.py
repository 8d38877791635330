"""The steps of a system from training images to re-ranked lists, on a few drawn pictures."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.cache import Cache
from cairn.errors import ArtifactError, CairnError, ImageError, InputError, ParameterError
from cairn.images.manifest import build_manifest, list_entries, manifest_of
from cairn.rerank import IMAGES_FILE, QUERIES_FILE
from cairn.store.descriptors import open_queries, open_shards
from cairn.store.local import open_local
from cairn.systems import extraction
from cairn.systems.descriptors import extract_descriptors
from cairn.systems.local import extract_local
from cairn.systems.ranking import search
from cairn.systems.reranking import rerank
from cairn.systems.vocabulary import learn_vocabulary, read_learned
from tests.systems.conftest import PARAMETERS, Town

VLAD, HISTOGRAM = "rootsift-vlad", "colour-histogram"
GEOMETRY = {"method": "geometry", "shortlist": 10}
SEARCH = {"top": 20}
STEPS = ("vocabulary", "descriptors", "ranking", "local", "reranking")


def run(town: Town, output: Path, cache: Cache | None = None, encoder: str = VLAD) -> Path:
    """All steps, one folder each under `output`."""
    parameters = PARAMETERS if encoder == VLAD else {}
    second = GEOMETRY if encoder == VLAD else {"method": "none"}
    vocabulary, descriptors, ranking, local, reranking = (output / step for step in STEPS)
    for step in STEPS:
        (output / step).mkdir(parents=True)
    manifest, truth, root = town.manifest, town.truth, town.root
    learn_vocabulary(manifest, root, encoder, parameters, vocabulary, cache=cache, features_code="f")
    describe(town, vocabulary, descriptors, cache, encoder)
    search(descriptors, manifest, truth, SEARCH, ranking)
    extract_local(
        ranking, manifest, truth, root, encoder, parameters, second, local, cache=cache, features_code="f"
    )
    rerank(ranking, local, manifest, truth, second, reranking)
    return output


def describe(
    town: Town,
    vocabulary: Path,
    output: Path,
    cache: Cache | None = None,
    encoder: str = VLAD,
    code: str = "c",
    features_code: str = "f",
) -> Path:
    output.mkdir(exist_ok=True)
    extract_descriptors(
        town.manifest,
        town.truth,
        town.root,
        vocabulary,
        encoder,
        PARAMETERS if encoder == VLAD else {},
        output,
        cache=cache,
        code=code,
        features_code=features_code,
    )
    return output


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the views whose features are made anew from now on (in this process)."""
    made: list[str] = []
    original = extraction.local_features

    def counted(source, view, extractor):
        made.append(view.name)
        return original(source, view, extractor)

    monkeypatch.setattr(extraction, "local_features", counted)
    return made


@pytest.fixture(scope="module")
def done(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(town, tmp_path_factory.mktemp("run"))


def test_files_of_a_run(done: Path):
    assert set(contents(done)) == {
        "vocabulary/vocabulary.npz",
        "vocabulary/vocabulary.json",
        "descriptors/0000.parquet",
        "descriptors/queries.parquet",
        "descriptors/descriptors.json",
        "ranking/ranking.parquet",
        "ranking/ranking.json",
        "ranking/index.faiss",
        "local/queries.hdf5",
        "local/images.hdf5",
        "local/local.json",
        "reranking/reranked.parquet",
        "reranking/reranking.json",
    }


def test_descriptors_are_unit_vectors_and_zero_without_features(done: Path):
    store, queries = open_shards(done / "descriptors"), open_queries(done / "descriptors")
    norms = dict(zip(store.ids, np.linalg.norm(store.array().astype(np.float32), axis=1), strict=True))
    assert norms.pop("g38") == 0
    assert np.allclose(list(norms.values()), 1, atol=2e-3) and len(norms) == 39
    assert queries.ids == ["q0", "q1", "q2", "q3"] and queries.dim == store.dim == 8 * 16
    assert store.dtype == np.float16 and store.metadata["encoder"] == VLAD
    assert json.loads(store.metadata["parameters"])["local"]["versions"]["cv2"]
    facts = json.loads((done / "descriptors" / "descriptors.json").read_text())
    assert facts["without_features"] == {"images": ["g38"], "queries": []}
    assert facts["facts"]["weights"] == "none"


def test_the_ranking_holds_the_top_and_every_judged_image_with_its_exact_rank(done: Path, town: Town):
    table = pq.read_table(done / "ranking" / "ranking.parquet")
    assert [str(field.type) for field in table.schema] == ["string", "int32", "int32", "string", "float"]
    store, queries = open_shards(done / "descriptors"), open_queries(done / "descriptors")
    ids = town.manifest.image_id[:40]
    gallery = store.array()[store.rows_of(ids)].astype(np.float64)
    rows = table.to_pylist()
    assert list(dict.fromkeys(row["query_id"] for row in rows)) == ["q0", "q1", "q2", "q3"]
    for number, vector in enumerate(queries.array().astype(np.float64)):
        found = [row for row in rows if row["query_id"] == f"q{number}"]
        scores = gallery @ vector
        order = np.lexsort((np.arange(40), -scores))
        rank_of = {ids[row]: rank for rank, row in enumerate(order)}
        assert [row["image_id"] for row in found[:20]] == [ids[row] for row in order[:20]]
        behind = sorted(rank_of[name] for name in town.truth.relevance[f"q{number}"] if rank_of[name] >= 20)
        assert [row["rank"] for row in found] == [*range(20), *behind]
        assert all(rank_of[row["image_id"]] == row["rank"] for row in found)
        assert all(ids[row["image_row"]] == row["image_id"] for row in found)
        assert np.allclose(
            [row["score"] for row in found], [scores[row["image_row"]] for row in found], atol=1e-4
        )
    # An exact duplicate ties and stands right behind, by manifest row.
    first = [row for row in rows if row["query_id"] == "q0"][:2]
    assert [row["image_id"] for row in first] == ["g00", "g39"] and first[0]["score"] == first[1]["score"]
    facts = json.loads((done / "ranking" / "ranking.json").read_text())
    assert facts["index"]["recall"]["20"] > 0.95 and facts["gallery"] == 40 and facts["top"] == 20


def test_local_features_of_queries_and_shortlisted_images_only(done: Path, town: Town):
    rows = pq.read_table(done / "ranking" / "ranking.parquet").to_pylist()
    wanted = {row["image_id"] for row in rows if row["rank"] < 10}
    images, queries = open_local(done / "local" / IMAGES_FILE), open_local(done / "local" / QUERIES_FILE)
    assert set(images.ids) == wanted and queries.ids == ["q0", "q1", "q2", "q3"]
    assert images.dtype == np.uint8 and 0 < images.keypoints <= 120
    # A query's features lie inside its crop.
    positions = queries.read("q0").positions
    assert positions[:, 0].max() < 142 and positions[:, 1].max() < 104


def test_reranking_verifies_the_right_image_and_keeps_the_rest(done: Path):
    before = pq.read_table(done / "ranking" / "ranking.parquet").to_pylist()
    table = pq.read_table(done / "reranking" / "reranked.parquet")
    assert table.schema.metadata[b"stage"] == b"geometry-k10"
    assert json.loads((done / "reranking" / "reranking.json").read_text())["stage"] == "geometry-k10"
    after = table.to_pylist()
    for number in range(4):
        old = [row for row in before if row["query_id"] == f"q{number}"]
        new = [row for row in after if row["query_id"] == f"q{number}"]
        assert new[0]["image_id"] == f"g{number:02d}" and new[0]["inliers"] > 20
        assert new[0]["score"] > new[0]["global_score"]
        assert [row["rank"] for row in new] == [row["rank"] for row in old]
        assert [row["image_id"] for row in new[10:]] == [row["image_id"] for row in old[10:]]
        assert {row["image_id"] for row in new[:10]} == {row["image_id"] for row in old[:10]}
        assert [row["inliers"] for row in new[10:]] == [-1] * (len(new) - 10)
        scores = [row["score"] for row in new]
        assert scores == sorted(scores, reverse=True)


def test_the_same_bytes_again_with_and_without_cache_and_with_any_number_of_workers(
    done: Path, town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(extraction, "FEW", 2)
    for name, cache, workers in (("cold", True, "2"), ("warm", True, "1"), ("none", False, "3")):
        monkeypatch.setenv("CAIRN_WORKERS", workers)
        again = run(town, tmp_path / name, Cache(tmp_path / "cache") if cache else None)
        assert contents(again) == contents(done), name


def test_steps_share_features_and_a_warm_cache_makes_none(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = count_calls(monkeypatch)
    cache = Cache(tmp_path / "cache")
    run(town, tmp_path / "first", cache)
    # Every image once: 12 for training, 40 and 4 for descriptors; the local step finds all of its own.
    assert len(made) == 12 + 40 + 4 - 1  # g39 is the same file as g00
    run(town, tmp_path / "second", cache)
    assert len(made) == 55


def test_a_new_image_is_the_only_one_extracted(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = Cache(tmp_path / "cache")
    run(town, tmp_path / "first", cache)
    rows = [row for row in range(len(town.manifest)) if town.manifest.image_id[row] != "g07"]
    entries = [
        entry
        for entry in (
            replace(
                e,
                image_id=Path(e.member).stem,
                **{{"g": "gallery", "q": "query", "t": "train"}[e.member[0]]: True},
            )
            for e in list_entries("images", town.root)
        )
        if entry.image_id in {town.manifest.image_id[row] for row in rows}
    ]
    smaller = Town(town.root, manifest_of(build_manifest(entries, town.root)), town.truth)
    other = Cache(tmp_path / "other")
    describe(smaller, tmp_path / "first" / "vocabulary", tmp_path / "small", other)
    made = count_calls(monkeypatch)
    describe(town, tmp_path / "first" / "vocabulary", tmp_path / "large", other)
    assert made == ["g07"]
    assert contents(tmp_path / "large") == contents(tmp_path / "first" / "descriptors")


def test_changed_code_changes_the_output_even_with_a_warm_cache(
    done: Path, town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache, vocabulary = Cache(tmp_path / "cache"), done / "vocabulary"
    before = contents(describe(town, vocabulary, tmp_path / "before", cache))
    from cairn.systems import features

    original = features.decode_gray
    monkeypatch.setattr(features, "decode_gray", lambda *asked: 255 - original(*asked))
    made = count_calls(monkeypatch)
    # A helper that changes pixels has another digest; with the old digest the old results would be taken.
    assert contents(describe(town, vocabulary, tmp_path / "same", cache)) == before and made == []
    after = contents(describe(town, vocabulary, tmp_path / "after", cache, code="d", features_code="g"))
    assert len(made) == 43
    assert after["0000.parquet"] != before["0000.parquet"]
    assert after["queries.parquet"] != before["queries.parquet"]
    # New code of the step alone, features as they were: nothing is extracted again.
    made.clear()
    assert (
        contents(describe(town, vocabulary, tmp_path / "step", cache, code="e", features_code="f")) == before
    )
    assert made == []


def test_damaged_cache_entries_are_made_again(done: Path, town: Town, tmp_path: Path, monkeypatch):
    cache = Cache(tmp_path / "cache")
    run(town, tmp_path / "first", cache)
    for path in cache.folder.glob("??/*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    made = count_calls(monkeypatch)
    assert contents(run(town, tmp_path / "second", cache)) == contents(done)
    assert len(made) == 55
    made.clear()
    assert contents(run(town, tmp_path / "third", cache)) == contents(done)
    assert made == []


def test_an_encoder_without_learning_or_local_features(town: Town, tmp_path: Path):
    out = run(town, tmp_path / "run", encoder=HISTOGRAM)
    assert set(contents(out / "vocabulary")) == {"vocabulary.json"}
    assert json.loads((out / "vocabulary" / "vocabulary.json").read_text())["learns"] is False
    assert read_learned(out / "vocabulary") == {}
    assert set(contents(out / "local")) == {"local.json"}
    assert json.loads((out / "reranking" / "reranking.json").read_text())["stage"] is None
    assert set(contents(out / "reranking")) == {"reranking.json"}
    assert open_shards(out / "descriptors").dim == 16 * 6 * 6
    (tmp_path / "local").mkdir()
    with pytest.raises(
        ParameterError, match=r"geometry.*needs local features; the encoder colour-histogram has none"
    ):
        extract_local(
            out / "ranking",
            town.manifest,
            town.truth,
            town.root,
            HISTOGRAM,
            {},
            GEOMETRY,
            tmp_path / "local",
            cache=None,
            features_code="f",
        )


BATCHED = """
import numpy as np

class Mean:
    features, colour, in_workers, learns = None, True, False, False
    def key(self): return {}
    def prepare(self, image): return image
    def learn(self, training, count): return {}
    def describe(self, prepared, learned): return np.array([i.mean(axis=(0, 1)) / 255 for i in prepared])

class Odd(Mean):
    def describe(self, prepared, learned): return [np.ones(2 + n % 2) for n in range(len(prepared))]

class Infinite(Mean):
    def describe(self, prepared, learned): return np.full((len(prepared), 3), np.inf)

def mean(parameters): return Mean()
def odd(parameters): return Odd()
def infinite(parameters): return Infinite()
"""


def test_a_users_encoder_that_wants_batches(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "batched.py").write_text(BATCHED)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = run(town, tmp_path / "run", encoder="python:batched:mean")
    assert "images have descriptors whose norm is not 1" in capsys.readouterr().err
    store = open_shards(out / "descriptors")
    flat = store.array()[store.row_of["g38"]]
    assert np.allclose(flat.astype(float), 90 / 255, atol=0.01) and store.dim == 3
    assert store.metadata["batch"] == "32"
    with pytest.raises(CairnError, match=r"python:batched:odd.*one vector of one length"):
        describe(town, out / "vocabulary", tmp_path / "odd", encoder="python:batched:odd")
    with pytest.raises(ArtifactError, match="not finite"):
        describe(town, out / "vocabulary", tmp_path / "infinite", encoder="python:batched:infinite")


@pytest.mark.parametrize("query", [Query("q9", None, text="a bridge"), Query("q9", "q0", text="at night")])
def test_a_text_query_is_refused(done: Path, town: Town, tmp_path: Path, query: Query):
    texts = replace(town, truth=GroundTruth((query,), {}))
    with pytest.raises(
        InputError, match=r"query q9 is a.* text; the encoder rootsift-vlad has no text tower"
    ):
        describe(texts, done / "vocabulary", tmp_path / "out")


def test_what_does_not_fit_is_told(done: Path, town: Town, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    foreign = GroundTruth(town.truth.queries, {"q0": {"t00": "easy"}})
    with pytest.raises(InputError, match="query q0: judged image t00 is not in the gallery"):
        search(done / "descriptors", town.manifest, foreign, SEARCH, out)
    more = GroundTruth((*town.truth.queries, Query("q7", "q0")), {})
    with pytest.raises(ArtifactError, match="no descriptor for q7"):
        search(done / "descriptors", town.manifest, more, SEARCH, out)
    with pytest.raises(ParameterError, match=r"search\.top = 0"):
        search(done / "descriptors", town.manifest, town.truth, {"top": 0}, out)
    with pytest.raises(ParameterError, match=r"search\.tpo is not a known key \(did you mean 'top'"):
        search(done / "descriptors", town.manifest, town.truth, {"tpo": 5}, out)
    with pytest.raises(ArtifactError, match=r"raise search\.top to at least 30"):
        rerank(
            done / "ranking",
            done / "local",
            town.manifest,
            town.truth,
            GEOMETRY | {"shortlist": 30},
            out,
        )
    with pytest.raises(ArtifactError, match="not those of the ground truth"):
        rerank(done / "ranking", done / "local", town.manifest, more, GEOMETRY, out)
    with pytest.raises(ArtifactError, match="the step that writes it"):
        describe(town, tmp_path, out)
    assert contents(out) == {}


def test_a_changed_image_a_wrong_box_and_no_training_images(town: Town, done: Path, tmp_path: Path):
    from tests.systems.conftest import draw, read

    draw(tmp_path / "images")
    own = Town(tmp_path, read(tmp_path), town.truth)
    (tmp_path / "images" / "g05.jpg").write_bytes((tmp_path / "images" / "g06.jpg").read_bytes())
    with pytest.raises(ImageError, match="image g05"):
        describe(own, done / "vocabulary", tmp_path / "out")
    wide = replace(town, truth=GroundTruth((Query("q0", "q0", (0.0, 0.0, 900.0, 10.0)),), {}))
    with pytest.raises(InputError, match=r"query q0: box .* leaves its image"):
        describe(wide, done / "vocabulary", tmp_path / "wide")
    entries = [replace(e, gallery=True) for e in list_entries("images", town.root)]
    only = manifest_of(build_manifest(entries, town.root))
    with pytest.raises(InputError, match="training manifest has none"):
        learn_vocabulary(only, town.root, VLAD, PARAMETERS, tmp_path, cache=None, features_code="f")


def test_a_damaged_vocabulary_is_told(done: Path, town: Town, tmp_path: Path):
    (tmp_path / "vocabulary.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ArtifactError, match=r"vocabulary\.npz: not a readable file of arrays"):
        describe(town, tmp_path, tmp_path / "out")


def test_progress_goes_to_standard_error_only(town: Town, done: Path, tmp_path: Path, capfd, monkeypatch):
    monkeypatch.setenv("CAIRN_PROGRESS", "1")
    describe(town, done / "vocabulary", tmp_path / "out")
    captured = capfd.readouterr()
    assert captured.out == "" and "Describing images" in captured.err and "g38" in captured.err


def test_packed_features_come_back(done: Path):
    features = open_local(done / "local" / IMAGES_FILE).read("g00")
    back = extraction.unpack(extraction.pack(features))
    for name in ("positions", "scales", "weights", "descriptors"):
        one, other = getattr(features, name), getattr(back, name)
        assert np.array_equal(one, other) and one.dtype == other.dtype
