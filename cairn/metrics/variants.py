"""Popular deviations from the official definitions, under names of their own, to show how far they move a score.

None of these is used for a benchmark's numbers. Each function takes what the official one takes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cairn.metrics import forb, gldv2, micro_ap, ranked
from cairn.metrics.ragged import Bools, Floats, Ints, count_per_query, divide
from cairn.metrics.tied import hits_found, precision_sum, tied_lists


@dataclass(frozen=True)
class Variant:
    """A deviation: its name, the protocol and metric it departs from, what each does."""

    name: str
    protocol: str
    metric: str
    official: str
    deviation: str


VARIANTS = (
    Variant(
        "revisitop-rectangular",
        "revisitop",
        "map",
        "AP by trapezoids: the mean of the precision before and at each positive",
        "AP by rectangles: the precision at each positive",
    ),
    Variant(
        "gldv2-all-positives",
        "gldv2",
        "map@100",
        "AP@100 over min(#positives, 100)",
        "AP@100 over all positives",
    ),
    Variant(
        "forb-over-hits",
        "forb",
        "map@5",
        "AP@5 over all positives that exist",
        "AP@5 over the positives found among the five",
    ),
    Variant(
        "forb-one-rate",
        "forb",
        "t-map@5",
        "mean over 11 thresholds, false-positive rates 0 to 1",
        "one threshold, at false-positive rate 0.1",
    ),
    Variant(
        "disc21-file-order",
        "disc21",
        "micro-ap",
        "equal scores: false predictions first",
        "equal scores in the order of the file",
    ),
    Variant(
        "disc21-true-first",
        "disc21",
        "micro-ap",
        "equal scores: false predictions first",
        "equal scores: true predictions first (the most a file order can give)",
    ),
    Variant(
        "inquire-over-hits",
        "inquire",
        "map@k",
        "AP@k over min(k, #positives)",
        "AP@k over the positives found within k",
    ),
)


def revisitop_rectangular(owner: Ints, position: Ints, n_positives: NDArray) -> Floats:
    """`revisitop-rectangular`: [queries], NaN without positives."""
    return ranked.average_precision(owner, position, n_positives)


def gldv2_all_positives(query: Ints, place: Ints, correct: Bools, n_positives: Ints) -> Floats:
    """`gldv2-all-positives`: [queries], NaN without positives."""
    official = gldv2.score(query, place, correct, n_positives)
    return official * divide(np.minimum(n_positives, gldv2.K), n_positives)


def forb_over_hits(query: Ints, correct: Bools, n_positives: Ints, k: int) -> Floats:
    """`forb-over-hits`: [queries]; 0 without a hit, and 1 where nothing exists and nothing is given."""
    hits = forb.correct_candidates(query, correct, n_positives)
    official = forb.average_precision(query, hits, n_positives, k)
    found = count_per_query(hits.query[hits.place <= k], len(n_positives))
    return np.where(found > 0, official * n_positives / np.maximum(found, 1), official)


def forb_one_rate(
    query: Ints,
    similarity: Floats,
    correct: Bools,
    n_positives: Ints,
    levels: Floats,
    k: int,
    rate: float = 0.1,
) -> Floats:
    """`forb-one-rate`: AP@k over the candidates that reach the threshold of one false-positive rate, [queries]."""
    level = levels[np.flatnonzero(np.isclose(forb.RATES, rate))]
    (scores,) = forb.score(query, similarity, correct, n_positives, level, [k])
    values = scores.threshold_average_precision
    assert values is not None
    return values


def disc21_file_order(score: Floats, correct: Bools, n_positives: int) -> float:
    """`disc21-file-order`: micro-AP with a stable sort by score."""
    return _micro_ap(correct[np.argsort(-score, kind="stable")], n_positives)


def disc21_true_first(score: Floats, correct: Bools, n_positives: int) -> float:
    """`disc21-true-first`: micro-AP with true predictions first among equal scores."""
    return _micro_ap(correct[np.lexsort((~correct, -score))], n_positives)


def inquire_over_hits(query: Ints, value: Floats, relevant: Bools, n_positives: Ints, k: int) -> Floats:
    """`inquire-over-hits`: [queries]; 0 without a hit, NaN without positives."""
    lists = tied_lists(query, value, relevant, k)
    found = hits_found(lists, len(n_positives))
    values = precision_sum(lists, len(n_positives)) / np.maximum(found, 1)
    return np.where(n_positives > 0, values, np.nan)


def _micro_ap(correct: Bools, n_positives: int) -> float:
    place = np.flatnonzero(correct)
    return micro_ap.micro_average_precision(micro_ap.TruePoints(place, place), n_positives)
