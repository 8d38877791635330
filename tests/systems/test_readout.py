"""The steps readout and ranking together: what is searched, under which name, with which scores."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from cairn.benchmarks.structure import GroundTruth, without_boxes
from cairn.errors import ArtifactError, InputError
from cairn.metrics.evaluate import score_ranking
from cairn.report.curves import curve_rows
from cairn.rerank.chains import after_earlier
from cairn.rerank.parameters import Earlier
from cairn.rerank.rankings import read_ranking, write_reranked
from cairn.rerank.two_stage import shortlist
from cairn.results.names import is_first, later_stage
from cairn.store.descriptors import MISSING, open_queries, open_shard, open_shards, write_shard
from cairn.systems.ranking import search
from cairn.systems.readout import make_readout, read_readout, searched
from tests.systems.conftest import GALLERY, QUERIES, TRAINING, Town

DIM = 12
IDS = [f"g{number:02d}" for number in range(GALLERY)]
ASKED = [f"q{number}" for number in range(QUERIES)]


def unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of descriptors and of training descriptors; image g38 has no feature."""
    generator = np.random.default_rng(7)
    images = unit(generator.standard_normal((GALLERY, DIM)) + 0.7)
    images[38] = 0
    queries = unit(images[:QUERIES] + 0.5 * generator.standard_normal((QUERIES, DIM)))
    training = unit(generator.standard_normal((TRAINING, DIM)) + 0.4)
    descriptors, background = tmp_path_factory.mktemp("descriptors"), tmp_path_factory.mktemp("training")
    about = {"encoder": "test"}
    for number in range(2):
        own = {**about, "shard.batches": str(number)}
        write_shard(descriptors / f"{number:04d}.parquet", IDS[number::2], half(images[number::2]), own)
    write_shard(descriptors / "queries.parquet", ASKED, half(queries), about, id_column="query_id")
    ids = [f"t{n:02d}" for n in range(TRAINING)]
    write_shard(background / "0000.parquet", ids, half(training), about)
    return descriptors, background


def half(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.float16)


def rank(
    town: Town, stored: tuple[Path, Path], folder: Path, readout: dict[str, Any], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]], Path]:
    """`ranking.json`, the rows per query, and the folder of the read-out."""
    for name in ("readout", "ranking"):
        (folder / name).mkdir(parents=True)
    make_readout(*stored, readout, folder / "readout")
    parameters = {"top": 15, **options}
    search(
        stored[0],
        town.manifest,
        town.truth,
        parameters,
        folder / "ranking",
        readout=folder / "readout",
        training=stored[1],
    )
    facts = json.loads((folder / "ranking" / "ranking.json").read_text())
    table = pq.read_table(folder / "ranking" / "ranking.parquet")
    assert table.schema.metadata[b"stage"].decode() == facts["stage"]
    rows: dict[str, list[dict[str, Any]]] = {query: [] for query in ASKED}
    for row in table.to_pylist():
        rows[row["query_id"]].append(row)
    assert not (folder / "ranking" / "scratch").exists()
    return facts, rows, folder / "readout"


def matrices(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Gallery in the order of IDS and queries, float64."""
    gallery, queries = open_shards(folder), open_queries(folder)
    return (
        gallery.take(gallery.rows_of(IDS)).astype(np.float64),
        queries.take(queries.rows_of(ASKED)).astype(np.float64),
    )


def test_what_is_read_out_is_stored_in_the_same_shards_and_searched(
    town: Town, stored: tuple[Path, Path], tmp_path: Path
):
    readout = {"dimension": 8, "centre": "gallery"}
    facts, rows, folder = rank(town, stored, tmp_path, readout, {})
    assert facts["stage"] == "global-centred.gallery"
    images, queries = matrices(stored[0])
    images, queries = unit(images[:, :8]), unit(queries[:, :8])
    mean = images[images.any(axis=1)].mean(axis=0)
    images, queries = unit((images - mean) * images.any(axis=1, keepdims=True)), unit(queries - mean)
    found = matrices(folder)
    np.testing.assert_allclose(found[0], images, atol=1e-3)
    np.testing.assert_allclose(found[1], queries, atol=1e-3)
    assert not found[0][38].any()
    scores = found[1] @ found[0].T
    for query, row in zip(ASKED, scores, strict=True):
        expected = np.argsort(-row, kind="stable")
        assert [one["image_id"] for one in rows[query][:15]] == [IDS[image] for image in expected[:15]]
    gallery, original = open_shards(folder), open_shards(stored[0])
    assert gallery.ids == original.ids
    assert gallery.shard_metadata == original.shard_metadata
    assert gallery.metadata == {"encoder": "test", "readout": "dim8-centred.gallery"}
    described = json.loads((folder / "readout.json").read_text())
    assert (described["learned_from"], described["learned_from_images"]) == ("gallery", GALLERY)
    assert "learned from the gallery" in described["note"]


@pytest.fixture
def with_missing(stored: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """As `stored`, but the images g02 and g38 could not be decoded; g05 has no feature."""
    folder = tmp_path / "with-missing"
    shutil.copytree(stored[0], folder)
    for number in range(2):
        path = folder / f"{number:04d}.parquet"
        store = open_shard(path)
        rows = store.array()
        gone = [image for image in ("g02", "g38", "g05") if image in store.ids]
        rows[store.rows_of(gone)] = 0
        reasons = {image: "truncated" for image in gone if image != "g05"}
        about = store.metadata | ({MISSING: json.dumps(reasons)} if reasons else {})
        write_shard(path, store.ids, rows, about)
    return folder, stored[1]


@pytest.mark.parametrize("top", [15, GALLERY])
def test_a_missing_image_ranks_behind_those_with_negative_cosines(
    town: Town, with_missing: tuple[Path, Path], tmp_path: Path, top: int
):
    facts, rows, folder = rank(town, with_missing, tmp_path, {"centre": "gallery"}, {"top": top})
    assert facts["missing"] == 2
    images, queries = matrices(folder)
    assert not images[2].any() and not images[38].any() and not images[5].any()
    for query, row in zip(ASKED, queries @ images.T, strict=True):
        order = [image for image in np.argsort(-row, kind="stable") if image not in (2, 38)] + [2, 38]
        assert row[order[-3]] < 0, "or a score of 0 would be last anyway"
        ranks = {one["image_id"]: one["rank"] for one in rows[query]}
        assert [IDS.index(one["image_id"]) for one in rows[query][:top]] == order[:top]
        assert all(ranks[image] == order.index(IDS.index(image)) for image in town.truth.relevance[query])
        scores = [one["score"] for one in rows[query]]
        assert scores == sorted(scores, reverse=True)
        assert all(one["score"] == -1 for one in rows[query] if one["image_id"] in ("g02", "g38"))


def rewritten(path: Path, missing: Sequence[str], *, without: bool = False) -> None:
    """The images or queries `missing` of a file could not be decoded; or are not in it at all."""
    id_column = "query_id" if path.stem == "queries" else "image_id"
    store = open_shard(path, id_column)
    rows = store.array()
    rows[store.rows_of(missing)] = 0
    kept = [row for row, name in enumerate(store.ids) if not (without and name in missing)]
    about = (
        store.metadata if without else store.metadata | {MISSING: json.dumps(dict.fromkeys(missing, "cut"))}
    )
    write_shard(path, [store.ids[row] for row in kept], rows[kept], about, id_column=id_column)


@pytest.fixture
def training_with_missing(stored: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Training descriptors of which t03 and t10 could not be decoded; the same without the two. Else as `stored`."""
    folders = tmp_path / "training-missing", tmp_path / "training-without"
    for folder in folders:
        shutil.copytree(stored[1], folder)
        rewritten(folder / "0000.parquet", ["t03", "t10"], without=folder.name.endswith("without"))
    return folders


@pytest.mark.parametrize(
    "readout", [{"centre": "training"}, {"whiten": {"source": "training", "images": 7}}], ids=["mean", "pca"]
)
def test_a_read_out_learns_from_images_that_are_there_and_counts_them(
    stored: tuple[Path, Path],
    training_with_missing: tuple[Path, Path],
    tmp_path: Path,
    readout: dict[str, Any],
):
    found = []
    for number, training in enumerate(training_with_missing):
        folder = tmp_path / str(number)
        folder.mkdir()
        make_readout(stored[0], training, readout, folder)
        facts = json.loads((folder / "readout.json").read_text())
        assert facts["learned_from_images"] == TRAINING - 2
        found.append((folder / "readout.npz").read_bytes())
    assert found[0] == found[1]


def test_a_read_out_from_the_gallery_counts_what_is_there(with_missing: tuple[Path, Path], tmp_path: Path):
    make_readout(*with_missing, {"centre": "gallery"}, tmp_path)
    facts = json.loads((tmp_path / "readout.json").read_text())
    assert facts["learned_from_images"] == GALLERY - 2, (
        "one without features is described, but the two are not"
    )


def test_scores_are_not_normalised_by_missing_images(
    town: Town, stored: tuple[Path, Path], training_with_missing: tuple[Path, Path], tmp_path: Path
):
    # All similarities are negative: a row of zeros would be the nearest.
    for folder in training_with_missing:
        store = open_shards(folder)
        about = store.metadata | ({MISSING: json.dumps(store.missing)} if store.missing else {})
        write_shard(folder / "0000.parquet", store.ids, -np.abs(store.array()), about)
    descriptors = tmp_path / "positive"
    shutil.copytree(stored[0], descriptors)
    asked = open_queries(descriptors)
    path = descriptors / "queries.parquet"
    write_shard(path, asked.ids, np.abs(asked.array()), asked.metadata, id_column="query_id")
    options = {"normalisation": {"neighbours": 2}}
    found = [
        rank(town, (descriptors, training), tmp_path / training.name / "run", {}, options)[1]
        for training in training_with_missing
    ]
    assert found[0] == found[1]


def test_the_search_expands_queries_by_images_that_are_there(
    town: Town, with_missing: tuple[Path, Path], tmp_path: Path
):
    options = {"top": GALLERY, "expansion": {"method": "average", "neighbours": 30}}
    _, rows, folder = rank(town, with_missing, tmp_path, {"centre": "gallery"}, options)
    images, queries = matrices(folder)
    present = np.delete(np.arange(GALLERY), [2, 38])
    for query, vector in zip(ASKED, queries, strict=True):
        best = present[np.argsort(-(images[present] @ vector), kind="stable")[:30]]
        assert images[best[-1]] @ vector < 0, "or zeros would not have come before it"
        scores = images[present] @ unit((vector + images[best].sum(axis=0))[None])[0]
        found = [row["score"] for row in rows[query][: GALLERY - 2]]
        assert found == pytest.approx(np.sort(scores)[::-1], abs=1e-5)


@pytest.mark.parametrize("options", [{}, {"normalisation": {"neighbours": 2}}], ids=["plain", "normalised"])
def test_of_what_is_missing_nothing_is_predicted(
    town: Town, with_missing: tuple[Path, Path], tmp_path: Path, options: dict[str, Any]
):
    """Pooled numbers are those of a ranking in which the missing pairs have the lowest scores of all."""
    rewritten(with_missing[0] / "queries.parquet", ["q3"])
    facts, _, _ = rank(town, with_missing, tmp_path, {"centre": "gallery"}, {"top": GALLERY, **options})
    assert (facts["missing"], facts["missing_queries"]) == (2, 1)
    table = pq.read_table(tmp_path / "ranking" / "ranking.parquet")
    relevance = {f"q{n}": {f"g{image:02d}": "positive" for image in (n, 11, 38)} for n in range(QUERIES)}
    truth = GroundTruth(town.truth.queries, relevance)
    score, query, image = (table.column(name).to_pylist() for name in ("score", "query_id", "image_id"))
    gone = [q == "q3" or i in ("g02", "g38") for q, i in zip(query, image, strict=True)]
    real = [one for one, absent in zip(score, gone, strict=True) if not absent]
    assert min(real) < max(one for one, absent in zip(score, gone, strict=True) if absent)
    kept = np.flatnonzero(~np.array(gone))
    right = np.array([i in relevance[q] for q, i in zip(query, image, strict=True)])[kept]
    ordered = right[np.argsort(-np.array(score)[kept], kind="stable")]
    precision = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
    expected = (precision * ordered).sum() / (3 * QUERIES)
    for protocol in ("disc21", "disc21-track2"):
        found = score_ranking(table, truth, protocol, GALLERY)
        assert found.value("all", "micro-ap") == pytest.approx(expected, abs=1e-9)
        assert found.value("all", "recall@1") <= 3 / 12
    relevant = {name: {"g00": "positive"} for name in relevance}
    cut = table.filter([rank < GALLERY - 1 for rank in table.column("rank").to_pylist()])
    whole, shorter = (
        score_ranking(one, GroundTruth(town.truth.queries, relevant), "disc21-track2", GALLERY)
        for one in (table, cut)
    )
    assert whole.rows == shorter.rows, "all that is there is listed"
    [last] = [
        point for point in curve_rows(table, truth, "disc21", GALLERY) if point["x"] == right.sum() / 12
    ]
    assert last["y"] == pytest.approx(precision[np.flatnonzero(ordered)[-1]])


def test_a_query_without_a_descriptor_is_in_no_second_stage(
    town: Town, with_missing: tuple[Path, Path], tmp_path: Path
):
    rewritten(with_missing[0] / "queries.parquet", ["q3"])
    _, _, folder = rank(town, with_missing, tmp_path, {"centre": "gallery"}, {"top": GALLERY})
    ranked = read_ranking(tmp_path / "ranking" / "ranking.parquet", GALLERY)
    assert [query.missing for query in ranked] == [2, 2, 2, GALLERY]
    for earlier in ("aqe", "superglobal", "k-reciprocal"):
        changed, after, _ = after_earlier(
            ranked, folder, town.manifest, Earlier(method=earlier, shortlist=20)
        )
        assert after[3].image_ids == ranked[3].image_ids and after[0].image_ids != ranked[0].image_ids
        write_reranked(tmp_path / "again.parquet", ranked, changed, "s")
        again = read_ranking(tmp_path / "again.parquet", GALLERY)
        assert [query.missing for query in again] == [2, 2, 2, GALLERY]


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_an_index_is_measured_on_what_is_there(
    town: Town, with_missing: tuple[Path, Path], tmp_path: Path, kind: str
):
    rewritten(with_missing[0] / "queries.parquet", ["q3"])
    options = {"top": GALLERY, "index": {"kind": kind}}
    facts, _, _ = rank(town, with_missing, tmp_path, {"centre": "gallery"}, options)
    assert facts["index"]["vectors"] == GALLERY - 2
    assert facts["index"]["recall"] == {"1": 1.0, "10": 1.0, "38": 1.0}


def test_no_shortlist_holds_a_missing_image(town: Town, with_missing: tuple[Path, Path], tmp_path: Path):
    _, _, folder = rank(town, with_missing, tmp_path, {"centre": "gallery"}, {"top": GALLERY})
    ranked = read_ranking(tmp_path / "ranking" / "ranking.parquet", GALLERY)
    assert {query.missing for query in ranked} == {2}
    for earlier in ("aqe", "superglobal", "k-reciprocal"):
        parameters = Earlier(method=earlier, shortlist=100)
        changed, after, _ = after_earlier(ranked, folder, town.manifest, parameters)
        write_reranked(tmp_path / f"{earlier}.parquet", ranked, changed, "s")
        again = read_ranking(tmp_path / f"{earlier}.parquet", GALLERY)
        for query in (*after, *again):
            assert query.image_ids[-2:] == ("g02", "g38")
            assert len(shortlist(query, np.zeros(GALLERY, bool), 100)) == GALLERY - 2
            moved = np.isin(query.image_ids, ["g07", "g38"])
            kept = shortlist(query, moved, 100)
            assert {query.image_ids[i] for i in kept} == set(IDS) - {"g02", "g07", "g38"}


def test_the_same_bytes_twice_and_the_transform_comes_back(stored: tuple[Path, Path], tmp_path: Path):
    parameters = {"whiten": {"source": "training", "dimension": 6}}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        make_readout(*stored, parameters, tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    store = open_shards(stored[0])
    again = read_readout(tmp_path / "a")(store.array())
    np.testing.assert_array_equal(again.astype(np.float16), open_shards(tmp_path / "a").array())


def test_nothing_asked_for_leaves_one_small_file(town: Town, stored: tuple[Path, Path], tmp_path: Path):
    facts, _, folder = rank(town, stored, tmp_path, {}, {})
    assert facts["stage"] == "global"
    assert [path.name for path in folder.iterdir()] == ["readout.json"]
    assert searched(stored[0], folder) == stored[0]
    (folder / "readout.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"readout\.json: missing or damaged"):
        searched(stored[0], folder)


def test_a_read_out_from_training_is_part_of_the_system_and_needs_no_mark(
    town: Town, stored: tuple[Path, Path], tmp_path: Path
):
    facts, _, _ = rank(town, stored, tmp_path / "centre", {"centre": "training"}, {})
    assert facts["stage"] == "global"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no training descriptors"):
        make_readout(stored[0], tmp_path / "empty", {"centre": "training"}, tmp_path)


def test_expansion_and_augmentation_are_searched_over_the_whole_gallery(
    town: Town, stored: tuple[Path, Path], tmp_path: Path
):
    options = {
        "augmentation": {"method": "average", "neighbours": 2},
        "expansion": {"method": "alpha", "neighbours": 3, "alpha": 2},
    }
    facts, rows, _ = rank(town, stored, tmp_path, {}, options)
    assert facts["stage"] == "global-dba-n2-alphaqe-n3-a2"
    images, queries = matrices(stored[0])
    joined = images.copy()
    for row in range(GALLERY):
        similarity = images @ images[row]
        similarity[row] = -9
        joined[row] += images[np.argsort(-similarity, kind="stable")[:2]].sum(axis=0)
    joined[38] = 0  # an image without features has no neighbours
    joined = unit(joined).astype(np.float16).astype(np.float64)
    for query, vector in zip(ASKED, queries, strict=True):
        similarity = joined @ vector
        best = np.argsort(-similarity, kind="stable")[:3]
        vector = vector + (np.maximum(similarity[best], 0)[:, None] ** 2 * joined[best]).sum(axis=0)
        scores = joined @ (vector / np.linalg.norm(vector))
        order = np.argsort(-scores, kind="stable")
        assert [row["image_id"] for row in rows[query][:15]] == [IDS[image] for image in order[:15]]
        assert [row["score"] for row in rows[query][:15]] == pytest.approx(scores[order[:15]], abs=1e-5)
    assert facts["index"]["recall"]["15"] > 0.95, "the index is over what is searched"


@pytest.mark.parametrize("readout", [{}, {"dimension": 9, "centre": "training"}])
def test_normalised_scores_are_the_officials_with_the_read_out_on_both_sides(
    town: Town, stored: tuple[Path, Path], tmp_path: Path, readout: dict[str, Any]
):
    options = {"normalisation": {"neighbours": 3, "factor": 0.5}}
    facts, rows, folder = rank(town, stored, tmp_path / "normalised", readout, options)
    plain, before, _ = rank(town, stored, tmp_path / "plain", readout, {})
    assert (facts["stage"], plain["stage"]) == ("global-norm-n3-f0.5", "global")
    background = read_readout(folder)(open_shards(stored[1]).array()).astype(np.float64)
    _, queries = matrices(searched(stored[0], folder))
    for query, vector in zip(ASKED, queries, strict=True):
        third = np.sort(background @ vector)[-3]  # isc2021: knn(query, training, 3) distances, reduced by min
        for new, old in zip(rows[query], before[query], strict=True):
            assert (new["image_id"], new["rank"]) == (old["image_id"], old["rank"])
            assert new["score"] == pytest.approx(old["score"] - 0.5 * third, abs=1e-6)


def test_normalisation_without_training_images_is_refused(
    town: Town, stored: tuple[Path, Path], tmp_path: Path
):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="needs descriptors of training images"):
        rank(town, (stored[0], tmp_path / "empty"), tmp_path, {}, {"normalisation": {}})


def test_uncropped_queries_are_a_control_by_name(town: Town, stored: tuple[Path, Path], tmp_path: Path):
    assert all(query.box for query in town.truth.queries)
    whole = without_boxes(town.truth)
    assert [(q.query_id, q.image_id, q.box) for q in whole.queries] == [(q, q, None) for q in ASKED]
    assert whole.relevance == town.truth.relevance
    search(stored[0], town.manifest, whole, {"index": {"kind": "none"}}, tmp_path, uncropped=True)
    assert json.loads((tmp_path / "ranking.json").read_text())["stage"] == "global-uncropped"


def test_a_later_stage_names_what_it_stands_on():
    assert later_stage("geometry-k100", "global") == "geometry-k100"
    assert later_stage("geometry-k100", "global-aqe-n10") == "geometry-k100-on-aqe-n10"
    assert is_first("global")
    assert is_first("global-aqe-n10")
    assert not is_first("geometry-k100-on-aqe-n10")
    assert not is_first("globally")
