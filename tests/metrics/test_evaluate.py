"""Scoring a ranking against a ground truth: protocols, slices, intervals, and what a wrong ranking says."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.errors import ArtifactError, InputError, ParameterError
from cairn.metrics import evaluate, revisitop
from cairn.metrics.evaluate import known_protocols, parse_protocol, score_ranking


def truth_of(relevance, splits=None, attributes=None):
    queries = tuple(Query(name, image_id=f"{name}.jpg", split=(splits or {}).get(name)) for name in relevance)
    return GroundTruth(queries, relevance, attributes or {})


def ranking_of(orders, top=None, judged=()):
    """A ranking table of whole orders (query -> image ids, best first), cut at `top` save judged images."""
    rows = [
        (query, rank, image, 1 - rank / len(order))
        for query, order in orders.items()
        for rank, image in enumerate(order)
        if top is None or rank < top or (query, image) in judged
    ]
    query, rank, image, score = zip(*rows, strict=True)
    return pa.table(
        {
            "query_id": list(query),
            "rank": pa.array(rank, pa.int32()),
            "image_id": list(image),
            "score": pa.array(score, pa.float32()),
        }
    )


IMAGES = list("abcdefgh")
TRUTH = truth_of({"q": {"b": "easy", "d": "hard", "a": "junk"}, "r": {"a": "hard", "h": "hard"}})
ORDERS = {"q": IMAGES, "r": IMAGES}


def test_revisitop_by_hand():
    run = score_ranking(ranking_of(ORDERS), TRUTH, "revisitop", len(IMAGES))
    assert [row.slice for row in run.rows] == [
        setup for setup in ("easy", "medium", "hard") for _ in range(4)
    ]
    assert [row.metric for row in run.rows[:4]] == ["map", "mp@1", "mp@5", "mp@10"]
    # q without junk: b, c, d: Medium AP = (1 + (1/2 + 2/3) / 2) / 2; r: (1 + (1/7 + 2/8) / 2) / 2.
    medium = [(1 + (1 / 2 + 2 / 3) / 2) / 2, (1 + (1 / 7 + 2 / 8) / 2) / 2]
    assert run.value("medium", "map") == pytest.approx(np.mean(medium))
    assert run.value("easy", "map") == 1
    assert next(row for row in run.rows if row.slice == "easy").n_queries == 1
    (values,) = (each for each in run.per_query if (each.slice, each.metric) == ("medium", "map"))
    assert values.query_ids == ("q", "r")
    assert values.values == pytest.approx(medium)


def test_one_grade_gives_one_slice():
    truth = truth_of({"q": {"b": "positive", "a": "junk"}, "r": {"a": "positive"}})
    run = score_ranking(ranking_of(ORDERS), truth, "revisitop", len(IMAGES))
    assert {row.slice for row in run.rows} == {"all"}
    assert run.value("all", "map") == 1


def test_mixed_grades_are_refused():
    truth = truth_of({"q": {"b": "positive", "a": "easy"}})
    with pytest.raises(InputError, match="mixes"):
        score_ranking(ranking_of({"q": IMAGES}), truth, "revisitop", len(IMAGES))


def test_every_known_protocol_scores_a_perfect_ranking_as_perfect():
    truth = truth_of({"q": {"a": "positive"}, "r": {"b": "positive"}})
    ranking = ranking_of({"q": IMAGES, "r": ["b", "a", *IMAGES[2:]]})
    for name in known_protocols():
        run = score_ranking(ranking, truth, name.replace("K", "1"), len(IMAGES))
        for row in run.rows:
            # Pooled: the two positives score alike, all else lower. The official oracle divides by what is
            # listed, and P@50 by 50.
            # t-mAP needs to know which images are out of distribution.
            if row.metric.startswith("t-map"):
                assert row.value is None
            elif not row.metric.startswith(("oracle", "precision@50")):
                assert row.value == pytest.approx(1), name


@pytest.mark.parametrize("name", ["map@0", "map@-1", "map@x", "accuracy", "recall", "map@1.5", "", "map@٣"])
def test_unknown_metric_lists_the_known(name):
    with pytest.raises(ParameterError, match=re.escape("known: revisitop, instre")):
        parse_protocol(name)


def test_names_are_forgiving():
    names = [metric.name for metric in parse_protocol("micro-AP, mAP@100")]
    assert names == ["micro-ap", "map@100"]
    assert [metric.name for metric in parse_protocol(["mrr", "MRR", "ndcg@050"])] == ["mrr", "ndcg@50"]


def test_values_by_hand():
    # q: junk a is out: b is first, d third of the rest; r: a first, h last (8th).
    run = score_ranking(
        ranking_of(ORDERS), TRUTH, "map, map@2, precision@2, recall@2, hit@2, mrr, ndcg@3, mp@2", len(IMAGES)
    )
    assert run.value("all", "map") == pytest.approx(np.mean([(1 + 2 / 3) / 2, (1 + 2 / 8) / 2]))
    assert run.value("all", "map@2") == pytest.approx(0.5)
    assert run.value("all", "precision@2") == pytest.approx(0.5)
    assert run.value("all", "recall@2") == pytest.approx(0.5)
    assert run.value("all", "hit@2") == 1
    assert run.value("all", "mrr") == 1
    best = 1 + 1 / np.log2(3)
    assert run.value("all", "ndcg@3") == pytest.approx(np.mean([(1 + 1 / np.log2(4)) / best, 1 / best]))


def test_micro_ap_counts_distractor_queries_and_ignores_rows_beyond_the_cut():
    truth = truth_of({"q": {"b": "positive", "h": "positive"}, "distractor": {}})
    orders = {"q": IMAGES, "distractor": IMAGES}
    ranking = ranking_of(orders, top=2, judged={("q", "h")})
    run = score_ranking(ranking, truth, "micro-ap,recall@p90", len(IMAGES))
    # Order: a (q), a (distractor), then b (distractor, false) before b (q, true): precision 1/4, two pairs.
    assert run.value("all", "micro-ap") == pytest.approx(1 / 4 / 2)
    assert run.value("all", "recall@p90") is None
    assert run.rows[0].n_queries == 2


def test_slices_by_split_and_attribute():
    truth = truth_of(
        {"q": {"a": "positive"}, "r": {"h": "positive"}},
        splits={"q": "public", "r": "private"},
        attributes={"q": {"kind": "tower"}},
    )
    run = score_ranking(ranking_of(ORDERS), truth, "hit@1", len(IMAGES))
    assert {row.slice: (row.value, row.n_queries) for row in run.rows} == {
        "all": (0.5, 2),
        "private": (0.0, 1),
        "public": (1.0, 1),
        "kind-tower": (1.0, 1),
    }


def test_intervals_are_seeded_and_hold_the_value():
    generator = np.random.default_rng(0)
    truth = truth_of({f"q{i}": {str(generator.integers(30)): "positive"} for i in range(40)})
    orders = {f"q{i}": [str(j) for j in generator.permutation(30)] for i in range(40)}
    first, again, other = (
        score_ranking(ranking_of(orders), truth, "map,micro-ap", 30, seed=seed) for seed in (3, 3, 4)
    )
    assert first.rows == again.rows
    assert first.rows[0].value == other.rows[0].value
    assert (first.rows[0].low, first.rows[0].high) != (other.rows[0].low, other.rows[0].high)
    for row in first.rows:
        assert row.low < row.value < row.high
    # A mean over 40 queries: the percentile interval is close to the normal one.
    values = first.per_query[0].values
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert first.rows[0].high - first.rows[0].low == pytest.approx(2 * half, rel=0.1)


def changed(column, row, value):
    table = ranking_of(ORDERS)
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        (changed("score", 3, float("nan")), "query q: image d has the score nan; it must be finite"),
        (changed("score", 9, float("inf")), "query r: image b has the score inf; it must be finite"),
        (changed("query_id", 0, "x"), "query x is not in the ground truth"),
        (changed("rank", 3, 8), "query q: image d has rank 8; a gallery of 8 has ranks 0 to 7"),
        (changed("rank", 3, 2), "query q: image d has rank 2, which another image has"),
        (changed("image_id", 3, "c"), "query q: image c occurs twice"),
        (changed("image_id", 3, "x"), "query q: the hard image d is not ranked"),
        (changed("rank", 3, None), "column rank has empty cells"),
        (ranking_of({"q": IMAGES}), "query r has no rows"),
        (ranking_of(ORDERS).drop_columns(["score"]), "column score is missing"),
    ],
)
def test_wrong_rankings(ranking, message):
    with pytest.raises(ArtifactError, match=re.escape(message)):
        score_ranking(ranking, TRUTH, "revisitop", len(IMAGES))


@st.composite
def cases(draw):
    images = [f"i{n}" for n in range(draw(st.integers(1, 10)))]
    relevance, orders = {}, {}
    for number in range(draw(st.integers(1, 4))):
        grades = draw(st.dictionaries(st.sampled_from(images), st.sampled_from(["easy", "hard", "junk"])))
        relevance[f"q{number}"] = grades
        orders[f"q{number}"] = draw(st.permutations(images))
    return relevance, orders


@settings(deadline=None)
@given(cases(), st.integers(1, 12))
def test_the_cut_and_the_company_change_nothing(case, top):
    relevance, orders = case
    truth, size = truth_of(relevance), len(next(iter(orders.values())))
    protocol = "revisitop, map@3, mp@100, recall@1, mrr, ndcg"
    whole = score_ranking(ranking_of(orders), truth, protocol, size)
    judged = {(query, image) for query, grades in relevance.items() for image in grades}
    cut = score_ranking(ranking_of(orders, top, judged), truth, protocol, size)
    assert whole.rows == cut.rows
    for query in relevance:
        alone_truth = truth_of({query: relevance[query]})
        alone = score_ranking(ranking_of({query: orders[query]}), alone_truth, protocol, size)
        together = {(each.slice, each.metric): each for each in whole.per_query}
        for each in alone.per_query:
            # A query without a grade of its own has the slice `all` where the others have setups.
            if same := together.get((each.slice, each.metric)):
                np.testing.assert_array_equal(each.values[0], same.values[same.query_ids.index(query)])


def test_two_definitions_under_one_name_are_refused():
    truth = truth_of({"q": {"b": "positive"}})
    ranking = ranking_of({"q": IMAGES})
    with pytest.raises(ParameterError, match="revisitop and map both give a number all/map"):
        score_ranking(ranking, truth, "revisitop, map", len(IMAGES))
    run = score_ranking(ranking, truth, "revisitop, mp@5", len(IMAGES))
    assert len({(row.slice, row.metric) for row in run.rows}) == len(run.rows) == 4


def test_depths_are_those_of_the_protocol():
    assert revisitop.KAPPAS == (1, 5, 10)
    assert set(evaluate.AT_K) == {"map", "mp", "precision", "recall", "hit", "ndcg", "mrr"}


def test_slices_are_slugs_and_distinct():
    truth = truth_of(
        {name: {"a": "positive"} for name in "qrst"},
        splits={"q": "all", "r": "Set A", "s": "set/a", "t": "…"},
        attributes={"q": {"iconic_group": "Fungi & more"}},
    )
    run = score_ranking(ranking_of(dict.fromkeys("qrst", IMAGES)), truth, "hit@1", len(IMAGES))
    assert [row.slice for row in run.rows] == [
        "all", "set-a", "all-2", "set-a-2", "unnamed", "iconic-group-fungi-more",
    ]  # fmt: skip
