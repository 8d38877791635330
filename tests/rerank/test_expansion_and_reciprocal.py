"""Query expansion and k-reciprocal re-ranking against their definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ParameterError
from cairn.rerank.expansion import alpha_expanded, expansion_slug, rerank_expanded
from cairn.rerank.reciprocal import reciprocal_distances, reciprocal_slug, rerank_reciprocal
from cairn.rerank.two_stage import RankedQuery


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def ranking(query: np.ndarray, gallery: np.ndarray) -> RankedQuery:
    scores = gallery @ query
    order = np.argsort(-scores, kind="stable")
    return RankedQuery("q", tuple(map(str, order)), order, np.arange(len(order)), scores[order], len(order))


def clusters(seed: int, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A query of class 0 and a gallery of 6 classes of 8 images."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(6, 16))
    labels = np.repeat(np.arange(6), 8)
    gallery = unit(centres[labels] + noise * generator.normal(size=(48, 16)) * 2)
    return unit(centres[0] + 2 * noise * generator.normal(size=16)), gallery, labels


def test_alpha_expansion_by_the_formula():
    query, near = unit(np.array([1.0, 0, 0])), unit(np.array([[1.0, 1, 0], [-1, 0, 1]]))
    similarity = 2**-0.5
    expected = query + similarity**3 * near[0]
    np.testing.assert_allclose(alpha_expanded(query, near, 3.0), unit(expected), atol=1e-6)
    np.testing.assert_allclose(alpha_expanded(query, near[:0]), query, atol=1e-7)
    # At alpha 0 every neighbour of positive similarity counts alike.
    np.testing.assert_allclose(alpha_expanded(query, near, 0.0), unit(query + near[0]), atol=1e-6)
    # A query without a feature has no direction, and no neighbour gives it one.
    assert not alpha_expanded(np.zeros(3, np.float32), near).any()
    with pytest.raises(ParameterError, match="alpha = -1"):
        alpha_expanded(query, near, -1)


def reference_reciprocal(query, gallery, k1, k2, mix):
    """Sets and loops, after sections 3.2 to 3.4 of the paper with the normalisation of the official code."""
    points = np.concatenate([query[None], gallery]).astype(float)
    distance = np.array([[max(0.0, float(((a - b) ** 2).sum())) for b in points] for a in points])
    distance = (distance / distance.max(axis=0)).T
    n = len(points)
    order = [sorted(range(n), key=lambda j, i=i: (distance[i][j], j)) for i in range(n)]

    def reciprocal(i, k):
        return {j for j in order[i][: k + 1] if i in order[j][: k + 1]}

    encoding = np.zeros((n, n))
    for i in range(n):
        own = reciprocal(i, k1)
        expanded = set(own)
        for j in own:
            other = reciprocal(j, int(np.around(k1 / 2)))
            if len(own & other) > 2 / 3 * len(other):
                expanded |= other
        for j in expanded:
            encoding[i, j] = np.exp(-distance[i][j])
        encoding[i] /= encoding[i].sum()
    encoding = np.array([np.mean([encoding[j] for j in order[i][:k2]], axis=0) for i in range(n)])
    result = []
    for j in range(1, n):
        least, most = np.minimum(encoding[0], encoding[j]).sum(), np.maximum(encoding[0], encoding[j]).sum()
        result.append((1 - mix) * (1 - least / most) + mix * distance[0][j])
    return np.array(result)


@given(st.integers(0, 99), st.integers(1, 12), st.integers(1, 6), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=15, deadline=None)
def test_reciprocal_equals_the_definition(seed: int, k1: int, k2: int, mix: float):
    query, gallery, _ = clusters(seed)
    expected = reference_reciprocal(query, gallery[:20], k1, k2, mix)
    np.testing.assert_allclose(reciprocal_distances(query, gallery[:20], k1, k2, mix), expected, atol=1e-6)


def test_both_bring_up_images_of_the_querys_class():
    gains = {"expansion": [], "reciprocal": []}
    for seed in range(12):
        query, gallery, labels = clusters(seed)
        ranked = ranking(query, gallery)
        rows = lambda chosen, gallery=gallery: gallery[chosen]  # noqa: E731
        before = (labels[ranked.image_row[:8]] == 0).mean()
        for name, changed in (
            ("expansion", rerank_expanded([ranked], query[None], rows, top=48, neighbours=4)),
            ("reciprocal", rerank_reciprocal([ranked], query[None], rows, top=48, k1=7, k2=3)),
        ):
            assert sorted(changed[0].order) == list(range(48))
            gains[name].append((labels[ranked.image_row[changed[0].order[:8]]] == 0).mean() - before)
    assert np.mean(gains["expansion"]) > 0.02 and np.mean(gains["reciprocal"]) > 0.02, gains


def test_wrong_knobs():
    with pytest.raises(ParameterError, match="k1 = 0"):
        reciprocal_distances(*clusters(0)[:2], k1=0)


def test_slugs():
    assert expansion_slug(400) == "aqe-k400-n10-a3"
    assert reciprocal_slug(400) == "kr-k400-n20-m6-l0.3"
