"""The benchmarks' own protocols on a ranking of the pipeline: which slices and metrics each reports.

Each function takes the ranked rows and the ground truth and gives per-query values; for what is pooled over all
queries see `cairn.metrics.pooled`. A run file in a benchmark's submission format goes through `cairn.scoring`
instead; the metrics are the same.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cairn.benchmarks.structure import NEGATIVE, OUTSIDE, GroundTruth
from cairn.errors import ArtifactError, InputError
from cairn.metrics import forb, gldv2, ilias, inquire, ranked, revisitop
from cairn.metrics.judged import RankedRows
from cairn.metrics.ragged import (
    Bools,
    Floats,
    Ints,
    count_per_query,
    cumulative_within,
    divide,
    place_within,
)
from cairn.metrics.result import PerQuery, Row

POSITIVES = ("positive", "easy", "hard")
ILIAS_CATEGORIES = ("category", "subcategory")


def score_revisitop(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slices easy, medium, hard: mAP and mP@{1,5,10}; slice all where there is one grade of positives."""
    graded = bool(rows.n_with("easy", "hard").sum())
    if graded and rows.n_with("positive").sum():
        raise InputError(
            "the ground truth mixes the grade positive with easy and hard; "
            "the protocol revisitop needs one kind or the other"
        )
    setups = revisitop.SETUPS if graded else {"all": (("positive",), ("junk",))}
    for setup, (positives, junk) in setups.items():
        scores = revisitop.score_setup(
            rows.query, rows.rank, rows.has(*positives), rows.has(*junk), rows.n_with(*positives)
        )
        yield PerQuery(setup, "map", rows.query_ids, scores.average_precision)
        for column, kappa in enumerate(revisitop.KAPPAS):
            yield PerQuery(setup, f"mp@{kappa}", rows.query_ids, scores.precision_at[:, column])


def score_instre(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slice all: mAP by trapezoids over all positives."""
    owner, position, n_positives = positives_without_junk(rows)
    values = revisitop.trapezoid_average_precision(owner, position, n_positives)
    yield PerQuery("all", "map", rows.query_ids, values)


def score_gldv2(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slices all and the splits (public, private): mAP@100."""
    values = ranked.average_precision(*positives_without_junk(rows), gldv2.K)
    yield from sliced(values, f"map@{gldv2.K}", rows.query_ids, truth)


def score_inquire(rows: RankedRows, truth: GroundTruth, k: int = 50) -> Iterator[PerQuery]:
    """Slices all and every attribute's values: mAP@50, nDCG@50, MRR, precision@50 and recall@50, with ties."""
    query, value, relevant = _top(rows, k)
    scores = inquire.score(query, value, relevant, rows.n_with(*POSITIVES), k)
    for metric, values in {
        f"map@{k}": scores.average_precision,
        f"ndcg@{k}": scores.ndcg,
        "mrr": scores.reciprocal_rank,
        f"precision@{k}": scores.precision,
        f"recall@{k}": scores.recall,
    }.items():
        yield from sliced(values, metric, rows.query_ids, truth)


def score_inquire_rerank(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slices all and every attribute's values: mAP, nDCG and MRR of each query's judged images alone, with ties.

    The judged images are the fixed list (100 of each query): those `positive` and those `negative`.
    """
    kept = np.flatnonzero(rows.has(*POSITIVES, NEGATIVE))
    query = rows.query[kept]
    score = _falling(query, rows.score[kept], rows.rank[kept])
    depth = int(count_per_query(query, len(rows.query_ids)).max(initial=1))
    scores = inquire.score(query, score, rows.has(*POSITIVES)[kept], rows.n_with(*POSITIVES), depth)
    for metric, values in {
        "map": scores.average_precision,
        "ndcg": scores.ndcg,
        "mrr": scores.reciprocal_rank,
    }.items():
        yield from sliced(values, metric, rows.query_ids, truth)


def score_ilias(rows: RankedRows, truth: GroundTruth, k: int = ilias.DEPTH) -> Iterator[PerQuery]:
    """Slice all (and splits): mAP@1000 and oracle@1000, with ties; mAP@1000 of scale and clutter groups.

    The groups need the attributes `scale` and `clutter` of positives. Categories: `ilias_categories`.
    """
    values, oracle = _ilias_values(rows, k)
    others = [name for name in truth.attribute_names() if name not in ILIAS_CATEGORIES]
    yield from sliced(values, f"map@{k}", rows.query_ids, truth, others)
    yield from sliced(oracle, f"oracle@{k}", rows.query_ids, truth, others)
    for title, bounds in (("scale", ilias.SCALE_BOUNDS), ("clutter", ilias.CLUTTER_BOUNDS)):
        images = truth.image_attributes
        measured = {image: float(of[title]) for image, of in images.items() if title in of}
        if not measured:
            continue
        sizes = np.array([measured.get(image, np.nan) for image in images])
        relevant = rows.has(*POSITIVES)
        size = np.where(relevant & (rows.annotated >= 0), sizes[rows.annotated], np.nan)
        for low, high in itertools.pairwise(bounds):
            in_group = (size >= low) & (size < high)
            query, score, correct = _top(rows, k, relevant & ~in_group)
            n_in_group = np.bincount(rows.query[in_group], minlength=len(rows.query_ids))
            each, _ = ilias.score(query, score, correct, n_in_group, k)
            yield PerQuery(_slug(f"{title}-{ilias.group_name(low, high)}"), f"map@{k}", rows.query_ids, each)


def ilias_categories(rows: RankedRows, truth: GroundTruth, k: int = ilias.DEPTH) -> Iterator[Row]:
    """mAP@1000 of every `category` and `subcategory`: means over instances, not over queries.

    A query's instance is the part of its id before the slash.
    """
    values, _ = _ilias_values(rows, k)
    instances = np.array([name.split("/")[0] for name in rows.query_ids])
    wanted = [name for name in ILIAS_CATEGORIES if name in truth.attribute_names()]
    for name, members in slices(truth, wanted, splits=False):
        if name != "all":
            value = ilias.macro_mean(values[members], instances[members])
            yield Row(name, f"map@{k}", value, int(members.sum()))


def _ilias_values(rows: RankedRows, k: int) -> tuple[Floats, Floats]:
    query, score, relevant = _top(rows, k)
    n_positives = rows.n_with(*POSITIVES)
    values, _ = ilias.score(query, score, relevant, n_positives, k)
    # The whole gallery is ranked, so that a list has k images (or the gallery's), however many rows are kept.
    listed = np.minimum(k, rows.gallery_size - rows.n_with("junk"))
    hits = np.bincount(query[relevant], minlength=len(n_positives))
    oracle = divide(hits * k, listed * n_positives)
    return values, oracle


def outside_tops(rows: RankedRows, outside: Bools) -> Floats:
    """Each query's best score [queries] among the rows `outside` [rows], -inf where it has none.

    One that has no descriptor is no candidate: where a query has no other, `forb.NOTHING`.
    """
    tops = np.full(len(rows.query_ids), -np.inf)
    tops[rows.query[outside & rows.absent]] = forb.NOTHING
    seen = outside & ~rows.absent
    best = np.full(len(tops), -np.inf)
    np.maximum.at(best, rows.query[seen], rows.score[seen])
    return np.where(np.isinf(best), tops, best)


def score_forb(rows: RankedRows, truth: GroundTruth) -> Iterator[PerQuery]:
    """Slices overall, difficulties and object types: mAP@{1,5} and t-mAP@{1,5}.

    The thresholds of t-mAP are each query's best score among out-of-distribution images. These are part of the
    gallery: all images but those with the attribute `out-of-distribution` = `no`. For a re-ranked list they come
    with the rows (`outside`), since its shortlist in that gallery is another. Where no image has the attribute, and
    where a re-ranked list comes without them, t-mAP has no value. Nothing is given where no query has a positive.
    ArtifactError where a query's images are all in distribution.
    """
    n_positives = rows.n_with(*POSITIVES)
    if not n_positives.any():
        return
    listed = rows.rank < rows.top
    query, score, correct = rows.query[listed], rows.score[listed], rows.has(*POSITIVES)[listed]
    levels = None
    if rows.outside is not None:
        levels = forb.thresholds(rows.outside)
    elif truth.image_attributes and not rows.reranked:
        known = [of.get(OUTSIDE) == "no" for of in truth.image_attributes.values()]
        outside = ~((rows.annotated >= 0) & np.array(known)[rows.annotated]) & listed
        tops = outside_tops(rows, outside)
        if (without := np.flatnonzero(np.isinf(tops))).size:
            raise ArtifactError(
                f"query {rows.query_ids[without[0]]}: none of its first {rows.top:,} images is out of "
                "distribution; t-mAP needs one: raise search.top"
            )
        levels = forb.thresholds(tops)
    none = np.full(len(n_positives), np.nan)
    groups = {"overall": np.ones(len(n_positives), bool)}
    for attribute in ("difficulty", "object"):
        of_query = [truth.attributes.get(name, {}).get(attribute) for name in rows.query_ids]
        groups |= {
            str(value): np.array([each == value for each in of_query])
            for value in dict.fromkeys(of_query)
            if value
        }
    for k, scores in zip(forb.KS, forb.score(query, score, correct, n_positives, levels), strict=True):
        cut = scores.threshold_average_precision
        for metric, values in (
            (f"map@{k}", scores.average_precision),
            (f"t-map@{k}", none if cut is None else cut),
        ):
            for name, members in groups.items():
                chosen = tuple(rows.query_ids[i] for i in np.flatnonzero(members))
                yield PerQuery(name, metric, chosen, values[members])


BENCHMARKS: dict[str, Callable[[RankedRows, GroundTruth], Iterator[PerQuery]]] = {
    "revisitop": score_revisitop,
    "instre": score_instre,
    "gldv2": score_gldv2,
    "inquire": score_inquire,
    "inquire-rerank": score_inquire_rerank,
    "ilias": score_ilias,
    "forb": score_forb,
}
"""Protocols whose numbers are means over queries, but for `ilias_categories`; see `cairn.metrics.pooled`, too."""


def positives_without_junk(rows: RankedRows) -> tuple[Ints, Ints, Ints]:
    """Query and position of every positive in the ranking without junk, and each query's number of positives."""
    owner, position = revisitop.positions_without_junk(
        rows.query, rows.rank, rows.has(*POSITIVES), rows.has("junk")
    )
    return owner, position, rows.n_with(*POSITIVES)


def sliced(
    values: Floats,
    metric: str,
    query_ids: tuple[str, ...],
    truth: GroundTruth,
    attributes: Sequence[str] | None = None,
) -> Iterator[PerQuery]:
    """The values of every slice."""
    for name, members in slices(truth, attributes):
        chosen = tuple(query_ids[i] for i in np.flatnonzero(members))
        yield PerQuery(name, metric, chosen, values[members])


def slices(
    truth: GroundTruth, attributes: Sequence[str] | None = None, splits: bool = True
) -> Iterator[tuple[str, Bools]]:
    """`all`, every split (of two or more), every `attribute-value`; each with its queries as a mask.

    `attributes` are the ones to take, all where None; without `splits` these are passed over.

    Names are slugs, since they become part of a number's name; two that would be alike are numbered.
    """
    queries = truth.queries
    yield "all", np.ones(len(queries), bool)
    groups: list[tuple[str, list[str | None]]] = []
    of_split = [query.split for query in queries]
    if splits and len(set(of_split)) > 1:
        groups.append(("", of_split))
    for attribute in truth.attribute_names() if attributes is None else attributes:
        values = [truth.attributes.get(query.query_id, {}).get(attribute) for query in queries]
        groups.append((f"{attribute}-", values))
    taken = {"all"}
    for prefix, values in groups:
        for value in sorted({value for value in values if value is not None}):
            name = base = _slug(f"{prefix}{value}")
            number = 2
            while name in taken:
                name, number = f"{base}-{number}", number + 1
            taken.add(name)
            yield name, np.array([each == value for each in values], bool)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-") or "unnamed"


def _top(rows: RankedRows, k: int, left_out: Bools | None = None) -> tuple[Ints, Floats, Bools]:
    """Query, score and relevance of each query's first k rows without junk and those `left_out` [rows].

    Where scores do not follow the ranks (a re-ranked list), places stand for scores. ArtifactError where an image
    before a judged one of these k is missing, since the ranking was cut.
    """
    out = rows.has("junk") if left_out is None else rows.has("junk") | left_out
    kept = np.flatnonzero(~out)
    query = rows.query[kept]
    position = (rows.rank - cumulative_within(rows.query, out))[kept]
    listed = position < k
    query, position = query[listed], position[listed]
    if np.any(place_within(query) != position):
        raise ArtifactError(
            f"the ranking holds each query's first {rows.top:,} images and those judged; a list of {k:,} without "
            "junk and other groups' positives needs more: raise search.top"
        )
    score = _falling(query, rows.score[kept][listed], position)
    return query, score, rows.has(*POSITIVES)[kept][listed]


def _falling(query: Ints, score: Floats, position: Ints) -> Floats:
    """The scores [n] where they fall within each query, else places in their stead: such a list has no ties."""
    if np.any((np.diff(score) > 0) & (np.diff(query) == 0)):
        return -position.astype(np.float64)
    return score
