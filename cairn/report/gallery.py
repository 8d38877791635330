"""The gallery picture of a run: a few queries with their first results, before and after re-ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.benchmarks.structure import GroundTruth, Query, read_ground_truth
from cairn.errors import ArtifactError
from cairn.files import atomic
from cairn.images.manifest import ImageSource, Manifest, read_manifest
from cairn.report.canvas import Canvas, Picture, fit, png_bytes, write_on
from cairn.results.names import FIRST_STAGE, is_first
from cairn.results.show import METRIC_TITLES, SLICE_ORDER, slice_key, stage_title
from cairn.results.table import ABOUT, read_json_object

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

TOP = 8

# Layout in pixels; colours are blue, green, red.
MARGIN, GAP = 28, 12
CELL = (156, 118)
QUERY_CELL = (220, 190)
CAPTION = 22
BORDER = 4
BLOCK_HEAD, STAGE_HEAD, FOOT = 34, 24, 10
TITLE = 84
GREEN, RED, GREY = (78, 150, 32), (48, 48, 205), (150, 150, 150)
INK, PALE, RULE, BOX = (40, 36, 32), (120, 114, 108), (226, 222, 218), (0, 190, 255)

# The metrics whose values per query say how good a ranking is, in order of preference.
QUERY_METRICS = ("map", "map-trapezoid")


@dataclass(frozen=True)
class Hit:
    """One result: its rank from 0, its image's row in the manifest, its score and its grade (None: negative)."""

    rank: int
    image_row: int
    score: float
    grade: str | None


@dataclass(frozen=True)
class Strip:
    """The first results of one query at one stage; `value` is the query's metric there, None if it has none."""

    stage: str
    value: float | None
    hits: tuple[Hit, ...]


@dataclass(frozen=True)
class Block:
    """One query of the picture: why it was picked, and a strip per stage."""

    reason: str
    query: Query
    strips: tuple[Strip, ...]


def write_gallery(
    ranking: Path,
    reranking: Path,
    ground_truth: Path,
    manifest: Path,
    per_query: Path,
    root: Path,
    output: Path,
    top: int = TOP,
) -> None:
    """Write the gallery of a run to `output` (PNG); the same artifacts give the same bytes.

    `ranking`, `reranking`, `ground_truth`, `manifest` are the run's artifacts (folders), `per_query` its table
    of values per query, `root` what the manifest's archives are relative to. Shown are the best, the median
    and the worst query at the last stage, and the one that re-ranking helps most. Raises ArtifactError where
    the files do not fit one another, ImageError where an image is not the one the manifest recorded.
    """
    images = read_manifest(manifest / "manifest.parquet")
    truth = read_ground_truth(ground_truth)
    facts = read_json_object(ground_truth / ABOUT) or {}
    name = str(facts.get("name") or ranking.parent.parent.name)
    title = f"{name}{' (synthetic)' if facts.get('synthetic') is True else ''} · {ranking.parent.name}"
    tables = _stages(ranking, reranking)
    values, label = _values(per_query, list(tables))
    picked = pick_queries(values, list(tables), [query.query_id for query in truth.queries])
    blocks = _blocks(picked, tables, values, truth, images, top)
    data = draw_gallery(title, label, blocks, ImageSource(images, root))
    with atomic(output) as temporary:
        temporary.write_bytes(data)


def pick_queries(
    values: Mapping[str, Mapping[str, float]], stages: Sequence[str], queries: Sequence[str]
) -> list[tuple[str, str]]:
    """(reason, query id) of the queries worth a look, each query once.

    `values[stage][query]` is the metric; queries without a value at the last stage are left out. Where none
    has one, the first three of `queries` are taken.
    """
    last = values.get(stages[-1], {})
    # Ties go by the query's place in the benchmark, so that the choice never depends on a sort's whims.
    order = sorted((query for query in queries if query in last), key=lambda query: -last[query])
    if not order:
        return [("query", query) for query in queries[:3]]
    chosen = [("best", order[0]), ("median", order[len(order) // 2]), ("worst", order[-1])]
    first = values.get(stages[0], {})
    gains = {query: last[query] - first[query] for query in order if query in first}
    if len(stages) > 1 and gains:
        most = max(gains, key=lambda query: gains[query])
        if gains[most] > 0:
            chosen.append((f"gains most from {stage_title(stages[-1])}", most))
    reasons: dict[str, list[str]] = {}
    for reason, query in chosen:
        reasons.setdefault(query, []).append(reason)
    return [(", ".join(words), query) for query, words in reasons.items()]


def draw_gallery(title: str, label: str, blocks: Sequence[Block], images: ImageSource) -> bytes:
    """The picture as PNG bytes. `label` names the value shown, e.g. `AP medium`."""
    columns = max((len(strip.hits) for block in blocks for strip in block.strips), default=1)
    strip_height = STAGE_HEAD + CELL[1] + CAPTION + FOOT
    heights = [BLOCK_HEAD + max(len(block.strips) * strip_height, QUERY_CELL[1] + GAP) for block in blocks]
    width = max(2 * MARGIN + QUERY_CELL[0] + columns * (CELL[0] + GAP) + GAP, 900)
    canvas = Canvas(width, TITLE + sum(heights) + MARGIN)
    _draw_title(canvas, title)
    top = TITLE
    for block, height in zip(blocks, heights, strict=True):
        _draw_block(canvas, top, block, label, strip_height, images)
        top += height
    return png_bytes(canvas.pixels)


def _draw_title(canvas: Canvas, title: str) -> None:
    canvas.text(title, MARGIN, 38, INK, 24, 600)
    x = canvas.text("query box", MARGIN + _swatch(canvas, MARGIN, BOX), 64, PALE, 15)
    for color, word in ((GREEN, "positive"), (RED, "negative"), (GREY, "junk (not counted)")):
        x = canvas.text(word, x + 18 + _swatch(canvas, x + 18, color), 64, PALE, 15)


def _swatch(canvas: Canvas, x: int, color: tuple[int, int, int]) -> int:
    canvas.frame(x, 52, 14, 12, color, 3)
    return 22


def _draw_block(
    canvas: Canvas, top: int, block: Block, label: str, strip_height: int, images: ImageSource
) -> None:
    canvas.rule(top, MARGIN, RULE)
    canvas.text(f"{block.reason}: query {block.query.query_id}", MARGIN, top + 24, INK, 17, 600)
    _draw_query(canvas, top + BLOCK_HEAD, block.query, images)
    left = MARGIN + QUERY_CELL[0] + 2 * GAP
    for number, strip in enumerate(block.strips):
        y = top + BLOCK_HEAD + number * strip_height
        value = "" if strip.value is None else f"   {label} {100 * strip.value:.1f}"
        name = "first ranking" if is_first(strip.stage) else f"after {stage_title(strip.stage)}"
        canvas.text(f"{name}{value}", left, y + 15, INK, 15, 500)
        for place, hit in enumerate(strip.hits):
            x = left + place * (CELL[0] + GAP)
            picture = fit(_decoded(images, hit.image_row), *_inner(CELL))
            _draw_framed(canvas, x, y + STAGE_HEAD, picture, grade_color(hit.grade))
            canvas.text(_caption(hit), x + 2, y + STAGE_HEAD + CELL[1] + 17, PALE, 14)


def grade_color(grade: str | None) -> tuple[int, int, int]:
    """Blue, green, red of the border: green for a positive (also easy or hard), grey for junk, else red."""
    if grade in (None, "negative"):
        return RED
    return GREY if grade == "junk" else GREEN


def _caption(hit: Hit) -> str:
    grade = f"  {hit.grade}" if hit.grade in ("easy", "hard", "junk") else ""
    return f"{hit.rank + 1}  ·  {hit.score:.3f}{grade}"


def _draw_query(canvas: Canvas, top: int, query: Query, images: ImageSource) -> None:
    if query.image_id is None:
        write_on(canvas, query.text or "", MARGIN, top + 20, QUERY_CELL[0], INK, 16)
        return
    row = images.manifest.row_of.get(query.image_id)
    if row is None:
        raise ArtifactError(f"query {query.query_id}: image {query.image_id} is not in the manifest")
    picture = fit(_decoded(images, row), *QUERY_CELL)
    canvas.paste(picture, MARGIN, top)
    if query.box is not None:
        x1, y1, x2, y2 = (round(corner * picture.scale) for corner in query.box)
        # White around the line keeps the box visible on any picture.
        canvas.frame(MARGIN + x1 - 1, top + y1 - 1, x2 - x1 + 2, y2 - y1 + 2, (255, 255, 255), 4)
        canvas.frame(MARGIN + x1, top + y1, x2 - x1, y2 - y1, BOX, 2)
    if query.text:
        write_on(canvas, query.text, MARGIN, top + QUERY_CELL[1] + 16, QUERY_CELL[0], PALE, 14)


def _inner(cell: tuple[int, int]) -> tuple[int, int]:
    return cell[0] - 2 * BORDER, cell[1] - 2 * BORDER


def _draw_framed(canvas: Canvas, x: int, y: int, picture: Picture, color: tuple[int, int, int]) -> None:
    """The picture in its frame: at the left of its cell, above its caption, in the middle between."""
    height, width = (size + 2 * BORDER for size in picture.pixels.shape[:2])
    top = y + (CELL[1] - height) // 2
    canvas.paste(picture, x + BORDER, top + BORDER)
    canvas.frame(x, top, width, height, color, BORDER)


def _decoded(images: ImageSource, row: int) -> "np.ndarray":
    from cairn.images.decode import decode_bgr

    return decode_bgr(images.read(row), images.manifest.image_id[row])


def _stages(ranking: Path, reranking: Path) -> dict[str, "pa.Table"]:
    """Stage slug → ranking table, the first stage first."""
    first = (read_json_object(ranking / "ranking.json") or {}).get("stage") or FIRST_STAGE
    found = {str(first): _ranking_table(ranking / "ranking.parquet")}
    facts = read_json_object(reranking / "reranking.json") or {}
    if facts.get("stage"):
        found[str(facts["stage"])] = _ranking_table(reranking / "reranked.parquet")
    return found


def _ranking_table(path: Path) -> "pa.Table":
    import pyarrow as pa

    from cairn.store.tables import read_table

    columns = {
        "query_id": pa.string(),
        "rank": pa.int32(),
        "image_row": pa.int32(),
        "image_id": pa.string(),
        "score": pa.float32(),
    }
    return read_table(path, pa.schema([pa.field(name, kind) for name, kind in columns.items()]))


def _values(per_query: Path, stages: Sequence[str]) -> tuple[dict[str, dict[str, float]], str]:
    """`values[stage][query]` of the metric and slice that tell most, and what they are called."""
    import pyarrow as pa

    from cairn.store.tables import read_table

    texts = [pa.field(name, pa.string()) for name in ("stage", "slice", "metric", "query_id")]
    rows = read_table(per_query, pa.schema([*texts, pa.field("value", pa.float64())])).to_pylist()
    metrics = {row["metric"] for row in rows}
    metric = next((name for name in QUERY_METRICS if name in metrics), min(metrics, default=""))
    slices = {row["slice"] for row in rows if row["metric"] == metric}
    middle = "medium" if "medium" in slices else min(slices, key=slice_key, default="")
    values: dict[str, dict[str, float]] = {stage: {} for stage in stages}
    for row in rows:
        wanted = row["metric"] == metric and row["slice"] == middle and row["stage"] in values
        if wanted and row["value"] is not None:
            values[row["stage"]][row["query_id"]] = row["value"]
    name = "AP" if metric in QUERY_METRICS else METRIC_TITLES.get(metric, metric)
    return values, f"{name} {middle}" if middle in SLICE_ORDER[:3] else name


def _blocks(
    picked: Sequence[tuple[str, str]],
    tables: Mapping[str, "pa.Table"],
    values: Mapping[str, Mapping[str, float]],
    truth: GroundTruth,
    images: Manifest,
    top: int,
) -> list[Block]:
    queries = {query.query_id: query for query in truth.queries}
    blocks = []
    for reason, query_id in picked:
        relevance = truth.relevance.get(query_id, {})
        strips = tuple(
            Strip(stage, values[stage].get(query_id), _hits(table, query_id, relevance, images, top))
            for stage, table in tables.items()
        )
        blocks.append(Block(reason, queries[query_id], strips))
    return blocks


def _hits(
    table: "pa.Table", query_id: str, relevance: Mapping[str, str], images: Manifest, top: int
) -> tuple[Hit, ...]:
    import pyarrow.compute as pc

    chosen = table.filter((pc.field("query_id") == query_id) & (pc.field("rank") < top)).sort_by("rank")
    hits = []
    for row in chosen.to_pylist():
        number, image = row["image_row"], row["image_id"]
        if not 0 <= number < len(images) or images.image_id[number] != image:
            raise ArtifactError(
                f"query {query_id}: the ranking has image {image} in row {number}, the manifest has not"
            )
        hits.append(Hit(row["rank"], number, row["score"], relevance.get(image)))
    return tuple(hits)
