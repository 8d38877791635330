"""What must hold for any ranking under every metric: company, duplicates, junk, tiny galleries, large k."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.metrics.evaluate import AT_K, POOLED, WHOLE, known_protocols, score_ranking

RANKED = [*WHOLE, "map-trapezoid", *(f"{name}@{k}" for name in AT_K for k in (1, 3, 50))]


def truth_of(relevance):
    return GroundTruth(tuple(Query(name, image_id="query.jpg") for name in relevance), relevance)


def ranking_of(scores):
    """A ranking of the whole gallery per query: by score, then image number."""
    columns = {"query_id": [], "rank": [], "image_id": [], "score": []}
    for query, values in scores.items():
        for rank, image in enumerate(sorted(range(len(values)), key=lambda i: (-values[i], i))):
            for name, value in zip(columns, (query, rank, f"i{image}", values[image]), strict=True):
                columns[name].append(value)
    return columns


def values_of(run):
    return {
        (each.slice, each.metric, query): value
        for each in run.per_query
        for query, value in zip(each.query_ids, each.values, strict=True)
    }


def score(relevance, scores, protocol):
    size = len(next(iter(scores.values())))
    return score_ranking(ranking_of(scores), truth_of(relevance), protocol, size)


@st.composite
def queries(draw, n_images=None):
    n_images = n_images or draw(st.integers(1, 9))
    values = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=n_images, max_size=n_images))
    images = st.sampled_from([f"i{n}" for n in range(n_images)])
    grades = draw(st.dictionaries(images, st.sampled_from(["positive", "junk"]), max_size=n_images))
    return grades, values


@settings(deadline=None, max_examples=40)
@given(queries(6), queries(6), st.integers(0, 69))
def test_a_query_scores_the_same_alone_and_among_2_or_70(first, other, place):
    names = [f"q{n:02d}" for n in range(70)]
    companies = [[names[place]], [names[place], "x"], names]
    results = []
    for company in companies:
        relevance = {name: (first if name == names[place] else other)[0] for name in company}
        scores = {name: (first if name == names[place] else other)[1] for name in company}
        run = values_of(score(relevance, scores, RANKED))
        results.append([run["all", metric, names[place]] for metric in RANKED])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@settings(deadline=None, max_examples=60)
@given(queries())
def test_values_are_fractions_or_do_not_exist(query):
    grades, scores = query
    run = score({"q": grades}, {"q": scores}, [*RANKED, *POOLED])
    has_positive = "positive" in grades.values()
    for row in run.rows:
        assert (row.value is None) <= (not has_positive or row.metric in POOLED)
        assert row.value is None or 0 <= row.value <= 1


@settings(deadline=None, max_examples=60)
@given(queries(), st.integers(0, 8))
def test_junk_is_as_if_it_were_not_there(query, at):
    grades, scores = query
    run = values_of(score({"q": grades}, {"q": scores}, RANKED))
    at = min(at, len(scores))
    shifted = {f"i{int(name[1:]) + (int(name[1:]) >= at)}": grade for name, grade in grades.items()}
    junked = score({"q": {**shifted, f"i{at}": "junk"}}, {"q": [*scores[:at], 0.5, *scores[at:]]}, RANKED)
    np.testing.assert_array_equal(list(run.values()), list(values_of(junked).values()))


@settings(deadline=None, max_examples=60)
@given(queries(), st.data())
def test_an_exact_duplicate_of_a_negative_behind_it_never_helps(query, data):
    grades, scores = query
    negatives = [n for n in range(len(scores)) if f"i{n}" not in grades]
    if not negatives or "positive" not in grades.values():
        return
    copied = data.draw(st.sampled_from(negatives))
    run = values_of(score({"q": grades}, {"q": scores}, RANKED))
    doubled = values_of(score({"q": grades}, {"q": [*scores, scores[copied]]}, RANKED))
    for key, value in run.items():
        assert doubled[key] <= value + 1e-12 or key[1].startswith("mp@")


@pytest.mark.parametrize("metric", RANKED)
def test_one_image(metric):
    assert score({"q": {"i0": "positive"}}, {"q": [0.5]}, metric).rows[0].value == (
        1 / 3 if metric == "precision@3" else 1 / 50 if metric == "precision@50" else 1
    )
    assert score({"q": {"i0": "junk"}}, {"q": [0.5]}, metric).rows[0].value is None
    assert score({"q": {}}, {"q": [0.5]}, metric).rows[0].value is None


@pytest.mark.parametrize("grades", [{}, {"i0": "junk", "i1": "junk", "i2": "junk"}])
def test_no_positive_at_all(grades):
    for name in known_protocols():
        run = score({"q": grades, "r": grades}, {"q": [3.0, 2, 1], "r": [1.0, 2, 3]}, name.replace("K", "5"))
        assert all(row.value is None and row.low is None for row in run.rows), name


def test_a_query_that_is_in_the_gallery_counts_as_it_is_graded():
    # Image 0 is the query itself: unmarked it is a negative ahead of the positive, marked as junk it is gone.
    scores = {"q": [9.0, 5, 1]}
    assert score({"q": {"i1": "positive"}}, scores, "map").rows[0].value == 0.5
    assert score({"q": {"i1": "positive", "i0": "junk"}}, scores, "map").rows[0].value == 1


@pytest.mark.parametrize("k", [3, 4, 10**9])
def test_k_beyond_the_gallery_sees_the_whole_gallery(k):
    grades, scores = {"q": {"i1": "positive", "i2": "positive"}}, {"q": [9.0, 5, 1]}
    whole = score(grades, scores, ["map", "ndcg", "mrr"])
    cut = score(grades, scores, [f"map@{k}", f"ndcg@{k}", f"mrr@{k}"])
    assert [row.value for row in cut.rows] == [row.value for row in whole.rows]
