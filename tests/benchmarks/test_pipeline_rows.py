"""The rows that the pipeline writes to the results table are those of `cairn score` on the same run."""

import json
import pickle
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.benchmarks.adapters import load_adapter
from cairn.benchmarks.known import entry_of
from cairn.benchmarks.structure import GroundTruth, Query, read_ground_truth
from cairn.errors import ArtifactError
from cairn.images.manifest import read_manifest
from cairn.metrics.evaluate import score_ranking
from cairn.metrics.result import ScoredRun
from cairn.rerank.pairs import united, write_pairs
from cairn.rerank.rankings import write_reranked
from cairn.rerank.two_stage import RankedQuery, RerankedQuery
from cairn.results.scoring import score_run
from cairn.results.table import read_results
from cairn.scoring import disc21, forb, gldv2, ilias, inquire, instre, revisitop
from tests.benchmarks import publications as published
from tests.benchmarks.test_published import Project, gallery, project, server

__all__ = ["project", "server"]

Scores = dict[str, dict[str, float]]
Rows = dict[tuple[str, str], tuple[float, int]]


def scores_with_ties(truth: GroundTruth, images: list[str], seed: int = 0, levels: int = 40) -> Scores:
    """A score of every image for every query; some tie."""
    generator = np.random.default_rng(seed)
    return {
        query.query_id: dict(
            zip(images, (generator.integers(levels, size=len(images)) / levels).tolist(), strict=True)
        )
        for query in truth.queries
    }


def ranked(scores: dict[str, float]) -> list[str]:
    """Images by falling score, then in the gallery's order."""
    return sorted(scores, key=lambda image: -scores[image])


def pipeline(project: Project, name: str, scores: Scores, top: int = 10**9, stage: str | None = None) -> Rows:
    """The rows of the step `scores` for a ranking with these scores that keeps `top` images and all judged ones."""
    folder = project.root / "artifacts" / name
    truth = read_ground_truth(folder / "ground_truth")
    columns: dict[str, list[Any]] = {"query_id": [], "rank": [], "image_id": [], "score": []}
    for query in truth.queries:
        for rank, image in enumerate(ranked(scores[query.query_id])):
            if rank < top or image in truth.relevance.get(query.query_id, {}):
                values = (query.query_id, rank, image, scores[query.query_id][image])
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
    run, output = project.root / "run", project.root / "scores"
    for each in (run, output):
        each.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), run / "ranking.parquet")
    if stage:
        pq.write_table(pa.table(columns | {"global_score": columns["score"]}), run / "reranked.parquet")
    facts = run / "ranking.json"
    own = json.loads(facts.read_text()) if facts.is_file() else {}
    facts.write_text(json.dumps({"stage": "global", **own}))
    (run / "reranking.json").write_text(json.dumps({"stage": stage}))
    parameters = project.parameters(name)
    score_run(
        name,
        "some-system",
        ranking=run,
        reranking=run,
        ground_truth=folder / "ground_truth",
        manifest=folder / "manifest",
        metric=(entry_of(name) or {}).get("metric") or load_adapter(parameters["adapter"], name).METRIC,
        output=output,
    )
    return {
        (row.name.slice, row.name.metric): (row.value, row.n_queries)
        for row in read_results(output / "scores.parquet")
        if row.name.stage == (stage or "global")
    }


def official(run: ScoredRun) -> Rows:
    """The rows of `cairn score` whose number exists, with slices as parts of a number's name."""
    return {
        (re.sub("[^a-z0-9._]+", "-", row.slice.lower()), row.metric): (row.value, row.n_queries)
        for row in run.rows
        if row.value is not None
    }


def assert_same(ours: Rows, theirs: Rows) -> None:
    assert sorted(ours) == sorted(theirs)
    for name, (value, n_queries) in theirs.items():
        assert ours[name] == (pytest.approx(value, abs=1e-12), n_queries), name


@pytest.mark.parametrize("seed", range(3))
def test_ilias(project: Project, seed: int):
    files = published.ilias()
    path = next(name for name in files if name.endswith("positive_ids.txt"))
    sizes = ["0.01,3", "0.1,20", "0.25,40", "0.9,80"]
    names = [line.split(",")[0] for line in files[path].decode().splitlines()]
    files[path] = published.lines(*(f"{name},{size}" for name, size in zip(names, sizes, strict=True)))
    project.serve(files)
    truth, images = project.run("mini-ilias")
    scores = scores_with_ties(truth, gallery(images), seed)
    similarities = project.root / "similarities.json"
    similarities.write_text(
        json.dumps({query: {image: of[image] for image in ranked(of)} for query, of in scores.items()})
    )
    folder = next(project.root.rglob("image_ids")).parent
    theirs = official(ilias.score(folder, similarities, taxonomy=folder / "taxonomy.json"))
    assert {name for name, _ in theirs} >= {
        "all",
        "scale-0.2729876723163842-inf",
        "clutter-0-18",
        "category-art",
    }
    assert_same(pipeline(project, "mini-ilias", scores), theirs)


def forb_records(project: Project, truth: GroundTruth, scores: Scores, images: list[str], kind: str) -> None:
    """Write `{object}_{kind}.ndjson` with the candidates of every query among `images`."""
    results = project.root / "results"
    results.mkdir(exist_ok=True)
    numbers = {image: number for number, image in enumerate(scores[truth.queries[0].query_id])}
    for name in published.OBJECTS:
        lines = []
        for query in truth.queries:
            if query.query_id.startswith(f"{name}/"):
                of = {image: scores[query.query_id][image] for image in images}
                order = ranked(of)
                record = {
                    "query_id": int(query.query_id.split("/")[1]),
                    "candidate_db_ids": [numbers[image] for image in order],
                    "global_scores": [of[image] for image in order],
                }
                lines.append(json.dumps(record))
        (results / f"{name}_{kind}.ndjson").write_bytes(published.lines(*lines))


@pytest.mark.parametrize("seed", range(3))
def test_forb(project: Project, seed: int):
    project.serve(published.forb())
    truth, _ = project.run("forb")
    folder = next(project.root.glob("artifacts/forb/sources/**/all_database_images.txt")).parent
    listed = (folder / "all_database_images.txt").read_text().split()
    scores = scores_with_ties(truth, listed, seed, 1000)
    forb_records(project, truth, scores, listed, "all")
    forb_records(project, truth, scores, (folder / "oods_database_images.txt").read_text().split(), "oods")
    theirs = official(forb.score(folder, project.root / "results"))
    assert {metric for _, metric in theirs} == {"map@1", "map@5", "t-map@1", "t-map@5"}
    assert len({name for name, _ in theirs}) == 12
    assert_same(pipeline(project, "forb", scores), theirs)
    reranked = pipeline(project, "forb", scores, stage="geometry-k10")
    assert_same(reranked, {name: value for name, value in theirs.items() if not name[1].startswith("t-")})


@pytest.mark.parametrize("seed", range(3))
def test_disc21(project: Project, seed: int):
    project.serve(published.disc21())
    truth, images = project.run("disc21")
    scores = scores_with_ties(truth, gallery(images), seed, 5)
    predictions = project.root / "predictions.csv"
    rows = [f"{query},{image},{value}" for query, of in scores.items() for image, value in of.items()]
    predictions.write_bytes(published.lines("query_id,reference_id,score", *rows))
    truth_file = next(project.root.glob("artifacts/disc21/sources/**/public_ground_truth.csv"))
    assert_same(pipeline(project, "disc21", scores), official(disc21.score(predictions, truth_file)))


def test_disc21_track_2_needs_every_pair_and_short_descriptors(project: Project, monkeypatch):
    project.serve(published.disc21())
    truth, images = project.run("disc21-track2")
    scores = scores_with_ties(truth, gallery(images), 4, 7)
    (project.root / "run").mkdir()
    facts = project.root / "run" / "ranking.json"
    facts.write_text('{"dim": 256}')
    whole = pipeline(project, "disc21-track2", scores)
    rows = [f"{query},{image},{value}" for query, of in scores.items() for image, value in of.items()]
    (project.root / "all.csv").write_bytes(published.lines("query_id,reference_id,score", *rows))
    truth_file = next(project.root.glob("artifacts/disc21-track2/sources/**/public_ground_truth.csv"))
    assert_same(whole, official(disc21.score(project.root / "all.csv", truth_file)))
    with pytest.raises(ArtifactError, match=r"first 19 images, all of which .* raise search.top"):
        pipeline(project, "disc21-track2", scores, top=19)
    # With the best two pairs alone, a cut behind what could belong to them takes nothing away.
    monkeypatch.setattr("cairn.metrics.micro_ap.LIMIT", 2)
    best = {
        query: {image: of[image] + 9 * (n in (1, 2)) for n, image in enumerate(of)}
        for query, of in scores.items()
    }
    two = pipeline(project, "disc21-track2", best)
    assert two == pipeline(project, "disc21-track2", best, top=10)
    assert two != whole
    facts.write_text('{"dim": 257}')
    with pytest.raises(ArtifactError, match="257 dimensions; track 2 of DISC21 admits 256"):
        pipeline(project, "disc21-track2", scores)
    with pytest.raises(ArtifactError, match="run of track 1"):
        facts.write_text('{"dim": 2}')
        pipeline(project, "disc21-track2", scores, stage="geometry-k10")


def test_inquire(project: Project, monkeypatch: pytest.MonkeyPatch):
    # The archive of the fixture is not the published one: unpacked images are used instead.
    files = published.inquire()
    project.serve(files)
    monkeypatch.delenv("CAIRN_MIRROR")
    for address, data in files.items():
        name = address.rsplit("/", 1)[-1]
        if name != "train.tar.gz":
            (project.root / "hand").mkdir(exist_ok=True)
            (project.root / "hand" / name).write_bytes(data)
    for n in range(3):
        path = project.root / f"hand/train/0000{n}_Animalia_Chordata/{n}0be103-954f.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(published.picture(n))
    truth, images = project.run("inquire", directory="hand")
    scores = scores_with_ties(truth, gallery(images), 1, 2)
    run = project.root / "run.csv"
    rows = [f"{query},{image},{of[image]}" for query, of in scores.items() for image in ranked(of)]
    run.write_bytes(published.lines("query_id,image_path,score", *rows))
    folder = project.root / "hand"
    names = folder / "inquire_queries_test.csv", folder / "inquire_annotations.csv"
    known = {query.query_id for query in truth.queries}
    kept = [line for line in names[1].read_text().splitlines() if line.split(",")[0] in {"query_id", *known}]
    names[1].write_bytes(published.lines(*kept))
    theirs = official(inquire.score(*names, run))
    assert not any(name.endswith("-") for name, _ in theirs)  # one query has no iconic group: no slice for it
    assert_same(pipeline(project, "inquire", scores), theirs)


@pytest.mark.parametrize("seed", range(3))
def test_inquire_rerank(project: Project, seed: int):
    project.serve(published.inquire_rerank())
    truth, images = project.run("inquire-rerank")
    assert [query.text for query in truth.queries] == ["A mongoose, upright", "Fishing net on a reef"]
    assert gallery(images) == [f"train/0000{n}_Animalia_Chordata/{n}0be103-954f.jpg" for n in range(4)]
    scores = scores_with_ties(truth, gallery(images), seed, 2)
    run = project.root / "run.csv"
    rows = [
        f'"{query}",{image},{of[image]}'
        for query, of in scores.items()
        for image in truth.relevance[query]  # the query's own list alone
    ]
    run.write_bytes(published.lines("query_id,image_path,score", *rows))
    rerank = next(project.root.glob("artifacts/inquire-rerank/sources/**/inquire_rerank.csv"))
    theirs = official(inquire.score_rerank(rerank, run))
    assert {name for name, _ in theirs} >= {"all", "category-defense", "iconic-group-mammals"}
    # However the ranking is cut, every image of a query's list is in it with its rank.
    assert_same(pipeline(project, "inquire-rerank", scores, top=1), theirs)


@pytest.mark.parametrize("seed", range(3))
def test_gldv2(project: Project, seed: int):
    project.serve(published.gldv2())
    truth, images = project.run("gldv2")
    scores = scores_with_ties(truth, gallery(images), seed)
    submission = project.root / "submission.csv"
    rows = [f"{query},{' '.join(ranked(of)[:100])}" for query, of in scores.items()]
    submission.write_bytes(published.lines("id,images", *rows))
    solution = next(project.root.glob("artifacts/gldv2/sources/**/retrieval_solution_v2.1.csv"))
    assert_same(pipeline(project, "gldv2", scores), official(gldv2.score(submission, solution)))


def test_instre(project: Project):
    project.serve(published.instre())
    truth, images = project.run("instre")
    scores = scores_with_ties(truth, gallery(images))
    gnd = next(project.root.glob("artifacts/instre/sources/**/gnd_instre.pkl"))
    listed = pickle.loads(gnd.read_bytes())["imlist"]
    matrix = project.root / "scores.npy"
    np.save(matrix, np.array([[of[image] for image in listed] for of in scores.values()]))
    assert_same(pipeline(project, "instre", scores, top=1), official(instre.score(gnd, matrix)))


@pytest.mark.parametrize("top", [10**9, 1000])
def test_instre_with_distractors(project: Project, top: int):
    project.serve({**published.instre(), **published.ilias()})
    truth, images = project.run("instre-mini-ilias")
    listed = gallery(images)
    assert len(listed) == 3 + 45
    scores = scores_with_ties(truth, listed, 3, 9)
    gnd = next(project.root.glob("artifacts/instre-mini-ilias/sources/**/gnd_instre.pkl"))
    own = pickle.loads(gnd.read_bytes())["imlist"]
    order = [*own, *(image for image in listed if image not in own)]
    matrix = project.root / "scores.npy"
    np.save(matrix, np.array([[of[image] for image in order] for of in scores.values()]))
    theirs = official(instre.score(gnd, matrix, k=1000))
    assert {metric for _, metric in theirs} == {"map@1000", "oracle@1000"}
    assert_same(pipeline(project, "instre-mini-ilias", scores, top=top), theirs)


def test_roxford(project: Project):
    project.serve(published.roxford())
    truth, images = project.run("roxford5k")
    listed = gallery(images)
    scores = scores_with_ties(truth, listed)
    gnd = next(project.root.glob("artifacts/roxford5k/sources/**/gnd_roxford5k.pkl"))
    matrix = project.root / "scores.npy"
    np.save(matrix, np.array([[scores[q.query_id][image] for image in listed] for q in truth.queries]))
    assert_same(pipeline(project, "roxford5k", scores, top=2), official(revisitop.score(gnd, matrix)))


@pytest.mark.parametrize("seed", [7, 23, 24, 25])
def test_roxford_re_ranked(project: Project, seed: int):
    """Each setting on a list without what it ignores, and the list that knows no junk, each scored on its own."""
    project.serve(published.roxford())
    truth, images = project.run("roxford5k")
    folder, listed, k = project.root / "artifacts" / "roxford5k", gallery(images), 2
    manifest = read_manifest(folder / "manifest" / "manifest.parquet")
    scores = scores_with_ties(truth, listed, seed)
    generator = np.random.default_rng(seed)
    drawn = 8 * generator.normal(size=(len(truth.queries), len(listed)))
    pairs = zip(truth.queries, drawn, strict=True)
    logit = {query.query_id: dict(zip(listed, of, strict=True)) for query, of in pairs}
    rankings, logits = [], []
    for query in truth.queries:
        order = ranked(scores[query.query_id])
        rows = np.array([manifest.row_of[image] for image in order])
        values = np.array([scores[query.query_id][image] for image in order], np.float32)
        rankings.append(
            RankedQuery(query.query_id, tuple(order), rows, np.arange(len(order)), values, len(order))
        )
    for query, chosen in zip(rankings, united(rankings, truth.relevance, k), strict=True):
        of = [logit[query.query_id][query.image_ids[i]] for i in chosen]
        logits.append((chosen, np.array(of, np.float32)))
    run, output = project.root / "run", project.root / "scores"
    for each in (run, output):
        each.mkdir()
    same = [RerankedQuery(np.arange(len(q.rank)), q.rank, q.score) for q in rankings]
    write_reranked(run / "ranking.parquet", rankings, same, "global")
    write_pairs(run / "pairs.parquet", rankings, logits)
    (run / "ranking.json").write_text(json.dumps({"stage": "global"}))
    (run / "reranking.json").write_text(json.dumps({"stage": None, "earlier": None}))
    none = {"mixes": [], "temperatures": []}
    mixing = {"shortlist": k, "mix": 0.5, "temperature": 0.3, "junk_aware": True, "diagnostics": none}
    score_run(
        "roxford5k", "some-system", ranking=run, reranking=run, ground_truth=folder / "ground_truth",
        manifest=folder / "manifest", metric="revisitop", mixing=mixing, output=output,
    )  # fmt: skip
    found = {
        (r.name.stage, r.name.slice, r.name.metric): r.value for r in read_results(output / "scores.parquet")
    }

    def expected(slice_name: str, ignored: tuple[str, ...]) -> dict[str, float]:
        matrix = []
        for query in truth.queries:
            of, second = scores[query.query_id], logit[query.query_id]
            grades = truth.relevance[query.query_id]
            kept = [image for image in ranked(of) if grades.get(image) not in ignored]
            mixed = {image: 0.5 * of[image] + 0.5 / (1 + np.exp(-0.3 * second[image])) for image in listed}
            new = sorted(kept[:k], key=lambda image: -mixed[image]) + kept[k:]
            new += [image for image in listed if image not in kept]
            matrix.append([-new.index(image) for image in listed])
        np.save(project.root / "scores.npy", np.array(matrix, float))
        gnd = next(folder.glob("sources/**/gnd_roxford5k.pkl"))
        rows = official(revisitop.score(gnd, project.root / "scores.npy"))
        return {metric: value for (name, metric), (value, _) in rows.items() if name == slice_name}

    differ = 0
    for name, ignored in (("easy", ("junk", "hard")), ("medium", ("junk",)), ("hard", ("junk", "easy"))):
        aware, plain = expected(name, ignored), expected(name, ())
        for metric, value in aware.items():
            assert found["ames-k2-l0.5-t0.3", name, metric] == pytest.approx(value, abs=1e-12)
            assert found["ames-k2-l0.5-t0.3-unaware", name, metric] == pytest.approx(plain[metric], abs=1e-12)
        gain = found["ames-k2-l0.5-t0.3", name, "map-minus-unaware"]
        assert gain == pytest.approx(aware["map"] - plain["map"], abs=1e-12)
        differ += gain != 0
    assert differ  # these seeds were chosen so


def test_a_ranking_cut_too_early_is_refused(project: Project):
    project.serve(published.forb())
    truth, images = project.run("forb")
    inside = {f"{name}/database/a{n}.jpg" for n, name in enumerate(published.OBJECTS)}
    scores = {
        query.query_id: {image: float(image in inside) for image in gallery(images)}
        for query in truth.queries
    }
    with pytest.raises(ArtifactError, match="query animated_cards/1: none of its first 8 images is out of"):
        pipeline(project, "forb", scores, top=8)
    assert pipeline(project, "forb", scores, top=9)["overall", "t-map@1"]


def test_a_list_with_gaps_is_refused():
    truth = GroundTruth((Query("a/q", "q"),), {"a/q": {"p": "positive"}})
    ranking = {"query_id": ["a/q"] * 2, "rank": [0, 9], "image_id": ["x", "p"], "score": [2.0, 1.0]}
    with pytest.raises(ArtifactError, match=r"raise search\.top"):
        score_ranking(ranking, truth, "ilias", 20)
