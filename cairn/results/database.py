"""SQL over everything that was computed: DuckDB views on the Parquet files, and the graph of hashes as tables."""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, LineageError
from cairn.lineage.tables import COLUMNS as LINEAGE
from cairn.lineage.tables import lineage_tables
from cairn.results.names import FIELDS, plain
from cairn.results.reading import ONLY_READ, PLACE, give_files, lock_files
from cairn.results.table import COLUMNS, RESULTS_PATH

if TYPE_CHECKING:
    import duckdb

DATABASE_PATH = "results.duckdb"
RANKING_FACTS = "artifacts/*/*/ranking/ranking.json"
RERANKING_FACTS = "artifacts/*/*/reranking/reranking.json"

_SQL_TYPES = {"string": "VARCHAR", "float64": "DOUBLE", "int64": "BIGINT", "strings": "VARCHAR[]"}
_RESULT_COLUMNS = ", ".join(f"{name} {_SQL_TYPES[kind]}" for name, kind, _ in COLUMNS)
_RANKING_COLUMNS = "query_id VARCHAR, rank INTEGER, image_row INTEGER, image_id VARCHAR, score FLOAT"


@dataclass(frozen=True)
class View:
    """One view: a pattern of files under the project, the columns while there are none, and the SELECT.

    The SELECT may name the fragments below (`$run`, `$rest`, `$parquet`…), the quoted pattern `$files` and
    `$root`, the place of the project's files as a regular expression.
    """

    name: str
    files: str
    columns: str
    select: str


# DuckDB's column `filename` tells benchmark and system apart.
_FRAGMENTS = {
    "benchmark": "regexp_extract(filename, '^$root/artifacts/([^/]+)/', 1) AS benchmark",
    "run": "regexp_extract(filename, '^$root/artifacts/([^/]+)/', 1) AS benchmark, "
    "regexp_extract(filename, '^$root/artifacts/[^/]+/([^/]+)/', 1) AS system",
    "scored": "regexp_extract(filename, '^$root/artifacts/scores/([^/]+)/', 1) AS benchmark, "
    "regexp_extract(filename, '^$root/artifacts/scores/[^/]+/([^/.]+)', 1) AS system",
    # A stored column never hides what the path says, and helper columns stay out.
    "rest": "COLUMNS(lambda c: c NOT IN ('filename', 'file_row_number', 'benchmark', 'system'))",
    "ranked": "COLUMNS(lambda c: c NOT IN ('filename', 'benchmark', 'system', 'stage', 'folder'))",
    # What lies there of runs that `params.yaml` no longer lists would answer for runs that nobody asked about.
    "listed": "SEMI JOIN (FROM runs WHERE head = '-') USING (benchmark, system)",
    "number": f"concat_ws('/', {', '.join(FIELDS)}) AS number",
    "parquet": "read_parquet($files, filename = true, union_by_name = true, hive_partitioning = false)",
    "numbered": "read_parquet($files, filename = true, file_row_number = true, union_by_name = true, "
    "hive_partitioning = false)",
}
_RUN_KEYS = "benchmark VARCHAR, system VARCHAR"
# How DuckDB says that it may not: what a locked connection was asked for.
_HELD_BACK = (
    "disabled by configuration",
    "through configuration",
    "configuration has been locked",
    ONLY_READ,
)

VIEWS: tuple[View, ...] = (
    View(
        "benchmarks",
        "artifacts/*/*/benchmark.json",
        "benchmark VARCHAR, title VARCHAR, synthetic BOOLEAN",
        "SELECT $benchmark, any_value(title) AS title, coalesce(bool_or(synthetic), false) AS synthetic "
        "FROM read_json($files, "
        "filename = true, columns = {title: 'VARCHAR', synthetic: 'BOOLEAN'}) GROUP BY 1",
    ),
    View(
        "results",
        RESULTS_PATH,
        f"number VARCHAR, {_RESULT_COLUMNS}, synthetic BOOLEAN, unpinned_sources BIGINT",
        # How many sources under the number nobody's checksum vouches for; NULL where its lineage is not known.
        "SELECT stored.*, coalesce(benchmarks.synthetic, false) AS synthetic, unpinned_sources "
        "FROM (SELECT $number, * FROM read_parquet($files, hive_partitioning = false)) AS stored "
        "LEFT JOIN benchmarks USING (benchmark) LEFT JOIN unpinned USING (number)",
    ),
    View(
        "runs",
        RESULTS_PATH,
        f"{_RUN_KEYS}, head VARCHAR",
        "SELECT DISTINCT benchmark, system, head FROM read_parquet($files, hive_partitioning = false)",
    ),
    View(
        "per_query",
        "artifacts/scores/*/*/per_query.parquet",
        f"{_RUN_KEYS}, query_id VARCHAR",
        "FROM (SELECT $scored, $rest FROM $parquet) $listed",
    ),
    View(
        "head_per_query",
        "artifacts/scores/*/*/head_per_query.parquet",
        f"{_RUN_KEYS}, head VARCHAR, seed VARCHAR, query_id VARCHAR",
        "FROM (SELECT $scored, $rest FROM $parquet) SEMI JOIN runs USING (benchmark, system, head)",
    ),
    View(
        "rankings",
        "artifacts/*/*/ranking/ranking.parquet",
        f"{_RUN_KEYS}, stage VARCHAR, {_RANKING_COLUMNS}",
        # The stage's slug stands in the file beside it: `global`, or with the options around the search.
        "FROM (SELECT $run, coalesce(facts.stage, 'global') AS stage, $ranked FROM $parquet AS ranked "
        "LEFT JOIN (SELECT stage, parse_dirpath(filename) AS folder FROM $first) AS facts "
        "ON folder = parse_dirpath(ranked.filename)) $listed",
    ),
    View(
        "rerankings",
        "artifacts/*/*/reranking/reranked.parquet",
        f"{_RUN_KEYS}, stage VARCHAR, {_RANKING_COLUMNS}",
        # The stage's slug stands in the file beside it.
        "FROM (SELECT $run, facts.stage AS stage, $ranked FROM $parquet AS ranked "
        "LEFT JOIN (SELECT stage, parse_dirpath(filename) AS folder FROM read_json($beside, "
        "filename = true, columns = {stage: 'VARCHAR'})) AS facts ON folder = parse_dirpath(ranked.filename)) $listed",
    ),
    View(
        "pairs",
        "artifacts/*/*/reranking/pairs.parquet",
        f"{_RUN_KEYS}, query_id VARCHAR, image_row INTEGER, image_id VARCHAR, rank INTEGER, "
        "global_score FLOAT, logit FLOAT",
        "FROM (SELECT $run, $rest FROM $parquet) $listed",
    ),
    View(
        "mixed_rankings",
        "artifacts/scores/*/*/reranked.parquet",
        f"{_RUN_KEYS}, {_RANKING_COLUMNS}",
        "FROM (SELECT $scored, $rest FROM $parquet) $listed",
    ),
    View(
        "diagnostics",
        "artifacts/scores/*/*/diagnostics.parquet",
        f"number VARCHAR, {_RESULT_COLUMNS}",
        "FROM (SELECT $number, * FROM read_parquet($files, hive_partitioning = false)) $listed",
    ),
    View(
        "descriptors",
        "artifacts/*/*/descriptors/[0-9]*.parquet",
        f"{_RUN_KEYS}, image_id VARCHAR, descriptor FLOAT[]",
        "SELECT $run, image_id, descriptor::FLOAT[] AS descriptor FROM $parquet",
    ),
    View(
        "query_descriptors",
        "artifacts/*/*/descriptors/queries.parquet",
        f"{_RUN_KEYS}, query_id VARCHAR, descriptor FLOAT[]",
        "SELECT $run, COLUMNS(lambda c: c IN ('query_id', 'image_id')) AS query_id, "
        "descriptor::FLOAT[] AS descriptor FROM $parquet",
    ),
    View(
        "manifest",
        "artifacts/*/manifest/manifest.parquet",
        "benchmark VARCHAR, image_row BIGINT, image_id VARCHAR",
        "SELECT $benchmark, file_row_number AS image_row, $rest FROM $numbered",
    ),
    View(
        "queries",
        "artifacts/*/ground_truth/queries.parquet",
        "benchmark VARCHAR, query_id VARCHAR",
        "SELECT $benchmark, $rest FROM $parquet",
    ),
    View(
        "relevance",
        "artifacts/*/ground_truth/relevance.parquet",
        "benchmark VARCHAR, query_id VARCHAR, image_id VARCHAR, grade VARCHAR",
        "SELECT $benchmark, $rest FROM $parquet",
    ),
)


def rebuild_database(root: Path) -> Path:
    """Write `results.duckdb` under a temporary name and rename it: whoever has the old one open keeps it.

    It holds views with absolute paths, so that it opens from any directory, and the tables of the lineage as they
    are now.
    """
    import duckdb

    root = Path(root).resolve()
    target = root / DATABASE_PATH
    with tempfile.TemporaryDirectory(prefix=".results.duckdb.", dir=root) as folder:
        temporary = Path(folder) / DATABASE_PATH
        with contextlib.closing(duckdb.connect(str(temporary))) as connection:
            create_views(connection, root, _escape_pattern(str(root)), str(root))
        temporary.replace(target)
    return target


def create_views(
    connection: "duckdb.DuckDBPyConnection", root: Path, pattern: str = PLACE, place: str = PLACE
) -> None:
    """Create the tables of the lineage and every view of `VIEWS`; what does not exist yet is empty.

    `pattern` and `place` say where `connection` finds the project: in a pattern of files, and in their names.
    """
    import duckdb

    create_tables(connection, root)
    named = any(Path(root).glob(RANKING_FACTS))
    for view in VIEWS:
        filled = any(Path(root).glob(view.files))
        statement = _filled(view, pattern, place, named) if filled else _empty(view.columns)
        try:
            connection.execute(f"CREATE OR REPLACE VIEW {view.name} AS {statement}")
        except duckdb.Error as error:
            # A file is damaged, or a run is replacing it this moment: the other views must work, and this
            # one must say so rather than look empty.
            problem = _quote(f"view {view.name} cannot be read: {_one_line(error)}")
            connection.execute(f"CREATE OR REPLACE VIEW {view.name} AS SELECT error({problem}) AS problem")


def create_tables(connection: "duckdb.DuckDBPyConnection", root: Path) -> None:
    """Create the tables of `cairn.lineage.tables`; where `dvc.lock` is damaged, views that say so."""
    import pyarrow as pa

    try:
        tables = lineage_tables(root)
    except CairnError as error:
        problem = _quote(f"the lineage cannot be read: {plain(str(error))}")
        for name in LINEAGE:
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT error({problem}) AS problem")
        connection.execute(
            f"CREATE OR REPLACE VIEW unpinned AS {_empty('number VARCHAR, unpinned_sources BIGINT')}"
        )
        return
    for table in tables:
        connection.execute(f"CREATE OR REPLACE TABLE {table.name} ({table.columns})")
        if table.rows:
            columns = dict(zip(table.names, map(list, zip(*table.rows, strict=True)), strict=True))
            connection.register("given", pa.table(columns))
            connection.execute(f"INSERT INTO {table.name} FROM given")
            connection.unregister("given")
    connection.execute(
        "CREATE OR REPLACE VIEW unpinned AS "
        "SELECT number, count(DISTINCT location) FILTER (WHERE status <> 'pinned') AS unpinned_sources "
        "FROM lineage LEFT JOIN sources USING (artifact) GROUP BY 1"
    )


@contextlib.contextmanager
def open_database(root: Path) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A connection with fresh views in memory: it needs no lock and sees what is on disk at this moment.

    It can write no file and read none but the project's artifacts (`cairn.results.reading`).
    """
    import duckdb

    root = Path(root).resolve()
    with contextlib.closing(
        duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
            },
        )
    ) as connection:
        give_files(connection, root)
        create_views(connection, root)
        lock_files(connection)
        yield connection


@dataclass(frozen=True)
class Answer:
    """Column names and rows of a query's answer, as Python values."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def query(root: Path, sql: str) -> Answer:
    """Run one reading statement over the views. Raises LineageError for a write or an SQL error."""
    import duckdb

    with open_database(root) as connection:
        check_read_only(connection, sql)
        try:
            cursor = connection.execute(sql)
            columns = tuple(column[0] for column in cursor.description or ())
            return Answer(columns, cursor.fetchall())
        except duckdb.Error as error:
            raise LineageError(f"SQL: {_one_line(error)}") from None


def check_read_only(connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
    """Raise LineageError unless `sql` is exactly one statement that only reads."""
    import duckdb

    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise LineageError(f"SQL: {_one_line(error)}") from None
    if len(statements) != 1:
        what = "is empty" if not statements else f"holds {len(statements)} statements"
        raise LineageError(f"SQL: the text {what}; give one SELECT")
    kind = statements[0].type
    text = statements[0].query.strip().lower()
    # EXPLAIN ANALYZE would run what it explains, a COPY to a file included.
    explains = kind == duckdb.StatementType.EXPLAIN and re.match(r"explain\s+(select|from|with)\b", text)
    # A PIVOT is several statements inside: it first looks which columns there will be.
    pivots = kind == duckdb.StatementType.MULTI and re.match(r"(pivot|from|select|with)\b", text)
    if kind != duckdb.StatementType.SELECT and not explains and not pivots:
        raise _refused(str(kind).rsplit(".", maxsplit=1)[-1])
    inside = _writes_inside(
        connection, re.sub(r"^\s*explain\b", "", statements[0].query, flags=re.IGNORECASE)
    )
    if inside:
        raise _refused(inside)


def _refused(what: str) -> LineageError:
    return LineageError(
        f"SQL: {what} is refused; `cairn sql` only reads: SELECT, FROM, SHOW, DESCRIBE, EXPLAIN"
    )


def _writes_inside(connection: "duckdb.DuckDBPyConnection", sql: str) -> str | None:
    """The statement in a CTE of the SELECT `sql` that is no reading one (`COPY`, `INSERT`…).

    It serves the message; what DuckDB cannot lay out as a tree is held back by the connection's files.
    """
    row = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    waiting: list[Any] = [json.loads(row[0]) if row else None]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            kind = node.get("type")
            if isinstance(kind, str) and (found := re.fullmatch(r"([A-Z_]+)_QUERY_NODE", kind)):
                return found[1]
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return None


def _filled(view: View, pattern: str, place: str, named: bool) -> str:
    places = {
        "files": _quote(f"{pattern}/{view.files}"),
        "first": f"read_json({_quote(f'{pattern}/{RANKING_FACTS}')}, filename = true, "
        "columns = {stage: 'VARCHAR'})"
        if named
        else "(SELECT NULL::VARCHAR AS stage, NULL::VARCHAR AS filename)",
        "beside": _quote(f"{pattern}/{RERANKING_FACTS}"),
        "root": _quote(_escape_regular(place))[1:-1],
    }
    fragments = {name: Template(text).substitute(places) for name, text in _FRAGMENTS.items()}
    return Template(view.select).substitute(fragments | places)


def _empty(columns: str) -> str:
    fields = ", ".join("NULL::{1} AS {0}".format(*column.split(" ", 1)) for column in columns.split(", "))
    return f"SELECT {fields} WHERE false"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escape_pattern(text: str) -> str:
    return "".join(f"[{character}]" if character in "[*?" else character for character in text)


def _escape_regular(text: str) -> str:
    # RE2 takes a backslash before any punctuation; letters, digits and separators stay.
    return "".join(c if c.isalnum() or c in "/_-" or ord(c) > 127 else "\\" + c for c in text)


def _one_line(error: Exception) -> str:
    text = str(error)
    if any(sign in text for sign in _HELD_BACK):
        return "`cairn sql` only reads, and only the views: no other file, setting or extension"
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    kept = [line for line in lines if not line.startswith(("LINE ", "^"))]
    # What a file or the statement says must not steer the terminal.
    return plain(" ".join(kept)[:400].replace(f"{PLACE}/", ""))
