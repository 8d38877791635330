"""Compares the files of an artifact with those that its step made again: tables, JSON and text by what they say."""

import csv
import json
import math
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cairn.errors import CairnError
from cairn.lineage.graph import SCORES_FILE
from cairn.results.names import printable
from cairn.results.table import RESULTS_PATH

# Another processor may add in another order; a value that differs by more was not computed from these files.
TOLERANCE = 1e-12
PICTURES = (".png", ".jpg", ".svg")
# Written by whoever runs a step, and tables whose rows are compared one by one (`rescoring`, `rows`).
APART = ("packages.json", SCORES_FILE, RESULTS_PATH.rsplit("/", 1)[-1])


def differences(stored: Path, again: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """The files (relative path) of `stored` that differ from those of `again`, with what differs; and the pictures."""
    names = {
        file.relative_to(folder).as_posix()
        for folder in (stored, again)
        for file in folder.rglob("*")
        if file.is_file()
    }
    found: list[tuple[str, str]] = []
    pictures: list[str] = []
    for name in sorted(names.difference(APART)):
        before, after = stored / name, again / name
        if not before.is_file() or not after.is_file():
            found.append(
                (name, "missing; its step makes it" if after.is_file() else "its step makes no such file")
            )
        elif before.read_bytes() != after.read_bytes():
            if before.suffix in PICTURES:
                pictures.append(name)
            elif (said := _difference(before, after)) is not None:
                found.append((name, said))
    return found, pictures


def _difference(before: Path, after: Path) -> str | None:
    """What differs first; None where both say the same (in other bytes, or within the tolerance)."""
    try:
        if before.suffix == ".parquet":
            stored, again = _rows(before), _rows(after)
        elif before.suffix == ".json":
            stored, again = (json.loads(file.read_text("utf-8")) for file in (before, after))
        elif before.suffix == ".csv":
            stored, again = (
                list(csv.reader(file.read_text("utf-8").splitlines())) for file in (before, after)
            )
        else:
            stored, again = (file.read_text("utf-8").splitlines() for file in (before, after))
    except (CairnError, OSError, ValueError, csv.Error) as error:
        return f"cannot be compared: {str(error).splitlines()[0]}"
    for place, one, other in _differing(stored, again, ""):
        return f"{place or 'it'} is {_shown(one)}, made again {_shown(other)}"
    return None


def _rows(file: Path) -> list[dict[str, Any]]:
    import pyarrow as pa

    from cairn.store.tables import read_table

    return read_table(file, pa.schema([]), extra_columns=True).to_pylist()


def _differing(one: Any, other: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                yield f"{place}.{key}".lstrip("."), one.get(key, _ABSENT), other.get(key, _ABSENT)
            else:
                yield from _differing(one[key], other[key], f"{place}.{key}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list):
        for number, (first, second) in enumerate(zip_longest(one, other, fillvalue=_ABSENT)):
            yield from _differing(first, second, f"{place}[{number}]")
    elif not _same(one, other):
        yield place, one, other


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str) and one != other:
        one, other = _number(one), _number(other)  # cells of a CSV file
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE) or (
            one != one and other != other
        )
    return type(one) is type(other) and one == other


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


_ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()


def _shown(value: Any) -> str:
    return printable(value, 80) if isinstance(value, str) else str(value)[:80]
