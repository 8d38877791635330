"""One Parquet table with one row per number, and the same numbers for `dvc metrics show`."""

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cairn.errors import ArtifactError
from cairn.files import dvc_digest, write_json
from cairn.results.names import FIELDS, NONE, NumberName

RESULTS_PATH = "artifacts/results/results.parquet"
SCORES_PATH = "artifacts/scores"
ABOUT = "benchmark.json"

# The columns of `results.parquet` in order: Arrow type and whether null is allowed.
COLUMNS: tuple[tuple[str, str, bool], ...] = (
    *((field, "string", False) for field in FIELDS),
    ("value", "float64", False),  # fractions between 0 and 1 where the unit is "fraction"
    ("unit", "string", False),
    ("low", "float64", True),  # 95% interval, null where there is none
    ("high", "float64", True),
    ("n_queries", "int64", False),
    ("gallery_size", "int64", False),
    ("source_artifact", "string", False),  # path of the scores artifact, relative to the project
    ("source_md5", "string", False),  # what DVC recorded for it
)


@dataclass(frozen=True)
class Result:
    """One number: its name, its value in `unit`, and the artifact it was read from.

    `value`, `low`, `high`: fractions 0–1 where `unit` is "fraction" (shown as percent); the interval is 95%.
    `source_artifact`, `source_md5`: the scores artifact and its DVC hash; empty inside a scores artifact,
    which cannot know its own hash, and filled in by `collect_results`.
    """

    name: NumberName
    value: float
    n_queries: int
    gallery_size: int
    unit: str = "fraction"
    low: float | None = None
    high: float | None = None
    source_artifact: str = ""
    source_md5: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ArtifactError(f"number {self.name} is {self.value}: a value must be finite")


def results_schema():
    """The Arrow schema of `results.parquet` and of every `scores.parquet`."""
    import pyarrow as pa

    types = {"string": pa.string(), "float64": pa.float64(), "int64": pa.int64()}
    return pa.schema([pa.field(name, types[kind], nullable=null) for name, kind, null in COLUMNS])


def write_results(path: Path, rows: Iterable[Result]) -> None:
    """Write `rows` sorted by name; the same rows in any order give the same bytes.

    Raises ArtifactError where two rows have one name.
    """
    import pyarrow as pa

    from cairn.store.tables import write_table

    ordered = sorted(rows, key=lambda row: row.name)
    for before, after in itertools.pairwise(ordered):
        if before.name == after.name:
            raise ArtifactError(f"{path}: two rows are called {after.name}; a number's name is unique")
    records = [
        {
            **dict(zip(FIELDS, row.name.fields, strict=True)),
            "value": float(row.value),
            "unit": row.unit,
            "low": row.low,
            "high": row.high,
            "n_queries": row.n_queries,
            "gallery_size": row.gallery_size,
            "source_artifact": row.source_artifact,
            "source_md5": row.source_md5,
        }
        for row in ordered
    ]
    table = pa.Table.from_pylist(records, schema=results_schema())
    write_table(table, Path(path))


def read_results(path: Path) -> list[Result]:
    """The rows of `path` in order of their names.

    Raises ArtifactError where the file is missing, damaged, or has other columns or types.
    """
    from cairn.store.tables import read_table

    path = Path(path)
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist: `cairn run` makes it, `dvc pull` fetches it")
    records = read_table(path, results_schema()).to_pylist()
    rows = []
    for record in records:
        name = NumberName(*(record.pop(field) for field in FIELDS))
        rows.append(Result(name=name, **record))
    return sorted(rows, key=lambda row: row.name)


def collect_results(root: Path) -> list[Result]:
    """Every number under `artifacts/scores/<benchmark>/<system>/`, with path and DVC hash of its artifact.

    A folder `<system>.<head>` holds the numbers of a system's heads.

    Raises ArtifactError where a `scores.parquet` is damaged or holds numbers of another benchmark or system.
    """
    root = Path(root)
    rows: list[Result] = []
    for file in sorted((root / SCORES_PATH).glob("*/*/scores.parquet")):
        artifact = file.parent
        system, _, head = artifact.name.partition(".")
        run = (artifact.parent.name, system, head or NONE)
        digest = dvc_digest(artifact)
        for row in read_results(file):
            if (row.name.benchmark, row.name.system, row.name.head) != run:
                raise ArtifactError(f"{file}: holds {row.name}; only numbers of {'/'.join(run)} belong there")
            source = artifact.relative_to(root).as_posix()
            rows.append(replace(row, source_artifact=source, source_md5=digest))
    return sorted(rows, key=lambda row: row.name)


def write_metrics(path: Path, rows: Iterable[Result], synthetic: Iterable[str] = ()) -> None:
    """Write `metrics.json` for `dvc metrics show`: benchmark → system → stage → slice → metric → value.

    Values are exactly those of the table (fractions 0–1). A head and a seed join the system's key
    (`dinov2-l/decon/0`); a synthetic benchmark says so in its key (`toytown (synthetic)`).
    """
    marked = set(synthetic)
    tree: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row.name):
        name = row.name
        benchmark = f"{name.benchmark} (synthetic)" if name.benchmark in marked else name.benchmark
        system = "/".join([name.system, *(part for part in (name.head, name.seed) if part != NONE)])
        node = tree
        for key in (benchmark, system, name.stage, name.slice):
            node = node.setdefault(key, {})
        node[name.metric] = row.value
    write_json(path, tree)


def benchmark_facts(root: Path, benchmark: str) -> dict[str, Any]:
    """What a benchmark says about itself in `benchmark.json` (title, synthetic, notes…); {} if absent."""
    folder = Path(root) / "artifacts" / benchmark
    found = (read_json_object(folder / step / ABOUT) for step in ("ground_truth", "manifest"))
    return next((facts for facts in found if facts is not None), {})


def synthetic_benchmarks(root: Path, benchmarks: Iterable[str]) -> set[str]:
    """Those of `benchmarks` whose images a program drew: they are named so wherever a number shows."""
    return {name for name in set(benchmarks) if benchmark_facts(root, name).get("synthetic") is True}


def read_json_object(path: Path, limit: int = 64 << 20) -> dict[str, Any] | None:
    """The JSON object in `path`; None where it is missing, damaged, above `limit` bytes or no object."""
    try:
        if path.stat().st_size > limit:
            return None
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
