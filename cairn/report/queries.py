"""Queries worth a look, with their results as small pictures: failures, gains and losses of re-ranking."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cairn.benchmarks.structure import GroundTruth, Query, read_ground_truth
from cairn.errors import CairnError, ImageError
from cairn.images.manifest import ImageSource, Manifest, read_manifest
from cairn.metrics.revisitop import SETUPS
from cairn.report.plots import query_values
from cairn.report.words import metric_title, stage_words
from cairn.results.scoring import stages
from cairn.results.table import SCORES_PATH

TOP = 6
SIDE = 132
QUALITY = 68
POSITIVES = ("positive", "easy", "hard")


@dataclass(frozen=True)
class Hit:
    """One result. `grade` as in the ground truth, None for an unjudged image; `picture` is a key.

    `word`: `positive`, `negative`, or `junk` for what the shown slice leaves out (easy images in the Hard setup).
    """

    rank: int
    image: str
    score: float
    grade: str | None
    word: str
    picture: str


@dataclass(frozen=True)
class Strip:
    """The first results at one stage.

    `value`: the query's own value there, as text; `first`: rank (from 1) of the first image that counts as a
    positive in the shown slice, None where there is none.
    """

    stage: str
    value: str
    first: int | None
    hits: tuple[Hit, ...]


@dataclass(frozen=True)
class Shown:
    """One query: why it is shown, and a strip per stage. `picture` is None for a query in words."""

    reason: str
    query_id: str
    text: str
    picture: str | None
    positives: int
    strips: tuple[Strip, ...]


@dataclass
class Pictures:
    """Thumbnails by key, as data addresses; `left` is how many more bytes may be taken."""

    left: int
    found: dict[str, str] = field(default_factory=dict)

    def add(self, new: Mapping[str, str]) -> bool:
        """Take all of `new`, or none where they do not fit."""
        fresh = {key: data for key, data in new.items() if key not in self.found}
        cost = sum(len(data) for data in fresh.values())
        if cost > self.left:
            return False
        self.left -= cost
        self.found |= fresh
        return True


def query_galleries(
    root: Path, runs: Sequence[tuple[str, str]], budget: int
) -> tuple[dict[tuple[str, str], list[Shown]], dict[str, str], list[str]]:
    """(Run → its queries, picture key → data address, notes) with pictures of at most `budget` bytes in all.

    Runs take turns, the most telling query of each first. A run whose ranking or whose images are not here (a
    folder that lies outside the project) has a note instead.
    """
    pictures = Pictures(budget)
    waiting: dict[tuple[str, str], Iterator[tuple[Shown, dict[str, str]]]] = {}
    made: dict[tuple[str, str], list[Shown]] = {}
    notes: list[str] = []
    for run in runs:
        if (root / "artifacts" / run[0] / run[1] / "ranking" / "ranking.parquet").is_file():
            waiting[run] = _Run(root, *run).shown()
        elif (root / SCORES_PATH / run[0] / run[1] / "per_query.parquet").is_file():
            notes.append(f"{'/'.join(run)}: no queries, since its ranking is not here (`dvc pull`)")
    while waiting:
        for run in list(waiting):
            try:
                following = next(waiting[run], None)
            except ImageError as error:
                notes.append(f"{'/'.join(run)}: no pictures, since {_short(root, error)}")
                following = None
            if following is None or not pictures.add(following[1]):
                del waiting[run]
                continue
            made.setdefault(run, []).append(following[0])
    return made, pictures.found, notes


def _short(root: Path, error: CairnError) -> str:
    # No path of one machine: the page is the same wherever it is made.
    return str(error).replace(f"{root.resolve()}/", "").replace(f"{root}/", "")


def choose_queries(
    values: Mapping[str, Mapping[str, float]], queries: Sequence[str]
) -> list[tuple[str, str]]:
    """(reason, query id), the most telling first, each query once: failures, losses and gains in turns, the best.

    `values[stage][query]` as in `cairn.report.plots.query_values`, stages in order.
    """
    stages = list(values)
    if not stages:
        return []
    last, first = values[stages[-1]], values[stages[0]]
    order = [query for query in queries if query in last]
    worst = sorted(order, key=lambda query: last[query])
    gains = {query: last[query] - first[query] for query in order if query in first and len(stages) > 1}
    losing = sorted((q for q in gains if gains[q] < 0), key=lambda q: gains[q])
    gaining = sorted((q for q in gains if gains[q] > 0), key=lambda q: -gains[q])
    words = stage_words(stages[-1])
    asked: list[tuple[str, str]] = []
    for place in range(3):
        for reason, found in (
            ("worst failure", worst),
            (f"gains most from {words}", gaining),
            (f"loses most from {words}", losing),
        ):
            if place < len(found) and place < (3 if found is worst else 2):
                asked.append((reason if not place else _again(reason, place), found[place]))
    asked.append(("best", worst[-1]) if worst else ("", ""))
    reasons: dict[str, list[str]] = {}
    for reason, query in asked:
        if query:
            reasons.setdefault(query, []).append(reason)
    return [(", ".join(words), query) for query, words in reasons.items()]


def _again(reason: str, place: int) -> str:
    return f"{('second', 'third')[place - 1]} {reason}" if reason.startswith("worst") else f"{reason}, second"


class _Run:
    """The files of one run, opened as they are needed."""

    def __init__(self, root: Path, benchmark: str, system: str) -> None:
        base = root / "artifacts" / benchmark
        self.truth: GroundTruth = read_ground_truth(base / "ground_truth")
        self.images: Manifest = read_manifest(base / "manifest" / "manifest.parquet")
        self.source = ImageSource(self.images, root)
        self.benchmark = benchmark
        scores = root / SCORES_PATH / benchmark / system
        self.paths = dict(stages(base / system / "ranking", base / system / "reranking", scores))
        found, metric, piece = query_values(scores / "per_query.parquet")
        self.values = {stage: found[stage] for stage in self.paths if stage in found}
        self.positives = SETUPS.get(piece, (POSITIVES, ()))[0]
        metric = metric_title(metric).replace("mAP", "AP")
        self.label = f"{metric} {piece}" if piece not in ("all", "overall", "") else metric

    def shown(self) -> Iterator[tuple[Shown, dict[str, str]]]:
        """Each chosen query with the pictures it needs."""
        tables = {stage: _Ranking(path) for stage, path in self.paths.items()}
        queries = {query.query_id: query for query in self.truth.queries}
        chosen = choose_queries(self.values, list(queries)) or self._by_score(next(iter(tables.values())))
        for reason, query_id in chosen:
            pictures: dict[str, str] = {}
            strips = tuple(self._strip(stage, table, query_id, pictures) for stage, table in tables.items())
            query = queries[query_id]
            picture = self._query_picture(query, pictures) if query.image_id is not None else None
            positives = len(self.truth.images(query_id, *self.positives))
            yield Shown(reason, query_id, query.text or "", picture, positives, strips), pictures

    def _by_score(self, table: "_Ranking") -> list[tuple[str, str]]:
        """Where a metric has no value per query: false matches that score best, then positives found last."""
        false, missed = [], []
        for query in self.truth.queries:
            rows = table.rows(query.query_id)
            judged = self.truth.relevance.get(query.query_id, {})
            wrong = next((score for _, _, image, score in rows if judged.get(image) is None), None)
            if wrong is not None:
                false.append((-wrong, query.query_id))
            ranks = [rank for rank, _, image, _ in rows if judged.get(image) in POSITIVES]
            if ranks and min(ranks) > 0:
                missed.append((-min(ranks), query.query_id))
        asked = [("false match that scores highest", name) for _, name in sorted(false)[:4]]
        asked += [("positive found last", name) for _, name in sorted(missed)[:4]]
        seen: dict[str, str] = {}
        for reason, name in asked:
            seen.setdefault(name, reason)
        return [(reason, name) for name, reason in seen.items()]

    def _strip(self, stage: str, table: "_Ranking", query_id: str, pictures: dict[str, str]) -> Strip:
        judged = self.truth.relevance.get(query_id, {})
        rows = table.rows(query_id)
        hits = []
        for rank, row, image, score in rows:
            if rank >= TOP:
                break
            key = self._picture(row, None, pictures)
            grade = judged.get(image)
            word = "positive" if grade in self.positives else "negative" if grade is None else "junk"
            hits.append(Hit(rank + 1, image, score, grade, word, key))
        value = self.values.get(stage, {}).get(query_id)
        found = [rank for rank, _, image, _ in rows if judged.get(image) in self.positives]
        shown = "" if value is None else f"{self.label} {100 * value:.1f}"
        return Strip(stage_words(stage), shown, min(found) + 1 if found else None, tuple(hits))

    def _query_picture(self, query: Query, pictures: dict[str, str]) -> str | None:
        row = self.images.row_of.get(query.image_id or "")
        return None if row is None else self._picture(row, query.box, pictures)

    def _picture(self, row: int, box: Any, pictures: dict[str, str]) -> str:
        name = f"{self.images.sha256[row]}{box}"
        key = hashlib.sha256(name.encode()).hexdigest()[:12]
        if key not in pictures:
            pictures[key] = thumbnail(self.source.read(row), self.images.image_id[row], box)
        return key


class _Ranking:
    """A ranking by query, ranks ascending."""

    def __init__(self, path: Path) -> None:
        import numpy as np
        import pyarrow as pa

        from cairn.store.tables import read_table

        kinds = {
            "query_id": pa.string(),
            "rank": pa.int32(),
            "image_row": pa.int32(),
            "image_id": pa.string(),
            "score": pa.float32(),
        }
        table = read_table(path, pa.schema([pa.field(name, kind) for name, kind in kinds.items()]))
        table = table.sort_by([("query_id", "ascending"), ("rank", "ascending")])
        self._table = table
        names = np.array(table.column("query_id").to_pylist(), dtype=object)
        starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist()] if len(names) else []
        ends = [*starts[1:], len(names)]
        self._span = {names[start]: (start, end) for start, end in zip(starts, ends, strict=True)}

    def rows(self, query_id: str) -> list[tuple[int, int, str, float]]:
        """Rank from 0, manifest row, image id and score of every ranked image of the query."""
        start, end = self._span.get(query_id, (0, 0))
        part = self._table.slice(start, end - start).to_pydict()
        return list(zip(part["rank"], part["image_row"], part["image_id"], part["score"], strict=True))


def thumbnail(data: bytes, name: str, box: Any = None) -> str:
    """A JPEG of at most SIDE × SIDE pixels as a data address; `box` (x1, y1, x2, y2) is drawn where there is one."""
    import cv2

    from cairn.images.decode import decode_bgr
    from cairn.report.canvas import Canvas, fit

    picture = fit(decode_bgr(data, name), SIDE, SIDE)
    pixels = picture.pixels
    if box is not None:
        canvas = Canvas(pixels.shape[1], pixels.shape[0])
        canvas.paste(picture, 0, 0)
        x1, y1, x2, y2 = (round(corner * picture.scale) for corner in box)
        canvas.frame(x1 - 1, y1 - 1, x2 - x1 + 2, y2 - y1 + 2, (255, 255, 255), 3)
        canvas.frame(x1, y1, x2 - x1, y2 - y1, (0, 150, 240), 2)
        pixels = canvas.pixels
    options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
    encoded = cv2.imencode(".jpg", pixels, options)[1].tobytes()
    return f"data:image/jpeg;base64,{base64.b64encode(encoded).decode()}"
