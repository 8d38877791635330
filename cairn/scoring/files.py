"""Reads CSV, JSON and newline-delimited JSON from outside: a fault is one line that names file and line."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cairn.errors import InputError, UsageError
from cairn.metrics.ragged import Floats, Ints
from cairn.progress import say, track, visible

BLOCK = 1 << 20
LARGE = 4 << 20
"""Bytes of a file that is read with progress even where no bar is drawn."""
MAX_DEPTH = 10**9
MAX_LINE = 64 << 20
"""Longest line read, in bytes."""


@dataclass(frozen=True)
class Table:
    """Columns of texts, and the line of the file each row stands on (from 1)."""

    path: Path
    columns: dict[str, list[str]]
    lines: Ints

    def __len__(self) -> int:
        return len(self.lines)

    def fail(self, row: int, message: str) -> NoReturn:
        """Raise InputError for one row."""
        raise InputError(f"{self.path}:{self.lines[row]}: {message}")


def read_table(
    path: Path,
    names: Sequence[str],
    *,
    header_optional: bool = False,
    more_columns: bool = False,
) -> Table:
    """Read a CSV whose header is `names`; UTF-8, one record a line, blank lines skipped.

    `header_optional`: a file may start with a record instead of the header. `more_columns`: the header may
    hold further columns, in any order, which are kept too. Progress on standard error.
    """
    path = Path(path)
    expected = ",".join(names)
    header: list[str] | None = None
    # Columns are put together block by block: a million rows kept as lists would be a gigabyte.
    columns: list[list[str]] = []
    numbers: list[Ints] = []
    for first, lines in _progress(path):
        rows = _records(path, first, lines)
        number = np.arange(first, first + len(rows))
        if not all(rows):
            number = number[np.fromiter(map(bool, rows), bool, len(rows))]
            rows = [row for row in rows if row]
        if rows and header is None:
            header = _header(path, int(number[0]), rows[0], names, header_optional, more_columns)
            columns = [[] for _ in header]
            if header == rows[0]:
                rows, number = rows[1:], number[1:]
        width = len(header or names)
        if set(map(len, rows)) - {width}:
            wrong = next(i for i, row in enumerate(rows) if len(row) != width)
            wanted = expected if width == len(names) else f"the {width} columns of the header"
            raise InputError(
                f"{path}:{number[wrong]}: {len(rows[wrong])} fields; expected {width} ({wanted})"
            )
        for column, values in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
            column.extend(values)
        numbers.append(number)
    if header is None:
        raise InputError(f"{path}: empty; expected {expected}")
    return Table(path, dict(zip(header, columns, strict=True)), np.concatenate(numbers).astype(np.int64))


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line of a newline-delimited JSON file; blank lines skipped."""
    path = Path(path)
    for first, lines in _progress(path):
        for number, line in enumerate(lines, first):
            if line.strip():
                value = _json(line, f"{path}:{number}")
                if not isinstance(value, dict):
                    raise InputError(f"{path}:{number}: a JSON object was expected, not {_kind(value)}")
                yield number, value


def read_json(path: Path) -> Any:
    """The value in a JSON file; a key given twice is refused."""
    path = Path(path)
    announce(path)
    return _json(_decode(path, 1, _bytes(path)), str(path))


def check_depth(k: int) -> None:
    """UsageError for a depth of lists that is none."""
    if not 1 <= k <= MAX_DEPTH:
        raise UsageError(f"--k is {k}; expected 1 to {MAX_DEPTH:,}")


def announce(path: Path) -> None:
    """Say on standard error that a large file is read, which is not read block by block."""
    if path.is_file() and path.stat().st_size >= LARGE:
        say(f"reading {path.name} ({path.stat().st_size >> 20:,} MiB)")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text (outer blanks removed) of every line that is not blank."""
    path = Path(path)
    for first, lines in _blocks(path):
        for number, line in enumerate(lines, first):
            if line.strip():
                yield number, line.strip()


def unfinished(*paths: Path) -> list[str]:
    """A warning for every text file whose last line does not end: it may have been cut off there."""
    notes = []
    for path in map(Path, paths):
        with path.open("rb") as stream:
            stream.seek(0, 2)
            if stream.tell():
                stream.seek(-1, 2)
                if stream.read(1) != b"\n":
                    notes.append(
                        f"{path.name} does not end with a line end; if it was cut off, so is its last row"
                    )
    return notes


def number_column(table: Table, name: str, about: Sequence[str] = ()) -> Floats:
    """A column as float64 [rows]; InputError, naming the row's `about` columns, where one is not finite."""
    texts = table.columns[name]
    joined = "".join(texts)
    try:
        if not joined.isascii() or "_" in joined:  # float() also reads 1_000 and other scripts' digits
            raise ValueError
        values = np.array([float(text) for text in texts], np.float64)
    except ValueError:
        values = np.array([_number(text) for text in texts], np.float64)
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        row = int(bad[0])
        named = ", ".join(f"{column.removesuffix('_id')} {table.columns[column][row]}" for column in about)
        table.fail(row, f"{named + ': ' if named else ''}{name} {texts[row]!r:.60} is not a finite number")
    return values


def encode(texts: Sequence[str], known: dict[str, int] | None = None) -> tuple[Ints, list[str]]:
    """Number of every text among the distinct ones, in order of appearance, and those; or in `known`, else -1."""
    if known is not None:
        return np.fromiter((known.get(text, -1) for text in texts), np.int64, len(texts)), list(known)
    seen: dict[str, int] = {}
    codes = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), np.int64, len(texts))
    return codes, list(seen)


def first_repeat(*codes: Ints) -> int | None:
    """Index of the first entry whose combination of (non-negative) codes stood before; None if none did."""
    key = np.zeros(len(codes[0]), np.int64)
    for code in codes:
        key = key * (int(code.max(initial=0)) + 1) + code
    order = np.argsort(key, kind="stable")
    repeated = order[1:][np.diff(key[order]) == 0]
    return int(repeated.min()) if repeated.size else None


def _number(text: str) -> float:
    try:
        return float(text) if text.isascii() and "_" not in text else float("nan")
    except ValueError:
        return float("nan")


def _header(
    path: Path, line: int, row: list[str], names: Sequence[str], optional: bool, more: bool
) -> list[str]:
    if row == list(names):
        return row
    if more and set(names) <= set(row):
        repeated = next((name for name in row if row.count(name) > 1), None)
        if repeated is not None:
            raise InputError(f"{path}:{line}: the column {repeated!r} occurs twice")
        return row
    # `Query_ID`, `query` and the like are no record of ours: taken for one they would give a wrong number.
    titles = {title for name in names for title in (name, name.removesuffix("_id"))}
    looks_like_header = not titles.isdisjoint(field.strip().lower().replace(" ", "_") for field in row)
    if optional and not looks_like_header:
        return list(names)
    missing = [name for name in names if name not in row]
    what = f"the column {missing[0]} is missing" if missing and more else f"the header is {','.join(row):.80}"
    raise InputError(f"{path}:{line}: {what}; expected {','.join(names)}")


def _progress(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The file's blocks, with a bar, or where none is drawn a line per quarter of a file that takes seconds."""
    size = _size(path)
    if size >= LARGE and not visible():
        quarter = max(1, -(-size // BLOCK) // 4)
        for done, block in enumerate(_blocks(path)):
            if done % quarter == 0:
                say(f"reading {path.name}: {done:,} of {size >> 20:,} MiB")
            yield block
        return
    yield from track(_blocks(path), f"reading {path.name}", total=-(-size // BLOCK) or 1, unit="MiB")


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """First line's number and the whole lines of every block of about a MiB."""
    _size(path)
    first, rest = 1, b""
    with path.open("rb") as stream:
        while True:
            data = stream.read(BLOCK)
            rest += data
            end = len(rest) if not data else rest.rfind(b"\n") + 1
            if len(rest) - end > MAX_LINE:
                raise InputError(f"{path}:{first}: a line of more than {MAX_LINE >> 20} MiB")
            block, rest = rest[:end], rest[end:]
            if block or data:
                lines = _decode(path, first, block).split("\n")
                if lines[-1] == "":
                    lines.pop()
                yield first, lines
                first += len(lines)
            if not data:
                return


def _decode(path: Path, first: int, block: bytes) -> str:
    try:
        text = block.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first + block.count(b"\n", 0, error.start)
        raise InputError(f"{path}:{line}: not UTF-8 text (byte {block[error.start]:#04x})") from None
    if "\0" in text:
        line = first + text.count("\n", 0, text.index("\0"))
        raise InputError(f"{path}:{line}: holds a NUL character; expected UTF-8 text")
    return text


def _records(path: Path, first: int, lines: list[str]) -> list[list[str]]:
    before = csv.field_size_limit(MAX_LINE)  # one for the whole process: put back
    reader = csv.reader(lines, strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        line = first + reader.line_num - 1
        raise InputError(f"{path}:{line}: not a CSV record ({error})") from None
    finally:
        csv.field_size_limit(before)
    if reader.line_num != len(rows):
        # A record over several lines: the numbers would no longer say where a row stands.
        reader = csv.reader(lines, strict=True)
        line = next(number for number, _ in enumerate(reader, first) if reader.line_num > number - first + 1)
        raise InputError(f"{path}:{line}: a quoted field goes over the end of the line")
    return rows


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except _Repeated as repeated:
        raise InputError(f"{where}: the key {str(repeated)!r:.80} is given twice") from None
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}" if ":" not in Path(where).name else where
        raise InputError(f"{place}: not JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise InputError(f"{where}: JSON nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"{where}: not JSON that can be read ({error!s:.80})") from None


class _Repeated(Exception):
    pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        raise _Repeated(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return result


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")


def _bytes(path: Path) -> bytes:
    _size(path)
    return path.read_bytes()


def _size(path: Path) -> int:
    try:
        if not path.is_file():
            raise InputError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
        with path.open("rb"):
            return path.stat().st_size
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
