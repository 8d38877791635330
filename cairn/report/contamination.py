"""Contamination audits among the artifacts, as tables: whatever their JSON says, counts and lists of records."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.results.table import read_json_object

MOST_ROWS = 60
LARGEST = 16 << 20


@dataclass(frozen=True)
class AuditTable:
    """One table: its title, its columns, its rows as text, how many rows there are in all, and its artifact."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int
    artifact: str


def contamination_tables(root: Path, benchmark: str) -> list[AuditTable]:
    """The tables of every audit of `benchmark` under `artifacts/`; none where no audit was made."""
    base = root / "artifacts" / benchmark
    return _read(root, [*base.glob("contamination/*.json"), *base.glob("*/verification/*.json")])


def training_tables(root: Path) -> list[AuditTable]:
    """The tables of the report on heads: which training saw flagged images, what it gave beyond the seeds."""
    return _read(root, (root / "artifacts/heads").glob("*.json"))


def _read(root: Path, files: Iterable[Path]) -> list[AuditTable]:
    found: list[AuditTable] = []
    for file in sorted(files):
        record = read_json_object(file, limit=LARGEST)
        if record and file.name != "packages.json":
            artifact = file.parent.relative_to(root).as_posix()
            found.extend(_tables(record, file.stem, artifact))
    return found


def _tables(record: Mapping[str, Any], title: str, artifact: str) -> Iterator[AuditTable]:
    """What stands at the top as one table of facts; a list of records, or of objects by name, as one each."""
    facts = [(_words(key), _text(value)) for key, value in record.items() if _plain(value)]
    if facts:
        yield AuditTable(_words(title), ("what", "value"), tuple(facts), len(facts), artifact)
    for key, value in record.items():
        rows: list[Mapping[str, Any]] = []
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            rows = value
        elif isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
            rows = [{"name": name, **item} for name, item in value.items()]
        elif isinstance(value, dict) and value:
            plain = [(_words(name), _text(item)) for name, item in value.items() if _plain(item)]
            if plain:
                name = f"{_words(title)}: {_words(key)}"
                yield AuditTable(name, ("what", "value"), tuple(plain[:MOST_ROWS]), len(plain), artifact)
        if rows:
            columns = list(dict.fromkeys(name for row in rows for name, item in row.items() if _plain(item)))
            shown = tuple(tuple(_text(row.get(name)) for name in columns) for row in rows[:MOST_ROWS])
            name = f"{_words(title)}: {_words(key)}"
            yield AuditTable(name, tuple(_words(column) for column in columns), shown, len(rows), artifact)


def _plain(value: Any) -> bool:
    listed = isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
    return value is None or isinstance(value, str | int | float | bool) or (listed and len(value) <= 12)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _words(name: str) -> str:
    return str(name).replace("_", " ")
