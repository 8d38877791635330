"""From a ranking and the ground truth to arrays: the judged images of every query with their exact ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cairn.benchmarks.structure import ALL_GRADES, GroundTruth
from cairn.errors import ArtifactError, InputError
from cairn.metrics.ragged import Bools, Floats, Ints, count_per_query, place_within
from cairn.store.missing import read_absence

UNJUDGED = -1


@dataclass(frozen=True)
class RankedRows:
    """All rows of a ranking, sorted by query (in the ground truth's order), then rank."""

    query_ids: tuple[str, ...]
    query: Ints  # [rows] index into query_ids
    rank: Ints  # [rows] from 0
    score: Floats  # [rows]
    grade: NDArray[np.int8]  # [rows] index into ALL_GRADES, UNJUDGED for an image without a grade
    grade_counts: Ints  # [queries, grades] judged images of the ground truth, ranked or not
    top: int  # every query's rows with rank < top are present
    gallery_size: int
    annotated: (
        Ints  # [rows] index into the ground truth's image_attributes, UNJUDGED for an image without any
    )
    reranked: bool  # whether the ranking has scores of an earlier stage beside its own
    absent: (
        Bools  # [rows] whether the image or the query has no descriptor: no score says anything of the two
    )
    outside: Floats | None = (
        None  # [queries] best score in the out-of-distribution gallery, where that is given
    )

    def has(self, *grades: str) -> Bools:
        """[rows] whether the row's image has one of `grades`."""
        return np.isin(self.grade, [ALL_GRADES.index(grade) for grade in grades])

    def n_with(self, *grades: str) -> Ints:
        """[queries] how many images of the ground truth have one of `grades`."""
        return self.grade_counts[:, [ALL_GRADES.index(grade) for grade in grades]].sum(axis=1)


def ranked_rows(
    ranking: Any, truth: GroundTruth, gallery_size: int, top: int | None = None, where: str = "ranking"
) -> RankedRows:
    """Join a ranking (query_id, rank, image_id, score; a pyarrow table or a mapping) with the grades.

    Which images and queries have no descriptor says the table's metadata (`cairn.store.missing.absence`) or, where
    ranks do not tell, a column `absent`. Raises ArtifactError where a query or a positive is missing, a rank or an
    image occurs twice in a query, a rank is outside the gallery, a score is not finite, or a query is unknown. A junk
    image that is not ranked (since it is not in the gallery) takes nothing away.
    """
    columns = _columns(ranking, where)
    query_ids = tuple(query.query_id for query in truth.queries)
    query = _index_in(columns["query_id"], query_ids)
    if (unknown := np.flatnonzero(query < 0)).size:
        name = columns["query_id"][int(unknown[0])]
        raise ArtifactError(f"{where}: query {name} is not in the ground truth")
    rank = _numbers(columns["rank"], np.int64)
    score = _numbers(columns["score"], np.float64)
    order = np.lexsort((rank, query))
    query, rank, score = query[order], rank[order], score[order]

    def name_of(row: int) -> str:
        return f"query {query_ids[query[row]]}: image {columns['image_id'][int(order[row])]}"

    if (bad := np.flatnonzero(~np.isfinite(score))).size:
        raise ArtifactError(f"{where}: {name_of(bad[0])} has the score {score[bad[0]]}; it must be finite")
    if (bad := np.flatnonzero((rank < 0) | (rank >= gallery_size))).size:
        raise ArtifactError(
            f"{where}: {name_of(bad[0])} has rank {rank[bad[0]]}; "
            f"a gallery of {gallery_size:,} has ranks 0 to {gallery_size - 1:,}"
        )
    if (bad := np.flatnonzero((np.diff(query) == 0) & (np.diff(rank) == 0))).size:
        raise ArtifactError(
            f"{where}: {name_of(bad[0] + 1)} has rank {rank[bad[0]]}, which another image has"
        )
    rows_of = count_per_query(query, len(query_ids))
    if (empty := np.flatnonzero(rows_of == 0)).size:
        raise ArtifactError(f"{where}: query {query_ids[empty[0]]} has no rows")
    grade, counts = _grades(columns["image_id"], order, query, truth, name_of, where)
    if top is None:
        # Where the cut is not given: the rows present for every query without a gap.
        whole = count_per_query(query[place_within(query) == rank], len(query_ids))
        top = int(whole.min(initial=gallery_size))
    annotated = np.full(len(query), UNJUDGED, np.int64)
    if truth.image_attributes:
        annotated = _index_in(columns["image_id"], tuple(truth.image_attributes))[order]
    reranked = "global_score" in _names(ranking)
    absent = _absent(ranking, order, query, rank, query_ids, gallery_size)
    return RankedRows(
        query_ids, query, rank, score, grade, counts, top, gallery_size, annotated, reranked, absent
    )


def _absent(
    ranking: Any, order: Ints, query: Ints, rank: Ints, query_ids: Sequence[str], gallery_size: int
) -> Bools:
    """[rows] whether a row has no score that says anything, the rows in `order`."""
    if "absent" in _names(ranking):
        return np.asarray(ranking["absent"], bool)[order]
    schema = getattr(ranking, "schema", None)
    images, unseen = read_absence(None if schema is None else schema.metadata)
    return (rank >= gallery_size - images) | np.array([name in unseen for name in query_ids], bool)[query]


def _grades(images, order, query, truth: GroundTruth, name_of, where: str):
    """Grade of every row, and how many images of each grade every query has."""
    import pyarrow as pa

    pairs = [
        (number, image, ALL_GRADES.index(grade))
        for number, each in enumerate(truth.queries)
        for image, grade in truth.relevance.get(each.query_id, {}).items()
    ]
    n_queries = len(truth.queries)
    counts = np.zeros((n_queries, len(ALL_GRADES)), np.int64)
    judged_query = np.array([pair[0] for pair in pairs], np.int64)
    judged_grade = np.array([pair[2] for pair in pairs], np.int8)
    np.add.at(counts, (judged_query, judged_grade), 1)
    encoded = pa.array(images).dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    code = np.asarray(encoded.indices)[order].astype(np.int64)
    n_images = len(encoded.dictionary)
    row_key = query * n_images + code
    if (by_key := np.argsort(row_key, kind="stable")).size:
        repeated = np.flatnonzero(np.diff(row_key[by_key]) == 0)
        if repeated.size:
            raise ArtifactError(f"{where}: {name_of(by_key[repeated[0] + 1])} occurs twice")
    judged_code = _index_in(pa.array([pair[1] for pair in pairs], pa.string()), encoded.dictionary)
    judged_key = np.where(judged_code >= 0, judged_query * n_images + judged_code, -1)
    sorted_keys = row_key[by_key]
    at = np.minimum(np.searchsorted(sorted_keys, judged_key), max(len(sorted_keys) - 1, 0))
    ranked = (sorted_keys[at] == judged_key) if len(sorted_keys) else np.zeros(len(pairs), bool)
    junk = ALL_GRADES.index("junk")
    if (missing := np.flatnonzero(~ranked & (judged_grade != junk))).size:
        number, image, grade_index = pairs[missing[0]]
        raise ArtifactError(
            f"{where}: query {truth.queries[number].query_id}: the {ALL_GRADES[grade_index]} image {image} "
            "is not ranked; every positive must be, whatever the cut"
        )
    grade = np.full(len(query), UNJUDGED, np.int8)
    grade[by_key[at[ranked]]] = judged_grade[ranked]
    return grade, counts


def _columns(ranking: Any, where: str) -> dict[str, Any]:
    import pyarrow as pa

    names = ("query_id", "rank", "image_id", "score")
    present = _names(ranking)
    if absent := [name for name in names if name not in present]:
        raise ArtifactError(f"{where}: column {absent[0]} is missing; needed: {', '.join(names)}")
    if isinstance(ranking, pa.Table):
        columns = {name: ranking.column(name).combine_chunks() for name in names}
    else:
        columns = {name: pa.array(np.asarray(ranking[name])) for name in names}
    if len({len(column) for column in columns.values()}) != 1:
        raise ArtifactError(f"{where}: the columns {', '.join(names)} differ in length")
    if nulls := [name for name in names if columns[name].null_count]:
        raise ArtifactError(f"{where}: column {nulls[0]} has empty cells")
    return columns


def _names(ranking: Any) -> list[str]:
    import pyarrow as pa

    return ranking.column_names if isinstance(ranking, pa.Table) else list(ranking)


def _numbers(column: Any, kind: type) -> NDArray:
    try:
        return column.to_numpy(zero_copy_only=False).astype(kind)
    except (TypeError, ValueError):
        raise InputError(f"ranking: a column of numbers holds {column.type}") from None


def _index_in(values: Any, known: Any) -> Ints:
    """Index of every value in `known`, -1 where it is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = known if isinstance(known, pa.Array) else pa.array(known, pa.string())
    if values.type != known.type:
        values = values.cast(known.type)
    found = pc.index_in(values, value_set=known)  # type: ignore[attr-defined]
    return np.asarray(pc.fill_null(found, -1)).astype(np.int64)
