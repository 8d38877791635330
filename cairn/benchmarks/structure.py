"""The structure every benchmark is brought into: its queries and what is relevant to each of them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cairn.errors import InputError

GRADES = ("easy", "hard", "junk")
"""Grades of the revisited-Oxford kind (Radenović et al., CVPR 2018, section 2): `easy` and `hard` images are
positives under one protocol or another, `junk` images are taken out of the ranking before it is scored."""
POSITIVE = "positive"
"""The grade of a relevant image in a benchmark with one grade of relevance."""
NEGATIVE = "negative"
"""The grade of an image that was judged and is not relevant: only for protocols that rank the judged images alone
(INQUIRE-Rerank); everywhere else an image without a grade is a negative too."""
ALL_GRADES = (POSITIVE, *GRADES, NEGATIVE)

QUERIES_FILE = "queries.parquet"
RELEVANCE_FILE = "relevance.parquet"
IMAGES_FILE = "images.parquet"

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Query:
    """One query: an image, a box in an image, a text, or an image with a text.

    `box` is x1, y1, x2, y2 in pixels of the image as stored (see `cairn.images.decode`), None for all of it.
    `split` is None where a benchmark has no splits.
    """

    query_id: str
    image_id: str | None = None
    box: Box | None = None
    text: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class GroundTruth:
    """Queries in their order, and per query the judged images with their grade.

    `relevance[query_id][image_id]` is one of ALL_GRADES; an image that is not named is a negative; a query
    without any is a distractor query. `attributes[query_id][name]` holds what slices are made of (a
    category, a landmark); it may be empty. `image_attributes[image_id][name]` holds what a protocol must know
    of gallery images (how large a positive is in its image). Every instance is valid: InputError is raised for
    a duplicate query, a query without image and text, a box without image, a box that is not x1 < x2, y1 < y2 and
    finite, an unknown grade, and relevance or attributes of an unknown query.
    """

    queries: tuple[Query, ...]
    relevance: Mapping[str, Mapping[str, str]]
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    image_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    def images(self, query_id: str, *grades: str) -> list[str]:
        """Ids of the images that have one of `grades` for this query (all judged ones if none is given)."""
        judged = self.relevance.get(query_id, {})
        return [image for image, grade in judged.items() if not grades or grade in grades]

    def is_distractor(self, query_id: str) -> bool:
        """Whether no image is judged for this query (as positive, junk or negative)."""
        return not self.relevance.get(query_id)

    def attribute_names(self) -> tuple[str, ...]:
        """Names of all attributes, sorted."""
        return tuple(sorted({name for values in self.attributes.values() for name in values}))


def without_boxes(truth: GroundTruth) -> GroundTruth:
    """The same queries as whole images: a control, since the protocols with boxes crop to them."""
    return replace(truth, queries=tuple(replace(query, box=None) for query in truth.queries))


def check_images(truth: GroundTruth, image_ids: Iterable[str], where: str = "ground truth") -> None:
    """Raise InputError unless every query image and every judged image is one of `image_ids`."""
    known = set(image_ids)
    for query in truth.queries:
        if query.image_id is not None and query.image_id not in known:
            raise InputError(
                f"{where}: query {query.query_id}: image {query.image_id} is not in the manifest"
            )
        for image in truth.relevance.get(query.query_id, {}):
            if image not in known:
                raise InputError(
                    f"{where}: query {query.query_id}: judged image {image} is not in the manifest"
                )


def write_ground_truth(path: Path, truth: GroundTruth) -> None:
    """Write the directory `path` with queries.parquet and relevance.parquet; equal truths give equal bytes.

    queries.parquet, one row per query in order: query_id, image_id, x1, y1, x2, y2, text, split, then one
    string column per attribute, sorted by name. relevance.parquet: query_id, image_id, grade, in the order
    of the queries, inside a query by image_id. images.parquet, only where images have attributes: image_id, then
    one string column per attribute, both sorted.
    """
    import pyarrow as pa

    from cairn.files import atomic_directory
    from cairn.store.tables import write_table

    queries = truth.queries
    boxes = [query.box or (None, None, None, None) for query in queries]
    names = truth.attribute_names()
    columns: list[list] = [
        [query.query_id for query in queries],
        [query.image_id for query in queries],
        *[[box[corner] for box in boxes] for corner in range(4)],
        [query.text for query in queries],
        [query.split for query in queries],
        *[[truth.attributes.get(query.query_id, {}).get(name) for query in queries] for name in names],
    ]
    schema = _queries_schema()
    for name in names:
        schema = schema.append(pa.field(name, pa.string()))
    rows = [
        (query.query_id, image, grade)
        for query in queries
        for image, grade in sorted(truth.relevance.get(query.query_id, {}).items())
    ]
    judged = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    with atomic_directory(Path(path)) as folder:
        write_table(
            pa.table(
                [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema
            ),
            folder / QUERIES_FILE,
        )
        write_table(
            pa.table([pa.array(column, pa.string()) for column in judged], _relevance_schema()),
            folder / RELEVANCE_FILE,
        )
        if truth.image_attributes:
            write_table(_images_table(truth.image_attributes), folder / IMAGES_FILE)


def read_ground_truth(path: Path) -> GroundTruth:
    """Read what `write_ground_truth` wrote. ArtifactError for damaged files, InputError for wrong content."""
    from cairn.store.tables import read_table

    path = Path(path)
    queries_path, relevance_path = path / QUERIES_FILE, path / RELEVANCE_FILE
    table = read_table(queries_path, _queries_schema(), extra_columns=True)
    rows = {name: table.column(name).to_pylist() for name in table.column_names}
    queries = []
    for row in range(table.num_rows):
        corners = [rows[name][row] for name in ("x1", "y1", "x2", "y2")]
        given = sum(corner is not None for corner in corners)
        if given not in (0, 4):
            raise InputError(f"{queries_path}: query {rows['query_id'][row]}: a box needs x1, y1, x2 and y2")
        queries.append(
            Query(
                query_id=rows["query_id"][row],
                image_id=rows["image_id"][row],
                box=tuple(corners) if given else None,  # type: ignore[arg-type]
                text=rows["text"][row],
                split=rows["split"][row],
            )
        )
    attributes: dict[str, dict[str, str]] = {}
    for name in table.column_names[len(_queries_schema()) :]:
        for query, value in zip(queries, rows[name], strict=True):
            if value is not None:
                attributes.setdefault(query.query_id, {})[name] = str(value)
    relevance: dict[str, dict[str, str]] = {}
    judged = read_table(relevance_path, _relevance_schema())
    for query_id, image, grade in zip(*(column.to_pylist() for column in judged.columns), strict=True):
        of_query = relevance.setdefault(query_id, {})
        if image in of_query:
            raise InputError(f"{relevance_path}: query {query_id}: image {image} is judged twice")
        of_query[image] = grade
    images: dict[str, dict[str, str]] = {}
    if (path / IMAGES_FILE).exists():
        listed = read_table(path / IMAGES_FILE, _images_schema(()), extra_columns=True)
        for row in listed.to_pylist():
            image = row.pop("image_id")
            if image in images:
                raise InputError(f"{path / IMAGES_FILE}: image {image} is listed twice")
            images[image] = {name: str(value) for name, value in row.items() if value is not None}
    try:
        return GroundTruth(tuple(queries), relevance, attributes, images)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _queries_schema():
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("image_id", pa.string()),
            *[pa.field(corner, pa.float64()) for corner in ("x1", "y1", "x2", "y2")],
            pa.field("text", pa.string()),
            pa.field("split", pa.string()),
        ]
    )


def _images_table(attributes: Mapping[str, Mapping[str, str]]):
    import pyarrow as pa

    names = sorted({name for values in attributes.values() for name in values})
    images = sorted(attributes)
    columns = [images, *([attributes[image].get(name) for image in images] for name in names)]
    return pa.table([pa.array(column, pa.string()) for column in columns], _images_schema(names))


def _images_schema(names: Iterable[str]):
    import pyarrow as pa

    return pa.schema(
        [pa.field("image_id", pa.string(), nullable=False), *(pa.field(name, pa.string()) for name in names)]
    )


def _relevance_schema():
    import pyarrow as pa

    return pa.schema(
        [pa.field(name, pa.string(), nullable=False) for name in ("query_id", "image_id", "grade")]
    )


def _check(truth: GroundTruth) -> None:
    counts = Counter(query.query_id for query in truth.queries)
    if repeated := [query_id for query_id, count in counts.items() if count > 1]:
        raise InputError(f"query {repeated[0]} occurs {counts[repeated[0]]} times; query ids must be unique")
    for query in truth.queries:
        if not query.query_id:
            raise InputError("a query has an empty id")
        if not query.image_id and not query.text:
            raise InputError(f"query {query.query_id} has neither an image nor a text")
        if query.box is not None:
            check_box(query.box, f"query {query.query_id}")
            if query.image_id is None:
                raise InputError(f"query {query.query_id} has a box but no image")
    for query_id, judged in truth.relevance.items():
        if query_id not in counts:
            raise InputError(f"relevance is given for query {query_id}, which is not among the queries")
        for image, grade in judged.items():
            if grade not in ALL_GRADES:
                allowed = ", ".join(ALL_GRADES)
                raise InputError(
                    f"query {query_id}: image {image} has the grade {grade!r}; allowed: {allowed}"
                )
    reserved = set(_RESERVED)
    for query_id, values in truth.attributes.items():
        if query_id not in counts:
            raise InputError(f"attributes are given for query {query_id}, which is not among the queries")
        if clash := reserved & set(values):
            raise InputError(f"query {query_id}: an attribute may not be called {sorted(clash)[0]}")
    for image, values in truth.image_attributes.items():
        if "image_id" in values:
            raise InputError(f"image {image}: an attribute may not be called image_id")


_RESERVED = ("query_id", "image_id", "x1", "y1", "x2", "y2", "text", "split")


def check_box(box: Box, where: str) -> None:
    """Raise InputError, starting with `where`, unless `box` is finite, with x1 < x2 and y1 < y2."""
    shown = ", ".join(f"{corner:g}" for corner in box)
    if len(box) != 4 or not all(math.isfinite(corner) for corner in box):
        raise InputError(f"{where}: box ({shown}) must be four finite numbers x1, y1, x2, y2")
    x1, y1, x2, y2 = box
    if not (x1 < x2 and y1 < y2):
        raise InputError(f"{where}: box ({shown}) must have x1 < x2 and y1 < y2")
