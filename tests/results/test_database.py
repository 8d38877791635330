"""SQL over the results: views that follow the files, reading only."""

import shutil

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.errors import LineageError
from cairn.results.database import VIEWS, open_database, query, rebuild_database
from cairn.results.names import NumberName
from cairn.results.table import RESULTS_PATH, Result, read_results, write_results
from tests.lineage.project import build_project, numbers_of, runs


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    # Glob, quote and regular-expression characters in the path: nothing may take them for more than a name.
    folder = tmp_path_factory.mktemp("built") / "we[i]r*d 'q' (x+)$1"
    folder.mkdir()
    root = build_project(folder)
    scores = root / "artifacts/scores/toytown/rootsift-vlad.decon"
    scores.mkdir()
    columns = {"head": ["decon"], "seed": ["0"], "stage": ["global"], "query_id": ["q0"], "value": [0.25]}
    pq.write_table(pa.table(columns), scores / "head_per_query.parquet")
    # A number of that head in the table, as `cairn run` gathers it.
    table = root / RESULTS_PATH
    head = Result(NumberName.parse(f"{HEAD}/global/all/map"), 0.25, 50, 1480)
    write_results(table, [*read_results(table), head])
    return root


@pytest.fixture
def root(built, tmp_path):
    shutil.copytree(built.parent, tmp_path / "home")
    return tmp_path / "home/cairn"


HEAD = "toytown/rootsift-vlad/decon/0"
OF_LOGITS = {"pairs", "mixed_rankings", "diagnostics"}
"""Views that only a second stage of stored logits fills (`ames`)."""


def test_every_view_shows_rows(built):
    for view in VIEWS:
        assert bool(query(built, f"SELECT * FROM {view.name}").rows) != (view.name in OF_LOGITS), view.name


def test_views_of_logits_show_what_a_run_has(built, tmp_path):
    file = built / "artifacts/toytown/rootsift-vlad/reranking/pairs.parquet"
    try:
        pairs = pa.table({"query_id": ["q"], "image_id": ["i"], "logit": pa.array([0.5], pa.float32())})
        pq.write_table(pairs, file)
        answer = query(built, "SELECT benchmark, system, query_id, logit FROM pairs")
        assert answer.rows == [("toytown", "rootsift-vlad", "q", 0.5)]
    finally:
        file.unlink()


OF_RUNS = ("per_query", "head_per_query", "rankings", "rerankings", "pairs", "mixed_rankings", "diagnostics")


@pytest.mark.parametrize("kept", [True, False])
def test_views_show_exactly_the_runs_of_the_results(root, kept):
    """A run, or a head, that left `params.yaml`: its files stay, the table is gathered anew."""
    run = root / "artifacts/toytown/rootsift-vlad"
    scores = root / "artifacts/scores/toytown/rootsift-vlad"
    shutil.copy(scores.with_name("rootsift-vlad.decon") / "head_per_query.parquet", root / "other.parquet")
    other = scores.with_name("rootsift-vlad.standard")
    other.mkdir()
    table = pq.ParquetFile(root / "other.parquet").read()
    at = table.column_names.index("head")
    pq.write_table(table.set_column(at, "head", pa.array(["standard"])), other / "head_per_query.parquet")
    pairs = pa.table({"query_id": ["q"], "image_id": ["i"], "logit": pa.array([0.5], pa.float32())})
    pq.write_table(pairs, run / "reranking/pairs.parquet")
    shutil.copy(run / "reranking/reranked.parquet", scores / "reranked.parquet")
    shutil.copy(scores / "scores.parquet", scores / "diagnostics.parquet")
    place = root / RESULTS_PATH
    if not kept:
        write_results(place, [row for row in read_results(place) if row.name.system != "rootsift-vlad"])
    rebuild_database(root)
    with duckdb.connect(str(root / "results.duckdb"), read_only=True) as connection:
        for view in OF_RUNS:
            sql = f"SELECT DISTINCT benchmark, system FROM {view}"
            found = set(query(root, sql).rows)
            assert found == set(connection.execute(sql).fetchall())
            assert (("toytown", "rootsift-vlad") in found) == kept, view
            assert found <= set(query(root, "SELECT benchmark, system FROM runs").rows)
    heads = query(root, "SELECT DISTINCT head FROM head_per_query").rows
    assert heads == ([("decon",)] if kept else [])  # never `standard`, which the table does not have
    assert set(query(root, "SELECT DISTINCT benchmark, system FROM per_query").rows) == {
        run for run in runs() if kept or run[1] != "rootsift-vlad"
    }


def test_results_are_the_table(built):
    answer = query(built, "SELECT number, synthetic FROM results ORDER BY number")
    assert {row[0] for row in answer.rows} == numbers_of(*runs()) | {f"{HEAD}/global/all/map"}
    assert all(synthetic == number.startswith("toytown/") for number, synthetic in answer.rows)


@pytest.mark.parametrize("view", ["per_query", "rankings", "descriptors", "query_descriptors"])
def test_views_know_their_run(built, view):
    answer = query(built, f"SELECT DISTINCT benchmark, system FROM {view}")
    assert set(answer.rows) == set(runs())


def test_values_of_heads_stand_apart_and_know_their_system(built):
    rows = query(built, "SELECT benchmark, system, head, seed, value FROM head_per_query").rows
    assert rows == [("toytown", "rootsift-vlad", "decon", "0", 0.25)]


def test_descriptors_leave_out_queries_and_can_be_computed_with(built):
    count, product = query(
        built,
        "SELECT count(*), max(array_inner_product(descriptor::FLOAT[2], [0.0, 1.0]::FLOAT[2])) "
        "FROM descriptors WHERE benchmark = 'toytown' AND system = 'rootsift-vlad'",
    ).rows[0]
    assert (count, product) == (6, 1.0)


def test_rerankings_name_their_stage(built):
    assert set(query(built, "SELECT DISTINCT stage FROM rerankings").rows) == {("geometry-k100",)}


def test_manifest_numbers_its_rows(built):
    rows = query(built, "SELECT image_row FROM manifest WHERE benchmark = 'toytown' ORDER BY image_id").rows
    assert rows == [(number,) for number in range(6)]


def test_the_database_opens_read_only_from_anywhere(root, tmp_path, monkeypatch):
    path = rebuild_database(root)
    assert path == root / "results.duckdb"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with duckdb.connect(str(path), read_only=True) as connection:
        for view in VIEWS:
            rows = connection.execute(f"SELECT count(*) FROM {view.name}").fetchone()[0]
            assert bool(rows) != (view.name in OF_LOGITS), view.name
    assert not list(root.glob(".results*"))


def test_rebuilding_does_not_wait_for_a_reader(root):
    rebuild_database(root)
    with duckdb.connect(str(root / "results.duckdb"), read_only=True) as reader:
        rebuild_database(root)
        assert reader.execute("SELECT count(*) FROM results").fetchone()[0] == len(numbers_of(*runs())) + 1


def test_before_any_run_the_views_are_empty(tmp_path):
    for view in VIEWS:
        assert query(tmp_path, f"SELECT * FROM {view.name}").rows == []
    assert "value" in query(tmp_path, "SELECT * FROM results").columns
    rebuild_database(tmp_path)


def test_a_damaged_file_spoils_its_own_view_only_and_says_so(root):
    (root / "artifacts/toytown/rootsift-vlad/ranking/ranking.parquet").write_bytes(b"half a file")
    assert query(root, "SELECT count(*) FROM results").rows
    with pytest.raises(LineageError, match=r"ranking\.parquet"):
        query(root, "SELECT * FROM rankings")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP VIEW results",
        "CREATE TABLE t AS SELECT 1",
        "INSERT INTO results VALUES (1)",
        "UPDATE results SET value = 1",
        "DELETE FROM results",
        "COPY (SELECT 1) TO '{out}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "EXPLAIN/*select*/ANALYZE COPY (SELECT 1) TO '{out}'",
        "ATTACH '{out}' AS other",
        "EXPORT DATABASE '{out}'",
        "INSTALL httpfs",
        "SET threads = 1",
        "PRAGMA enable_profiling",
        "SELECT 1; COPY (SELECT 1) TO '{out}'",
        "WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1",
        "WITH x AS MATERIALIZED (COPY (SELECT 1) TO '{out}') FROM x",
        "WITH a AS (SELECT 1), x AS (COPY (SELECT 1) TO '{out}') FROM a",
        "SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1)",
        "EXPLAIN WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1",
        "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1",
        "WITH x AS (COPY (SELECT 1) TO '{out}') PIVOT results ON slice USING max(value)",
        "WITH x AS (INSERT INTO results VALUES (1) RETURNING *) FROM x",
        "WITH x AS (DELETE FROM results RETURNING *) FROM x",
        "WITH x AS (UPDATE results SET value = 1 RETURNING *) FROM x",
        "FROM query('WITH x AS (COPY (SELECT 1) TO ''{out}'') SELECT 1')",
        "FROM enable_logging('QueryLog', storage = 'file', storage_config = {{'path': '{out}'}})",
        "LOAD httpfs",
        "CALL checkpoint()",
        "FROM read_csv('/etc/passwd')",
        "FROM read_text('cairn://project/params.yaml')",
        "FROM read_text('cairn://project/artifacts/../params.yaml')",
        "PREPARE p AS SELECT 1",
        "",
        "-- nothing",
    ],
)
def test_writes_are_refused_on_one_line(built, tmp_path, statement):
    out = tmp_path / "out"
    with pytest.raises(LineageError) as caught:
        query(built, statement.format(out=out))
    assert "\n" not in str(caught.value)
    assert not out.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{out}'",
        "WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1",
        "ATTACH '{out}' AS other",
        "EXPORT DATABASE '{out}'",
    ],
)
@pytest.mark.parametrize("place", ["{root}", "cairn://project"])
def test_the_connection_itself_cannot_write(root, statement, place):
    """Whatever the check of the text lets through: not even into the folder that the views read."""
    before = {file: file.stat().st_mtime_ns for file in root.parent.rglob("*")}
    out = f"{place.format(root=str(root).replace(chr(39), chr(39) * 2))}/artifacts/results/out"
    with open_database(root) as connection:
        with pytest.raises(duckdb.Error):
            connection.execute(statement.format(out=out))
        if "COPY" in statement:
            with pytest.raises(duckdb.Error):
                connection.execute(statement.format(out=f"{out.removesuffix('out')}results.parquet"))
        for setting in ("enable_external_access = true", "lock_configuration = false", "threads = 1"):
            with pytest.raises(duckdb.Error, match=r"locked|while database is running"):
                connection.execute(f"SET {setting}")
    assert {file: file.stat().st_mtime_ns for file in root.parent.rglob("*")} == before


def test_what_is_refused_is_named(built):
    for name, statement in {
        "COPY": "WITH x AS (COPY (SELECT 1) TO 'x.csv') SELECT 1",
        "INSERT": "WITH x AS (INSERT INTO results VALUES (1) RETURNING *) FROM x",
        "SET": "SET threads = 1",
    }.items():
        with pytest.raises(LineageError, match=f"SQL: {name} is refused; `cairn sql` only reads"):
            query(built, statement)
    with pytest.raises(LineageError, match="only reads, and only the views"):
        query(built, "FROM read_csv('/etc/passwd')")


@pytest.mark.parametrize("statement", ['SELECT 1 AS "\x1b[2J" FROM nowhere', "SELECT error('\x1b[2Jx\x07')"])
def test_errors_hold_no_control_characters(built, statement):
    with pytest.raises(LineageError) as caught:
        query(built, statement)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "FROM results",
        "WITH a AS (SELECT 1) FROM a",
        "SHOW TABLES",
        "DESCRIBE results",
        "SUMMARIZE results",
        "EXPLAIN SELECT * FROM results",
        "PIVOT (FROM results) ON slice USING max(value) GROUP BY system",
        "VALUES (1);",
    ],
)
def test_reading_in_every_form_works(built, statement):
    assert query(built, statement).rows


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT nope FROM results", "FROM nowhere", "SELECT 1/"])
def test_an_sql_error_is_one_line(built, statement):
    with pytest.raises(LineageError) as caught:
        query(built, statement)
    assert str(caught.value).startswith("SQL: ")
    assert "\n" not in str(caught.value)
