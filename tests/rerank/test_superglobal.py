"""SuperGlobal against the reference ranking and an implementation from the formulas, query by query."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ParameterError
from cairn.rerank.superglobal import SuperGlobal, as_ranking, refine, rerank_superglobal, superglobal_scores
from cairn.rerank.two_stage import RankedQuery


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def ranking(query: np.ndarray, gallery: np.ndarray, query_id: str = "q") -> RankedQuery:
    scores = gallery @ query
    order = np.argsort(-scores, kind="stable")
    names = tuple(f"i{row:04d}" for row in order)
    return RankedQuery(query_id, names, order, np.arange(len(order)), scores[order], len(order))


def by_the_formulas(query: np.ndarray, top: np.ndarray, k: int, beta: float) -> np.ndarray:
    """Float64 loops over equations of section 3.3."""
    query, top = query.astype(float), top.astype(float)
    refined = []
    for x in top:
        near = sorted(range(len(top)), key=lambda j: -(x @ top[j]))[: k + 1]
        weights = [1.0] + [beta * (x @ top[j]) for j in near[1:]]
        refined.append(sum(w * top[j] for w, j in zip(weights, near, strict=True)) / sum(weights))
    first = np.array([r @ query for r in refined])
    best = sorted(range(len(top)), key=lambda j: -first[j])[: k + 1]
    second = np.max([refined[j] for j in best], axis=0)
    return np.array([(f + r @ second) / 2 for f, r in zip(first, refined, strict=True)])


def test_a_list_without_a_single_descriptor_stays_as_it_is():
    query = unit(np.random.default_rng(0).random(8))
    none = RankedQuery("q", ("a", "b"), np.arange(2), np.arange(2), np.full(2, -1, np.float32), 2, 2)
    assert superglobal_scores(query, np.zeros((0, 8), np.float32)).shape == (0,)
    [found] = rerank_superglobal([none], query[None], lambda rows: np.zeros((len(rows), 8), np.float32))
    assert found.order.tolist() == [0, 1] and found.score.tolist() == [-1, -1]


def test_golden_ranks(shared: Path):
    case = np.load(shared / "golden" / "superglobal_rerank.npz")
    gallery, queries, expected = case["gallery"], case["queries"], case["expected_ranks"]
    ranked = [ranking(query, gallery) for query in queries]
    reranked = rerank_superglobal(ranked, queries, lambda rows: gallery[rows], SuperGlobal(400, 9, 0.15))
    for query, ranks, before, after in zip(queries, expected, ranked, reranked, strict=True):
        rows = before.image_row[after.order]
        assert sorted(rows) == list(range(len(gallery)))
        scores = dict(zip(rows, after.score, strict=True))
        differs = np.flatnonzero(rows != ranks)
        # Where the order differs, the two scores must be a near-tie.
        assert all(abs(scores[rows[i]] - scores[ranks[i]]) < 1e-6 for i in differs), query
        assert len(differs) <= 4


@given(st.integers(0, 999), st.integers(1, 30), st.integers(0, 12), st.sampled_from([0.0, 0.15, 1.0]))
@settings(max_examples=40, deadline=None)
def test_equals_the_formulas(seed: int, m: int, k: int, beta: float):
    generator = np.random.default_rng(seed)
    # Positive descriptors: similarities, and with them the sums of weights, stay positive.
    query, gallery = unit(generator.random(8)), unit(generator.random((m, 8)))
    top = gallery[np.argsort(-(gallery @ query))]
    expected = by_the_formulas(query, top, k, beta)
    np.testing.assert_allclose(superglobal_scores(query, top, k, beta), expected, atol=2e-6)


def test_without_neighbours_refinement_changes_nothing():
    top = unit(np.random.default_rng(0).normal(size=(12, 6)))
    np.testing.assert_allclose(refine(top, 0), top, atol=1e-7)


def test_images_behind_the_top_keep_their_place():
    generator = np.random.default_rng(1)
    gallery, queries = unit(generator.random((50, 8))), unit(generator.random((2, 8)))
    ranked = [ranking(query, gallery, str(i)) for i, query in enumerate(queries)]
    changed = rerank_superglobal(ranked, queries, lambda rows: gallery[rows], SuperGlobal(20, 3))
    for before, after in zip(ranked, changed, strict=True):
        np.testing.assert_array_equal(after.order[20:], np.arange(20, 50))
        assert sorted(after.order[:20]) == list(range(20))
        assert np.all(np.diff(after.score[:20]) <= 0)
        np.testing.assert_array_equal(after.rank, before.rank)
    chained = as_ranking(ranked, changed)
    assert [chained[0].image_ids[i] for i in range(50)] == [ranked[0].image_ids[i] for i in changed[0].order]


def test_a_top_larger_than_the_gallery_is_the_gallery():
    generator = np.random.default_rng(2)
    gallery, query = unit(generator.random((7, 5))), unit(generator.random(5))
    (changed,) = rerank_superglobal([ranking(query, gallery)], query[None], lambda rows: gallery[rows])
    assert sorted(changed.order) == list(range(7))


def test_slugs_and_limits():
    assert SuperGlobal().slug == "sg-m400"
    assert SuperGlobal(1600).slug == "sg-m1600"
    assert SuperGlobal(1600, 5, 0.2).slug == "sg-m1600-k5-b0.2"
    with pytest.raises(ParameterError, match="M = 0"):
        SuperGlobal(0)
