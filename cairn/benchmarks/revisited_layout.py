"""Ground truth in the revisited layout (`gnd_*.pkl`), brought into the common structure."""

from pathlib import Path
from typing import TYPE_CHECKING

from cairn.benchmarks.published import unique_ids
from cairn.benchmarks.structure import POSITIVE, Box, GroundTruth, Query
from cairn.errors import InputError

if TYPE_CHECKING:
    from cairn.scoring.revisitop import Gnd


def truth_of(gnd: "Gnd", boxes: str | None) -> GroundTruth:
    """Queries with their boxes and graded images. `ok` becomes positive; an image has one grade per query.

    `boxes`: `corners` (bbx is x1, y1, x2, y2), `size` (x, y, width, height), or None for whole query images.
    InputError where an image has two grades, or a box is empty when read that way.
    """
    ids = unique_ids(gnd.queries)
    queries, relevance = [], {}
    for number, (query_id, image) in enumerate(zip(ids, gnd.queries, strict=True)):
        where = f"{gnd.path}: query {image} (gnd[{number}])"
        queries.append(Query(query_id, image, _box(gnd.boxes[number], boxes, where)))
        judged: dict[str, str] = {}
        for grade, images in gnd.lists[number].items():
            grade = POSITIVE if grade == "ok" else grade
            for index in images.tolist():
                name = gnd.images[index]
                if judged.setdefault(name, grade) != grade:
                    raise InputError(f"{where}: image {name} is both {judged[name]} and {grade}")
        relevance[query_id] = judged
    return GroundTruth(tuple(queries), relevance)


def names_of(gnd: "Gnd") -> tuple[dict[str, str], dict[str, str], Path]:
    """imlist and qimlist as name → name, and the file they come from."""
    return {name: name for name in gnd.images}, {name: name for name in gnd.queries}, gnd.path


def _box(values: tuple[float, ...] | None, boxes: str | None, where: str) -> Box | None:
    if boxes is None or values is None:
        return None
    x, y, a, b = values
    if boxes == "size":
        a, b = x + a, y + b
    if not (x < a and y < b):
        other = "size" if boxes == "corners" else "corners"
        raise InputError(
            f"{where}: bbx {list(values)} is empty when read as {boxes} (see the key boxes: {other})"
        )
    return x, y, a, b
