"""INSTRE: ground truth in the revisited layout, run as a score or rank matrix; alone, or with ILIAS's distractors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cairn.metrics import ilias
from cairn.metrics.ragged import Ints
from cairn.metrics.result import PerQuery, ScoredRun, scored
from cairn.scoring.files import check_depth
from cairn.scoring.revisitop import Gnd, checked_rows, judged_ranks, query_names, read_gnd, score_grades


def score(
    gnd: Path, scores: Path | None = None, ranks: Path | None = None, k: int | None = None
) -> ScoredRun:
    """INSTRE's mAP over its 1,250 queries: AP by trapezoids, as in the revisited protocol, over all positives.

    Positives are `ok`, or `easy` and `hard` together; `junk` is taken out (Iscen et al., "Efficient Diffusion
    on Region Manifolds", CVPR 2017, scored with the Oxford `compute_ap`). With `k` (1,000 for a gallery with the
    ILIAS distractors) mAP@k and oracle@k as ILIAS defines them instead: equal scores form one threshold.
    """
    truth = read_gnd(gnd, None)
    positives = ("ok",) if "ok" in truth.lists[0] else ("easy", "hard")
    if k is not None:
        return _score_at(truth, positives, scores, ranks, k)
    run, warnings = judged_ranks(truth, scores, ranks)
    result = score_grades(truth, run, positives, ("junk",))
    return scored("instre", [PerQuery("all", "map", run.names, result.average_precision)], warnings)


def _score_at(
    truth: Gnd, positives: Sequence[str], scores: Path | None, ranks: Path | None, k: int
) -> ScoredRun:
    check_depth(k)
    warnings = list(truth.warnings)
    query, value, relevant = [], [], []
    for number, row in checked_rows(truth, scores, ranks, warnings):
        lists = truth.lists[number]
        wanted = np.concatenate([lists[grade] for grade in positives])
        images, values = (
            _first(row, lists["junk"], k) if scores is not None else _listed(row, lists["junk"], k)
        )
        query.append(np.full(len(images), number, np.int64))
        value.append(values)
        relevant.append(np.isin(images, wanted))
    n_positives = np.array([len({i for g in positives for i in lists[g].tolist()}) for lists in truth.lists])
    average, oracle = ilias.score(
        np.concatenate(query), np.concatenate(value), np.concatenate(relevant), n_positives, k
    )
    if short := sum(len(images) < k for images in value):
        warnings.append(
            f"{short:,} queries list fewer than {k} images without junk; oracle divides by what is listed, as the "
            "official code of ILIAS does, so that it is larger than a full list would give"
        )
    names = query_names(truth)
    per_query = [PerQuery("all", f"map@{k}", names, average), PerQuery("all", f"oracle@{k}", names, oracle)]
    return scored("instre", per_query, warnings)


def _first(row: np.ndarray, junk: Ints, k: int) -> tuple[Ints, np.ndarray]:
    """The `k` images of highest score that are not junk, best first (ties: lower number), and their scores."""
    wanted = min(k + len(junk), len(row))
    least = np.partition(row, len(row) - wanted)[len(row) - wanted]
    images = np.flatnonzero(row >= least)
    images = images[~np.isin(images, junk)]
    images = images[np.argsort(-row[images].astype(np.float64), kind="stable")][:k]
    return images, row[images].astype(np.float64) if row.dtype.kind in "iu" else row[images]


def _listed(order: np.ndarray, junk: Ints, k: int) -> tuple[Ints, np.ndarray]:
    """The first `k` images of a list that are not junk, and scores that fall from one to the next."""
    images = order[: k + len(junk)]
    images = images[~np.isin(images, junk)][:k]
    return images.astype(np.int64), -np.arange(len(images), dtype=np.float64)
