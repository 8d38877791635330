"""A ranking of the pipeline and a run file in the official format give the same numbers, ties included."""

import json

import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.errors import ParameterError
from cairn.metrics.evaluate import score_ranking
from cairn.scoring import disc21, gldv2, ilias, inquire, instre
from tests.scoring.cases import write_csv

N_QUERIES, N_IMAGES, TOP = 12, 60, 20


@pytest.fixture(scope="module")
def case():
    """Scores of one decimal, grades, and the same as a ranking: every image, by score, then number."""
    generator = np.random.default_rng(7)
    scores = generator.integers(0, 11, (N_QUERIES, N_IMAGES)) / 10
    relevance = {}
    for number in range(N_QUERIES):
        chosen = generator.choice(N_IMAGES, generator.integers(1, 9), replace=False)
        relevance[f"q{number}"] = {f"i{image:02d}": "positive" for image in chosen}
    relevance["q3"] = {}
    order = np.argsort(-scores, axis=1, kind="stable")
    rows = [
        (f"q{number}", rank, f"i{image:02d}", scores[number, image])
        for number in range(N_QUERIES)
        for rank, image in enumerate(order[number])
    ]
    ranking = dict(zip(("query_id", "rank", "image_id", "score"), zip(*rows, strict=True), strict=True))
    return scores, relevance, rows, ranking


def truth_of(relevance, **attributes):
    queries = tuple(
        Query(name, image_id="x", split="public" if n % 3 else "private") for n, name in enumerate(relevance)
    )
    of_query = {
        name: {key: values[n] for key, values in attributes.items()} for n, name in enumerate(relevance)
    }
    return GroundTruth(queries, relevance, of_query if attributes else {})


def values(run):
    return {(row.slice, row.metric): row.value for row in run.rows}


def test_instre(case, tmp_path):
    scores, relevance, _, ranking = case
    gnd = [{"ok": [int(i[1:]) for i in grades]} for grades in relevance.values()]
    images = [f"i{i:02d}" for i in range(N_IMAGES)]
    (tmp_path / "gnd.json").write_text(json.dumps({"imlist": images, "qimlist": list(relevance), "gnd": gnd}))
    np.save(tmp_path / "scores.npy", scores)
    expected = instre.score(tmp_path / "gnd.json", tmp_path / "scores.npy")
    run = score_ranking(ranking, truth_of(relevance), "instre", N_IMAGES)
    assert values(run) == values(expected)
    assert run.rows[0].low < run.rows[0].value < run.rows[0].high


def test_gldv2(case, tmp_path):
    _, relevance, rows, ranking = case
    submission = [
        (name, " ".join(image for query, _, image, _ in rows if query == name)) for name in relevance
    ]
    solution = [
        (name, " ".join(grades) or "None", ("Public" if n % 3 else "Private") if grades else "Ignored")
        for n, (name, grades) in enumerate(relevance.items())
    ]
    expected = gldv2.score(
        write_csv(tmp_path / "sub.csv", ["id", "images"], submission),
        write_csv(tmp_path / "sol.csv", ["id", "images", "Usage"], solution),
    )
    run = score_ranking(ranking, truth_of(relevance), "gldv2", N_IMAGES)
    assert values(run) == pytest.approx(values(expected))


def test_disc21(case, tmp_path):
    _, relevance, rows, ranking = case
    pairs = [(name, image) for name, grades in relevance.items() for image in grades or [""]]
    predictions = [(query, image, score) for query, rank, image, score in rows if rank < TOP]
    expected = disc21.score(
        write_csv(tmp_path / "p.csv", ["query_id", "reference_id", "score"], predictions),
        write_csv(tmp_path / "g.csv", ["query_id", "reference_id"], pairs),
    )
    run = score_ranking(ranking, truth_of(relevance), "disc21", N_IMAGES, top=TOP)
    ours = {metric: value for (part, metric), value in values(run).items() if part == "all"}
    assert ours == pytest.approx({metric: value for (_, metric), value in values(expected).items()})
    for row in run.rows:
        if row.low is not None and row.value is not None:
            assert row.low <= row.value <= row.high
    with pytest.raises(ParameterError, match="disc21 and recall@1 both give"):
        score_ranking(ranking, truth_of(relevance), "disc21, recall@1", N_IMAGES, top=TOP)


def test_inquire(case, tmp_path):
    _, relevance, rows, ranking = case
    attributes = {
        "supercategory": [f"S{n % 2}" for n in range(N_QUERIES)],
        "category": [f"C{n % 3}" for n in range(N_QUERIES)],
        "iconic_group": ["G"] * N_QUERIES,
    }
    header = ["query_id", *attributes]
    queries = list(zip(relevance, *attributes.values(), strict=True))
    annotations = [(name, image) for name, grades in relevance.items() for image in grades]
    run_rows = [(query, image, score) for query, _, image, score in rows]
    expected = inquire.score(
        write_csv(tmp_path / "q.csv", header, queries),
        write_csv(tmp_path / "a.csv", ["query_id", "image_path"], annotations),
        write_csv(tmp_path / "r.csv", ["query_id", "image_path", "score"], run_rows),
    )
    run = score_ranking(ranking, truth_of(relevance, **attributes), "inquire", N_IMAGES)
    ours = values(run)
    for (part, metric), value in values(expected).items():
        assert ours[part.replace(":", "-").lower(), metric] == pytest.approx(value, abs=1e-12)


def test_ilias(case, tmp_path):
    _, relevance, rows, ranking = case
    relevance = {name: grades or {"i00": "positive"} for name, grades in relevance.items()}
    ids = tmp_path / "image_ids"
    ids.mkdir()
    (ids / "image_query_ids.txt").write_text("".join(f"{name}/q,0\n" for name in relevance))
    (ids / "text_query_ids.txt").write_text("".join(f"{name}/t\n" for name in relevance))
    (ids / "positive_ids.txt").write_text(
        "".join(f"{name}/{image},0.1,5\n" for name, grades in relevance.items() for image in grades)
    )
    sims: dict = {f"{name}/q": {} for name in relevance}
    for query, _, image, score in rows:
        name = f"{query}/{image}" if image in relevance[query] else f"yfcc/{image}"
        sims[f"{query}/q"][name] = score
    (tmp_path / "s.json").write_text(json.dumps(sims))
    expected = ilias.score(tmp_path, tmp_path / "s.json", 1000)
    run = score_ranking(ranking, truth_of(relevance), "ilias", N_IMAGES)
    for metric in ("map@1000", "oracle@1000"):
        assert run.value("all", metric) == pytest.approx(expected.value("all", metric), abs=1e-12)


def test_a_reranked_list_counts_by_its_ranks(case):
    _, relevance, _, ranking = case
    reranked = dict(ranking)
    reranked["score"] = [-rank if rank > 4 else rank for rank in ranking["rank"]]
    by_rank = score_ranking(reranked, truth_of(relevance), "inquire", N_IMAGES)
    strict = score_ranking(ranking, truth_of(relevance), "map@50, ndcg@50, mrr", N_IMAGES)
    for metric in ("map@50", "ndcg@50", "mrr"):
        assert by_rank.value("all", metric) == pytest.approx(strict.value("all", metric))


def test_junk_is_no_prediction_and_takes_no_place(case):
    _, relevance, rows, ranking = case
    junk = {name: next(image for query, _, image, _ in rows if query == name) for name in relevance}
    marked = {name: {**grades, junk[name]: "junk"} for name, grades in relevance.items()}
    without = {column: [] for column in ranking}
    for query, rank, image, score in rows:
        if image != junk[query]:
            for column, value in zip(without, (query, rank - 1, image, score), strict=True):
                without[column].append(value)
    reduced = {
        name: {image: g for image, g in grades.items() if image != junk[name]}
        for name, grades in relevance.items()
    }
    for protocol in ("inquire", "gldv2", "ilias", "instre"):
        one = score_ranking(ranking, truth_of(marked), protocol, N_IMAGES)
        two = score_ranking(without, truth_of(reduced), protocol, N_IMAGES)
        for left, right in zip(one.per_query, two.per_query, strict=True):
            if not left.metric.startswith("oracle"):  # the list is one shorter
                np.testing.assert_allclose(left.values, right.values, rtol=0, atol=1e-12)
