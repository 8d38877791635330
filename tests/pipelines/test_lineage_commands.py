"""`cairn trace`, `cairn verify` and `cairn sql` as they are typed."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lineage.project import build_project, numbers_of, runs

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    build_project(folder)
    return folder


@pytest.fixture
def project(built, tmp_path):
    shutil.copytree(built, tmp_path / "home")
    return tmp_path / "home/cairn"


def cairn(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "100", "CAIRN_PROGRESS": "0"}
    return subprocess.run(
        [sys.executable, "-m", "pipelines", *arguments],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_trace_prints_a_tree_and_json(project):
    shown = cairn(project / "artifacts/toytown", "trace", "toytown/rootsift-vlad/hard/map")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("toytown/rootsift-vlad/-/-/global/hard/map = ")
    assert "source toytown-generator" in shown.stdout
    record = json.loads(cairn(project, "trace", "toytown/rootsift-vlad/hard/map", "--json").stdout)
    assert record["number"] == "toytown/rootsift-vlad/-/-/global/hard/map"
    assert len(record["sources"]) == 1


@pytest.mark.parametrize("command", ["trace", "verify"])
def test_an_unknown_and_an_ambiguous_number(project, command):
    unknown = cairn(project, command, "nowhere")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("error: no number is called 'nowhere'")
    assert len(unknown.stderr.splitlines()) == 1
    ambiguous = cairn(project, command, "toytown/rootsift-vlad", *(["--json"] if command == "trace" else []))
    assert (ambiguous.returncode, ambiguous.stdout) == (1, "")
    assert len(ambiguous.stderr.splitlines()) == 7


def test_verify_passes_then_fails_on_one_flipped_byte(project):
    passed = cairn(project, "verify")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "verified" in passed.stdout
    assert "note: the project is not a git repository" in passed.stdout
    assert cairn(project, "verify", "--strict").returncode == 1

    shard = "artifacts/toytown/rootsift-vlad/descriptors/0001.parquet"
    data = bytearray((project / shard).read_bytes())
    data[50] ^= 1
    (project / shard).write_bytes(bytes(data))
    failed = cairn(project, "verify")
    assert failed.returncode == 1
    assert f"{shard} differs" in failed.stdout
    record = cairn(project, "verify", "--json")
    assert record.returncode == 1
    found = json.loads(record.stdout)
    assert [finding["file"] for finding in found["findings"]] == [shard]
    assert set(found["tainted"]) == numbers_of(("toytown", "rootsift-vlad"))
    assert cairn(project, "verify", "toytown/tiny/hard").returncode == 0


def test_a_tampered_lock_is_one_line(project):
    (project / "dvc.lock").write_text("{schema: '2.0', stages: {a: {outs: [{path: ../../etc/passwd}]}}}")
    for command in (("verify",), ("trace", "toytown/tiny/hard")):
        done = cairn(project, *command)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.splitlines()) == 1
        assert "outside the project" in done.stderr
    (project / "dvc.lock").unlink()
    assert "cairn run" in cairn(project, "verify").stderr


def test_sql_as_table_json_and_csv(project):
    statement = "SELECT number, value, synthetic FROM results ORDER BY number"
    table = cairn(project, "sql", statement)
    assert table.returncode == 0, table.stderr
    assert "rootsift-vlad" in table.stdout
    assert "11 rows" in table.stderr
    records = json.loads(cairn(project, "sql", statement, "--json").stdout)
    assert {record["number"] for record in records} == numbers_of(*runs())
    rows = list(csv.DictReader(io.StringIO(cairn(project, "sql", statement, "--csv").stdout)))
    assert [float(row["value"]) for row in rows] == [record["value"] for record in records]
    assert cairn(project, "sql", statement, "--csv", "--json").returncode == 2


def test_sql_refuses_writes_and_explains_errors_on_one_line(project):
    for statement in ("DROP VIEW results", "SELECT nope FROM results", "SELEC"):
        done = cairn(project, "sql", statement)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: SQL: ")
        assert len(done.stderr.splitlines()) == 1


def test_sql_prints_json_that_json_can_hold(project):
    done = cairn(
        project,
        "sql",
        "SELECT 'nan'::DOUBLE AS a, DATE '2020-01-02' AS b, [1.5] AS c, 'x'::BLOB AS d",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"a": None, "b": "2020-01-02", "c": [1.5], "d": "78"}]


def test_sql_writes_no_file_from_inside_a_cte(project, tmp_path):
    out = tmp_path / "x.csv"
    done = cairn(project, "sql", f"WITH x AS (COPY (SELECT 1) TO '{out}') SELECT 1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: SQL: COPY is refused; `cairn sql` only reads")
    assert len(done.stderr.splitlines()) == 1
    assert not out.exists()


def test_sql_prints_no_control_characters(project):
    escape = "chr(27) || '[2J' || chr(7)"
    shown = cairn(project, "sql", f'SELECT {escape} AS "a\x1b[1mb", [{escape}] AS list')
    assert shown.returncode == 0, shown.stderr
    assert "\\x1b[2J" in shown.stdout
    failed = [
        cairn(project, "sql", statement)
        for statement in (f"SELECT error({escape})", 'SELECT 1 FROM "a\x1b[2Jb"', "SELEC\x1b[2J")
    ]
    assert all(done.returncode == 1 and len(done.stderr.splitlines()) == 1 for done in failed)
    for text in (shown.stdout, shown.stderr, *(done.stderr for done in failed)):
        assert all(c.isprintable() or c == "\n" for c in text)


def test_sql_json_needs_names_that_differ(project):
    done = cairn(project, "sql", "SELECT 1 AS a, 2 AS a", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --json: more than one column is called 'a'; name them apart (`… AS name`)\n"
    assert cairn(project, "sql", "SELECT 1 AS a, 2 AS a", "--csv").stdout == "a,a\n1,2\n"


def test_sql_on_a_narrow_terminal_prints_rows_as_lines():
    from rich.console import Console

    from pipelines.commands.sql import print_table

    columns, rows = (
        ("number", "value"),
        [("toytown/rootsift-vlad/-/-/geometry-k100/hard/map", 0.5), ("b", None)],
    )

    def printed(width: int, terminal: bool) -> list[str]:
        console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
        print_table(columns, rows, console)
        return [line.rstrip() for line in console.file.getvalue().splitlines()]

    narrow = printed(30, True)
    assert narrow == [
        "row 1",
        f"  number  {rows[0][0]}",
        "  value   0.5",
        "row 2",
        "  number  b",
        "  value   NULL",
    ]
    wide = printed(100, True)
    assert len(wide) == 4 and rows[0][0] in wide[2]
    # What goes into a pipe is never cut or folded.
    assert any(rows[0][0] in line and "0.5" in line for line in printed(30, False))
    columns, rows = [f"column{n}" for n in range(12)], [("a value as wide as this",) * 12]
    assert printed(30, False)[2].count(rows[0][0]) == 12
    assert printed(sum(map(len, rows[0])) + 3 * 11, True)[2].count(rows[0][0]) == 12


@pytest.mark.parametrize("terminal", [True, False])
def test_sql_cuts_nothing_at_any_width_and_aligns_decimals(terminal):
    from rich.console import Console

    from pipelines.commands.sql import print_table

    columns, rows = ("name", "gain", "queries"), [("a" * 20, -12.0, 3), ("b", -11.1, 50), ("c", None, 7)]
    for width in range(10, 60):
        console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
        print_table(columns, rows, console)
        text = console.file.getvalue()
        assert "…" not in text and "queries" in text and "-12.0" in text and "NULL" in text, width


def test_trace_says_which_stage_it_took(project):
    shown = cairn(project, "trace", "toytown/rootsift-vlad/hard/map")
    assert "names no stage: this is the first one (global); there is also" in " ".join(shown.stdout.split())
    named = cairn(project, "trace", "toytown/rootsift-vlad/global/hard/map", "--json")
    assert not any("names no stage" in note for note in json.loads(named.stdout)["notes"])


def test_trace_against_another_number_and_wrong_usage(project):
    one, other = "toytown/rootsift-vlad/global/hard", "toytown/rootsift-vlad/geometry/hard"
    shown = cairn(project, "trace", one, "--against", other)
    assert shown.returncode == 0, shown.stderr
    assert "reranking  only second" in shown.stdout
    record = json.loads(cairn(project, "trace", one, "--against", other, "--json").stdout)
    assert [item["kind"] for item in record["differences"]] == ["step"]
    for arguments, code in (((), 2), (("--against", other), 2), ((one, "--against-revision", "HEAD"), 1)):
        done = cairn(project, "trace", *arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert len(done.stderr.splitlines()) == 1
