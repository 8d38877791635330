"""A user's own benchmark: a folder of images and one CSV file that says what should find what.

Columns `query,image,relevance`, and optionally `x1,y1,x2,y2`, `split`, `text`; one line per judged pair.

- `query` and `image` are paths inside the folder (`query/red door.jpg`). With a `text`, the query is that
  text and `query` is any id.
- `relevance` is `positive` (one grade), `easy` or `hard` (two grades), or `junk`: neither right nor wrong.
- A line with an empty `image` and `relevance` makes a query that has no match (a distractor query).
- `x1,y1,x2,y2` is a box in the query image, in pixels as stored. An image asked with several boxes is several
  queries, named `image#x1,y1,x2,y2`. Box, split and text may stand on all lines of a query or on one.
- **The gallery is every image that is not a query, and every image that stands in the column `image`.** So
  pictures that no line mentions are distractors; a folder of queries is not searched; and where every image
  is query and target in turn, lines `a,a,junk` keep an image from finding itself.
"""

import csv
import difflib
import io
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.benchmarks.structure import ALL_GRADES, NEGATIVE, POSITIVE, Box, GroundTruth, Query, check_box
from cairn.errors import CairnError, InputError
from cairn.images.archives import SUFFIXES, ArchiveReader
from cairn.images.manifest import Entry, list_entries
from cairn.images.names import one_line, shown

REQUIRED = ("query", "image", "relevance")
CORNERS = ("x1", "y1", "x2", "y2")
OPTIONAL = (*CORNERS, "split", "text")


def read_folder_benchmark(images: Path, truth: Path, root: Path = Path()) -> tuple[list[Entry], GroundTruth]:
    """Read a folder (or a tar or zip file) of images and its CSV file, both relative to `root`.

    Returns the manifest's entries, whose archive is `images` as given, and the ground truth, its queries in
    the order of the file. InputError, as `file:line: …`, for a missing or unknown column, a line of another
    length, an unknown image (with the nearest name), an unknown relevance, a box that is incomplete, empty or
    outside its image, a pair that is judged twice, contradictory boxes, splits or texts, a file that is not
    UTF-8 CSV (a byte-order mark and CRLF are fine), a control character, no query, and no image. InputError or
    SourceError where the folder or archive is refused (`archives.list_members`).
    """
    try:
        return _read(images, Path(root) / truth, Path(root))
    except CairnError as error:
        raise type(error)(one_line(error)) from None


def folder_notes(entries: Sequence[Entry], truth: GroundTruth) -> list[str]:
    """What someone who made the CSV file should know about it, one line each; often there is nothing."""
    gallery = {entry.image_id for entry in entries if entry.gallery}
    notes = []
    finds_itself = sum(
        query.image_id in gallery and query.image_id not in truth.relevance.get(query.query_id, {})
        for query in truth.queries
    )
    if finds_itself:
        notes.append(
            f"{finds_itself} of {len(truth.queries)} queries are in the gallery and not judged for "
            "themselves: each will find itself and count it as wrong; a line `query,query,junk` takes it out"
        )
    only_junk = sum(
        "junk" in judged.values() and set(judged.values()) <= {"junk", NEGATIVE}
        for judged in (truth.relevance.get(query.query_id, {}) for query in truth.queries)
    )
    texts = sum(query.text is not None for query in truth.queries)
    if texts:
        notes.append(
            f"{texts} of {len(truth.queries)} queries are texts: they need a system whose encoder has a text tower"
        )
    graded = {grade for judged in truth.relevance.values() for grade in judged.values()}
    if graded <= {"junk", NEGATIVE}:
        notes.append("every query is one without match: there is nothing to score")
    elif only_junk:
        notes.append(f"{only_junk} queries have junk only and nothing to find")
    if POSITIVE in graded and graded & {"easy", "hard"}:
        notes.append("relevance mixes positive with easy and hard")
    return notes


def _read(images: Path, truth: Path, root: Path) -> tuple[list[Entry], GroundTruth]:
    entries = list_entries(str(images), root)
    if not entries:
        raise InputError(f"{images}: no images; files with the endings {', '.join(SUFFIXES)} are read")
    known = {entry.image_id: entry for entry in entries}
    rows = list(_rows(truth, _Names(list(known))))
    if not rows:
        raise InputError(f"{truth}: no query; at least one line below the header is needed")
    queries = _queries(rows, truth)
    relevance = _relevance(rows, truth)
    _check_boxes(rows, known, truth, ArchiveReader(root))

    asked = {query.image_id for query in queries}
    named = {row.image for row in rows}
    flagged = [
        replace(
            entry,
            gallery=entry.image_id not in asked or entry.image_id in named,
            query=entry.image_id in asked,
        )
        for entry in entries
    ]
    if not any(entry.gallery for entry in flagged):
        raise InputError(
            f"{truth}: every image is a query and none stands in the column image; nothing to search"
        )
    return flagged, GroundTruth(tuple(queries), relevance)


@dataclass(frozen=True)
class _Row:
    """One line of the file; `query` is the query's id, `asked` its image (None where it is a text)."""

    line: int
    query: str
    asked: str | None
    image: str | None
    relevance: str | None
    box: Box | None
    split: str | None
    text: str | None


class _Names:
    """The image names of a folder, and the nearest of them to a wrong one."""

    def __init__(self, names: list[str]):
        self._names = names
        self._known = set(names)

    def find(self, written: str, where: str) -> str:
        for name in (written, written.strip(), written.strip().removeprefix("./")):
            if name in self._known:
                return name
        raise InputError(f"{where}: no image {shown(written.strip())}{self._nearest(written.strip())}")

    def _nearest(self, written: str) -> str:
        def plain(name: str) -> str:
            return unicodedata.normalize("NFC", name.replace("\\", "/")).casefold().rsplit("/", 1)[-1]

        nearest = [name for name in self._names if plain(name) == plain(written)]
        if not nearest and len(self._names) <= 20_000 and len(written) <= 1000:
            nearest = difflib.get_close_matches(written, self._names, 1)
        return f"; did you mean {shown(nearest[0])}?" if nearest else " in the folder"


def _rows(truth: Path, names: _Names) -> list[_Row]:
    """The lines of the file with images, ids, boxes, splits and texts found and made consistent."""
    rows = list(_parsed(truth, names))
    texts: dict[str, str] = {}
    for row in rows:
        name = row.query.strip()
        if row.text and texts.setdefault(name, row.text) != row.text:
            raise InputError(f"{truth}:{row.line}: query {shown(name)} has another text before")
    resolved = []
    for row in rows:
        if row.query.strip() in texts:
            name = row.query.strip()
            if row.box:
                raise InputError(f"{truth}:{row.line}: query {shown(name)} is a text and cannot have a box")
            resolved.append(replace(row, query=name, text=texts[name]))
        else:
            name = names.find(row.query, f"{truth}:{row.line}")
            resolved.append(replace(row, query=name, asked=name))
    return _with_splits(_with_boxes(resolved, truth), truth)


def _with_boxes(rows: list[_Row], truth: Path) -> list[_Row]:
    boxes: dict[str, dict[Box, None]] = {}
    for row in rows:
        if row.box:
            boxes.setdefault(row.query, {})[row.box] = None
    completed = []
    for row in rows:
        own = list(boxes.get(row.query, ()))
        if len(own) > 1 and row.box is None:
            raise InputError(
                f"{truth}:{row.line}: query {shown(row.query)} is asked with {len(own)} boxes; this line needs one"
            )
        if len(own) == 1:
            row = replace(row, box=own[0])
        elif row.box:
            row = replace(row, query=f"{row.query}#{','.join(f'{corner:.12g}' for corner in row.box)}")
        completed.append(row)
    return completed


def _with_splits(rows: list[_Row], truth: Path) -> list[_Row]:
    splits: dict[str, str] = {}
    for row in rows:
        if row.split and splits.setdefault(row.query, row.split) != row.split:
            raise InputError(
                f"{truth}:{row.line}: query {shown(row.query)} is in split {shown(row.split)}, "
                f"before it was in {shown(splits[row.query])}"
            )
    return [replace(row, split=splits.get(row.query)) for row in rows]


def _parsed(truth: Path, names: _Names) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(_text(truth), newline=""), strict=True)
    lines = _lines(reader, truth)
    _, header = next(lines, (1, []))
    columns = _columns(header, truth)
    for line, fields in lines:
        where = f"{truth}:{line}"
        if len(fields) != len(columns):
            raise InputError(f"{where}: {len(fields)} fields; the header has {len(columns)}")
        raw = dict(zip(columns, fields, strict=True))
        value = {name: field.strip() for name, field in raw.items()}
        for name in ("query", "image", "split", "text"):
            if any(unicodedata.category(character) == "Cc" for character in value.get(name, "")):
                raise InputError(f"{where}: {name} {shown(value[name])} holds a control character")
        if not value["query"]:
            raise InputError(f"{where}: query is empty")
        if value["image"] and value["relevance"] not in ALL_GRADES:
            raise InputError(
                f"{where}: relevance is {shown(value['relevance'])}; allowed: {', '.join(ALL_GRADES)}"
            )
        if not value["image"] and value["relevance"]:
            raise InputError(
                f"{where}: relevance is {shown(value['relevance'])} but image is empty; "
                "a query without match has neither"
            )
        yield _Row(
            line,
            raw["query"],
            None,
            names.find(raw["image"], where) if value["image"] else None,
            value["relevance"] or None,
            _box(value, where),
            value.get("split") or None,
            value.get("text") or None,
        )


def _lines(reader, truth: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every record that is not blank; a record may be several lines long."""
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{truth}:{line}: not CSV ({error})") from None
        if any(field.strip() for field in fields):
            yield line, fields


def _text(truth: Path) -> str:
    if truth.exists() and not truth.is_file():  # opening a FIFO would wait for ever
        raise InputError(f"{truth}: cannot be read (not a file)")
    try:
        content = truth.read_bytes()
    except OSError as error:
        raise InputError(f"{truth}: cannot be read ({error.strerror})") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{truth}:{line}: not UTF-8; save the file as CSV in UTF-8") from None


def _columns(header: list[str], truth: Path) -> list[str]:
    columns = [name.strip().lower() for name in header]
    expected = f"columns are {','.join(REQUIRED)} and optionally {','.join(OPTIONAL)}"
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(columns) == 1 and separator in columns[0]:
            raise InputError(f"{truth}:1: fields are separated by {called}; commas are expected")
    if missing := [name for name in REQUIRED if name not in columns]:
        raise InputError(f"{truth}:1: no column {missing[0]}; {expected}")
    if unknown := [name for name in columns if name not in REQUIRED + OPTIONAL]:
        raise InputError(f"{truth}:1: unknown column {shown(unknown[0])}; {expected}")
    if repeated := [name for name, count in Counter(columns).items() if count > 1]:
        raise InputError(f"{truth}:1: column {repeated[0]} occurs twice")
    if any(name in columns for name in CORNERS) and not all(name in columns for name in CORNERS):
        raise InputError(f"{truth}:1: a box needs all four columns {','.join(CORNERS)}")
    return columns


def _box(value: dict[str, str], where: str) -> Box | None:
    written = [value.get(corner, "") for corner in CORNERS]
    if not any(written):
        return None
    try:
        x1, y1, x2, y2 = map(float, written)
    except ValueError:
        raise InputError(f"{where}: box {shown(','.join(written))} is not four numbers x1,y1,x2,y2") from None
    box = (x1, y1, x2, y2)
    check_box(box, where)
    return box


def _queries(rows: list[_Row], truth: Path) -> list[Query]:
    """The queries in order of appearance."""
    queries: dict[str, Query] = {}
    for row in rows:
        query = Query(row.query, row.asked, row.box, row.text, row.split)
        # Two queries can meet in one name only where an image's own name looks like one with a box.
        if queries.setdefault(row.query, query) != query:
            raise InputError(
                f"{truth}:{row.line}: query {shown(row.query)} is already another query; rename the image"
            )
    return list(queries.values())


def _relevance(rows: list[_Row], truth: Path) -> dict[str, dict[str, str]]:
    """Grades by query and image; a pair is judged once, a query without match is not judged at all."""
    relevance: dict[str, dict[str, str]] = {}
    lines: dict[tuple[str, str | None], int] = {}
    first: dict[str, _Row] = {}
    for row in rows:
        query = row.query
        before = first.setdefault(query, row)
        if (before.image is None) != (row.image is None):
            raise InputError(
                f"{truth}:{row.line}: query {shown(query)} has lines with and without an image "
                f"(line {before.line}); a query without match has one line"
            )
        if earlier := lines.get((query, row.image)):
            if row.image is None:
                raise InputError(
                    f"{truth}:{row.line}: query {shown(query)} without match stands on line {earlier}"
                )
            grade = relevance[query][row.image]
            said = "too" if grade == row.relevance else f"as {grade}, here as {row.relevance}"
            raise InputError(
                f"{truth}:{row.line}: query {shown(query)} and image {shown(row.image)} are judged on line {earlier} "
                f"{said}"
            )
        lines[query, row.image] = row.line
        if row.image is not None and row.relevance is not None:
            relevance.setdefault(query, {})[row.image] = row.relevance
    return relevance


def _check_boxes(rows: list[_Row], known: dict[str, Entry], truth: Path, reader: ArchiveReader) -> None:
    """Every box lies in its image; only the files of images with boxes are opened."""
    from cairn.images.decode import crop_pixels, inspect

    checked: set[tuple[str, Box]] = set()
    for row in rows:
        if row.asked is None or row.box is None or (row.asked, row.box) in checked:
            continue
        entry = known[row.asked]
        header = inspect(
            reader.read(entry.archive, entry.member, entry.offset, entry.size),
            f"{row.asked} in {entry.archive}",
        )
        try:
            crop_pixels(row.box, header.width, header.height, row.asked)
        except InputError as error:
            raise InputError(f"{truth}:{row.line}: {error}") from None
        checked.add((row.asked, row.box))
