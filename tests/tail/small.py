"""Small worlds with known truth, for tests that must not need the reference data."""

import numpy as np

from cairn.tail.scores import SampleScores, sample_scores


def exponential_world(
    seed: int,
    queries: int = 150,
    gallery: int = 10**6,
    sample: int = 50_000,
    kept: int = 600,
    cutoff: int = 100,
) -> tuple[SampleScores, int, int, float]:
    """Scores whose tail is exponential: (scores, N, K, exact full-pool mean AP@K)."""
    rng = np.random.default_rng(seed)
    full = np.log(gallery) - np.log(np.cumsum(rng.exponential(size=(queries, 40_000)), axis=1))
    full = full.astype(np.float32)
    inside = rng.random(full.shape) < sample / gallery
    order = np.argsort(~inside, axis=1, kind="stable")[:, :kept]
    assert inside.sum(axis=1).min() >= kept
    pos_q = np.repeat(np.arange(queries), 3)
    pos_s = rng.uniform(3.5, 22.0, len(pos_q)).astype(np.float32)
    scores = sample_scores(np.take_along_axis(full, order, 1), pos_q, pos_s, sample)
    ahead = np.array([(full[q] >= s).sum() for q, s in zip(scores.query, scores.score, strict=True)])
    rank = scores.index + ahead
    ap = np.bincount(scores.query, np.where(rank <= cutoff, scores.index / rank, 0)) / 3
    return scores, gallery, cutoff, float(ap.mean())
