"""A real small run with the default profile's systems: SQL, mutations, a DVC remote, readers during a run."""

import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest

from cairn.lineage.graph import load_graph, load_numbers
from cairn.results.database import query, rebuild_database
from cairn.results.table import read_results
from tests.pipelines.project import REPOSITORY, Project

DOCS = (REPOSITORY / "docs/sql.md").read_text("utf-8")
QUERIES = dict(re.findall(r"^## (\d+)\..*?```sql\n(.*?)```", DOCS, re.M | re.S))
RUN = ("toytown", "rootsift-vlad")
BASE = "artifacts/toytown/rootsift-vlad"


@pytest.fixture(scope="module")
def both(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project with both systems of the default profile, committed. Do not change it: copy it."""
    project = made.copy(tmp_path_factory.mktemp("both") / "project")
    parameters = project.parameters()
    parameters["systems"]["colour-histogram"] = {"encoder": "colour-histogram", "rerank": {"method": "none"}}
    run = {"benchmark": "toytown", "system": "colour-histogram"}
    parameters["runs"]["toytown-colour-histogram"] = run
    project.write_parameters(parameters)
    project.cairn("run")
    commit(project)
    return project


@pytest.fixture
def copied(both: Project, tmp_path: Path) -> Project:
    """A copy that a test may change."""
    return both.copy(tmp_path / "project")


def commit(project: Project) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["add", "-A"], [*identity, "commit", "-qm", "a run"]):
        subprocess.run(["git", *command], cwd=project.root, check=True)


# --- docs/sql.md: the queries of the page, against the same computed in Python -------------------------------------


def asked(project: Project, which: int) -> list[dict]:
    answer = query(project.root, QUERIES[str(which)])
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def per_query(project: Project) -> dict[tuple[str, str, str], dict[str, float]]:
    """(system, stage, slice) → query → average precision."""
    values: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    import pyarrow.parquet as pq

    for system in ("rootsift-vlad", "colour-histogram"):
        file = project.root / f"artifacts/scores/toytown/{system}/per_query.parquet"
        for row in pq.ParquetFile(file).read().to_pylist():
            if row["metric"] == "map":
                values[(system, row["stage"], row["slice"])][row["query_id"]] = row["value"]
    return values


def stage_of(values) -> str:
    return next(stage for _, stage, _ in values if stage != "global")


def test_the_page_has_ten_queries():
    assert sorted(map(int, QUERIES)) == list(range(1, 11))


def test_1_the_best_system(both):
    rows = read_results(both.root / "artifacts/results/results.parquet")
    hard = [row for row in rows if (row.name.metric, row.name.slice) == ("map", "hard")]
    best = min(hard, key=lambda row: (-row.value, str(row.name)))
    (found,) = asked(both, 1)
    assert (found["system"], found["stage"]) == (best.name.system, best.name.stage)
    assert found["map"] == round(100 * best.value, 1)


def test_2_the_gain_of_reranking_with_interval(both):
    import statistics

    values = per_query(both)
    stage = stage_of(values)
    found = {row["slice"]: row for row in asked(both, 2)}
    assert set(found) == {"easy", "medium", "hard"}
    for piece, row in found.items():
        before, after = values[(RUN[1], "global", piece)], values[(RUN[1], stage, piece)]
        gains = [after[q] - before[q] for q in before if after[q] is not None and before[q] is not None]
        assert row["gain"] == pytest.approx(100 * statistics.fmean(gains), abs=0.051)
        half = 196 * statistics.stdev(gains) / len(gains) ** 0.5
        assert row["half_width"] == pytest.approx(half, abs=0.051)
        assert row["queries"] == len(gains)


def test_2_counts_only_queries_that_have_a_value(copied):
    import pyarrow as pa
    import pyarrow.parquet as pq

    before = {row["slice"]: row["queries"] for row in asked(copied, 2)}
    file = copied.root / "artifacts/scores/toytown/rootsift-vlad/per_query.parquet"
    table = pq.ParquetFile(file).read()
    rows = table.to_pylist()
    first = next(row["query_id"] for row in rows if row["slice"] == "hard" and row["value"] is not None)
    values = [None if row["query_id"] == first else row["value"] for row in rows]
    place = table.schema.get_field_index("value")
    table = table.set_column(place, table.schema.field(place), pa.array(values, pa.float64()))
    file.chmod(0o644)
    pq.write_table(table, file)
    after = {row["slice"]: row["queries"] for row in asked(copied, 2)}
    assert after["hard"] == before["hard"] - 1


def test_3_and_4_regressions_of_single_queries(both):
    values = per_query(both)
    mine, other = values[(RUN[1], "global", "hard")], values[("colour-histogram", "global", "hard")]
    worse = {q for q in mine if mine[q] is not None and mine[q] < other[q]}
    assert {row["query_id"] for row in asked(both, 3)} <= worse
    assert len(asked(both, 3)) == min(10, len(worse))
    after = values[(RUN[1], stage_of(values), "hard")]
    lost = {q for q in mine if mine[q] is not None and after[q] < mine[q]}
    assert {row["query_id"] for row in asked(both, 4)} <= lost
    assert len(asked(both, 4)) == min(10, len(lost))


def test_5_numbers_on_unpinned_sources(copied):
    assert asked(copied, 5) == []
    listed = copied.root / "artifacts/toytown/sources/sources.json"
    content = json.loads(listed.read_text())
    content["sources"].append({"name": "hearsay", "url": "https://example.org/hearsay"})
    listed.write_text(json.dumps(content))
    every = {str(row.name) for row in load_numbers(copied.root)}
    assert {row["number"] for row in asked(copied, 5)} == every


def test_6_and_7_numbers_of_an_archive_and_of_a_file(both):
    every = {str(row.name) for row in load_numbers(both.root)}
    assert {row["number"] for row in asked(both, 6)} == every
    (found,) = asked(both, 7)
    assert found["numbers"] == sum("/rootsift-vlad/" in name for name in every)


def test_8_what_differs_between_two_numbers(both):
    found = {(row["step"], row["name"]): (row["one"], row["two"]) for row in asked(both, 8)}
    assert found[("descriptors", "encoder")] == ("rootsift-vlad", "colour-histogram")
    assert not [key for key in found if key[0] in ("manifest", "ground_truth")]


def test_9_what_was_made_from_something_else(copied):
    assert asked(copied, 9) == []
    file = next((copied.root / "artifacts/code/ranking").glob("*rootsift-vlad.json"))
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "digest": "0" * 64}))
    assert {row["artifact"] for row in asked(copied, 9)} == {f"{BASE}/ranking"}


def test_10_images_that_turn_up_wrongly(both):
    import pyarrow.parquet as pq

    root = both.root
    truth = pq.ParquetFile(root / "artifacts/toytown/ground_truth/relevance.parquet").read().to_pylist()
    judged = {(row["query_id"], row["image_id"]) for row in truth}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for system in ("rootsift-vlad", "colour-histogram"):
        ranked = (
            pq.ParquetFile(root / f"artifacts/toytown/{system}/ranking/ranking.parquet").read().to_pylist()
        )
        for row in ranked:
            if row["rank"] == 0 and (row["query_id"], row["image_id"]) not in judged:
                counts[(system, row["image_id"])] += 1
    expected = {key: count for key, count in counts.items() if count > 1}
    found = {(row["system"], row["image_id"]): row["queries"] for row in asked(both, 10)}
    assert found.items() <= expected.items() and len(found) == min(10, len(expected))


# --- the examples of `--help` -----------------------------------------------------------------------------------------

NEEDS = {  # what an example needs beside the artifacts of the default profile
    "add": "photographs",
    "audit": "published lists",
    "bless": "code that has changed",
    "fetch": "the network",
    "matches": "a pair of images",
    "score": "files of results",
    "tail": "scores",
    "ui": "somebody who looks",
}


def examples() -> list[str]:
    """The commands that stand as an example in a command's help, without those of NEEDS and the hidden ones."""
    from typer.main import get_command

    from pipelines.cli import app

    found = []
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if name not in NEEDS and not command.hidden:
            for one in getattr(command, "commands", {name: command}).values():
                lines = re.findall(r"Example: `?(cairn .+?)`?$", one.help, re.M)
                assert len(lines) == 1, name
                found += lines
    return sorted(found, key=lambda line: line.startswith("cairn check-card"))  # after what it checks


def test_the_examples_of_help_work_after_the_demo(copied):
    pytest.importorskip("rocrate")
    pytest.importorskip("openlineage")
    shown = [shlex.split(line)[1:] for line in examples()]
    assert {"grid", "trace", "status", "verify", "report", "card", "sql"} <= {line[0] for line in shown}
    copied.cairn("card")
    for arguments in shown:
        copied.cairn(*arguments)
    # … and what they leave behind is not for git, so that the tree stays clean.
    left = subprocess.run(
        ["git", "status", "--porcelain"], cwd=copied.root, capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


# --- verification: git, scores, a remote ----------------------------------------------------------------------------


def test_a_committed_run_verifies_strictly_and_scores_are_computed_again(both):
    done = both.cairn("verify", "--strict", "--json", check=False)
    record = json.loads(done.stdout)
    assert (record["findings"], record["notes"], done.returncode) == ([], [], 0)


FORGED = "toytown/rootsift-vlad/-/-/global/hard/map"


def forge(project: Project, **changes) -> None:
    """Change one number in the scores, the table and the metrics, and every hash and size in dvc.lock to fit."""
    from dataclasses import replace

    import yaml

    from cairn.files import dvc_digest
    from cairn.results import write_results
    from cairn.results.table import write_metrics

    root = project.root
    scores = root / "artifacts/scores/toytown/rootsift-vlad/scores.parquet"
    table = root / "artifacts/results/results.parquet"
    write_results(
        scores, [replace(r, **changes) if str(r.name) == FORGED else r for r in read_results(scores)]
    )
    new = dvc_digest(scores.parent)
    rows = [replace(r, **changes) if str(r.name) == FORGED else r for r in read_results(table)]
    rows = [replace(r, source_md5=new) if r.name.system == "rootsift-vlad" else r for r in rows]
    write_results(table, rows)
    write_metrics(table.with_name("metrics.json"), rows, ["toytown"])
    lock = yaml.safe_load((root / "dvc.lock").read_text())
    for stage in lock["stages"].values():
        for item in [*stage.get("deps", []), *stage["outs"]]:
            if item["path"].startswith(("artifacts/scores", "artifacts/results")):
                files = [file for file in (root / item["path"]).rglob("*") if file.is_file()]
                item["md5"] = dvc_digest(root / item["path"])
                item["size"] = sum(file.stat().st_size for file in files)
    (root / "dvc.lock").write_text(yaml.safe_dump(lock))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"value": 0.123456}, f"{FORGED}: its value is 0.123456, its stored ranking gives "),
        (
            {"computed_from": ("artifacts/toytown/ground_truth",)},
            f"{FORGED}: its computed_from is artifacts/toytown/ground_truth, its stored ranking gives "
            "artifacts/toytown/ground_truth, artifacts/toytown/manifest, artifacts/toytown/rootsift-vlad/ranking",
        ),
    ],
)
def test_a_forged_number_is_found_although_every_hash_fits(copied, changes, expected):
    """Changed everywhere where it stands, and in dvc.lock: only scoring again tells."""
    forge(copied, **changes)
    done = copied.cairn("verify", "--json", check=False)
    found = [finding for finding in json.loads(done.stdout)["findings"] if finding["kind"] == "score"]
    assert done.returncode == 1
    first = next(finding for finding in found if finding["artifact"].endswith("scores/toytown/rootsift-vlad"))
    assert first["numbers"] == [FORGED] and first["message"].startswith(expected)
    # The plots' tables were not forged; they are gathered again from the scores that lie there.
    assert {finding["artifact"] for finding in found if finding is not first} <= {"artifacts/results"}
    assert json.loads(copied.cairn("verify", "--hashes-only", "--json").stdout)["findings"] == []


def test_git_blobs_and_files_have_one_digest():
    from pipelines.digests import digest_of, module_digest, user_file_digest

    for path in ("cairn/encoders/vlad.py", "cairn/results/scoring.py", "assets/step.py"):
        assert digest_of(path, (REPOSITORY / path).read_bytes()) == module_digest(REPOSITORY / path)[0]
    data = "cairn/rerank/registry.yaml"
    assert digest_of(data, (REPOSITORY / data).read_bytes()) == user_file_digest(REPOSITORY / data)


def test_push_clone_pull_verify(both, tmp_path):
    remote = tmp_path / "remote"
    here = both.copy(tmp_path / "here")
    here.dvc("remote", "add", "-d", "store", str(remote))
    commit(here)
    here.dvc("push")
    subprocess.run(["git", "clone", "-q", str(here.root), str(tmp_path / "there")], check=True)
    there = Project(tmp_path / "there")
    assert not (there.root / "artifacts").exists()
    there.dvc("pull")
    done = there.cairn("verify", "--strict", "--json", check=False)
    record = json.loads(done.stdout)
    assert (record["findings"], record["notes"], done.returncode) == ([], [], 0)
    # Three numbers, each to its sources; and what is written from them is the same on both sides.
    for name in ("rootsift-vlad/global/hard", "geometry/easy", "colour-histogram/global/medium"):
        traced = json.loads(there.cairn("trace", f"{name}/map", "--json").stdout)
        assert [source["checksums"] for source in traced["sources"]] and not traced["unverified_sources"]
        assert traced == json.loads(here.cairn("trace", f"{name}/map", "--json").stdout)
    there.cairn("card", "--output", "card.json")
    here.cairn("card", "--output", "card.json")
    assert (there.root / "card.json").read_bytes() == (here.root / "card.json").read_bytes()


# --- mutation: flip one thing, compare what is affected with the graph's answer --------------------------------------


def resting_on(project: Project, condition: str) -> set[str]:
    return {row[0] for row in query(project.root, f"SELECT DISTINCT number FROM lineage {condition}").rows}


@pytest.mark.parametrize(
    "artifact",
    [
        "artifacts/toytown/sources",
        "artifacts/toytown/ground_truth",
        f"{BASE}/descriptors",
        f"{BASE}/local",
        f"{BASE}/reranking",
        "artifacts/toytown/colour-histogram/ranking",
        "artifacts/toytown/colour-histogram/local",
        "artifacts/scores/toytown/colour-histogram",
    ],
)
def test_a_flipped_byte_of_an_artifact_taints_what_rests_on_it(copied, artifact):
    """Verified by the library itself: the command starts a process per case."""
    from cairn.lineage import verify

    expected = resting_on(copied, f"WHERE artifact = '{artifact}'")
    file = max(
        (f for f in (copied.root / artifact).rglob("*") if f.is_file()), key=lambda f: f.stat().st_size
    )
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(bytes(data))
    assert set(verify(copied.root).tainted) == expected


@pytest.mark.parametrize("module", ["cairn/encoders/vlad.py", "cairn/rerank/geometry.py"])
def test_changed_code_makes_stale_what_it_computed(copied, module):
    expected = resting_on(copied, f"JOIN code USING (artifact) WHERE file = '{module}'")
    file = copied.root / module
    file.write_text(file.read_text("utf-8") + "\n\nCHANGED = 1\n", "utf-8")
    assert stale_numbers(copied) == expected


def test_a_changed_parameter_makes_stale_what_it_decides(copied):
    expected = resting_on(
        copied, "JOIN params USING (artifact) WHERE name = 'rerank.shortlist' AND value = '8'"
    )
    parameters = copied.parameters()
    parameters["systems"]["rootsift-vlad"]["rerank"]["shortlist"] = 7
    copied.write_parameters(parameters)
    assert stale_numbers(copied) == expected


def stale_numbers(project: Project) -> set[str]:
    """The numbers under which something is stale, by what `cairn status` says (that is, DVC)."""
    report = json.loads(project.cairn("status", "--json", check=False).stdout)
    from cairn.parameters import load_parameters
    from pipelines.graph import build_graph

    nodes = build_graph(load_parameters(project.root / "params.yaml")).values()
    stale = {node.output for node in nodes if "/".join(node.asset) in report["stale"]}
    assert stale
    graph = load_graph(project.root)
    return {str(row.name) for row in load_numbers(project.root) if stale & set(graph.way_back(row))}


# --- readers while a run is going on ----------------------------------------------------------------------------------


READER = """
import json, sys, time, duckdb, pathlib
answers, errors = 0, []
while not pathlib.Path(sys.argv[2]).exists():
    try:
        with duckdb.connect(sys.argv[1], read_only=True) as connection:
            for table in ("per_query", "lineage"):
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        answers += 1
    except duckdb.Error as error:
        errors.append(str(error))
    time.sleep(0.2)
print(json.dumps([answers, errors]))
"""


def test_the_database_opens_read_only_while_a_run_is_going_on(copied, tmp_path):
    rebuild_database(copied.root)  # its views name the place it was copied from
    parameters = copied.parameters()
    parameters["systems"]["rootsift-vlad"]["rerank"]["shortlist"] = 6
    copied.write_parameters(parameters)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stop = tmp_path / "stop"
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(copied.root / "results.duckdb"), str(stop)],
        cwd=elsewhere,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        copied.cairn("run")
    finally:
        stop.touch()
        answers, errors = json.loads(reader.communicate(timeout=60)[0])
    assert answers >= 2
    # A view whose files DVC is replacing this moment may say so; that the database is locked nobody may.
    assert all("No files found" in error or "Cannot open file" in error for error in errors), errors
    with duckdb.connect(str(copied.root / "results.duckdb"), read_only=True) as connection:
        stages = {row[0] for row in connection.execute("SELECT DISTINCT stage FROM results").fetchall()}
    assert "geometry-k6" in stages
