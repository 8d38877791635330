"""The graph as tables: what SQL answers is what the graph knows."""

import json

import duckdb
import pytest
import yaml

from cairn.errors import LineageError
from cairn.lineage.graph import load_graph, load_numbers
from cairn.lineage.tables import COLUMNS, lineage_tables
from cairn.results.database import query, rebuild_database
from tests.lineage.project import numbers_of, runs

TOY, TINY, PLACES = ("toytown", "rootsift-vlad"), ("toytown", "tiny-histogram"), ("places", "rootsift-vlad")
RERANKED = "geometry-k100"


def numbers(root, where: str) -> set[str]:
    return {row[0] for row in query(root, f"SELECT DISTINCT number FROM lineage {where}").rows}


def test_every_table_has_rows_of_its_columns(built):
    tables = lineage_tables(built / "cairn")
    assert [table.name for table in tables] == list(COLUMNS)
    for table in tables:
        assert table.rows, table.name
        assert {len(row) for row in table.rows} == {len(table.names)}


def test_lineage_is_the_way_back_of_every_number(built):
    root = built / "cairn"
    graph = load_graph(root)
    rows = query(root, "SELECT number, artifact FROM lineage").rows
    assert len(rows) == len(set(rows))
    for result in load_numbers(root):
        assert {artifact for number, artifact in rows if number == str(result.name)} == set(
            graph.way_back(result)
        )


def test_every_number_that_depends_on_this_archive(built):
    root = built / "cairn"
    using = "JOIN sources USING (artifact) WHERE location = "
    # places borrows toytown's training images.
    assert numbers(root, f"{using}'images.tar'") == numbers_of(*runs())
    assert numbers(root, f"{using}'../brought/images'") == numbers_of(PLACES)
    digest = json.loads((root / "artifacts/toytown/sources/sources.json").read_text())["sources"][0]["sha256"]
    assert numbers(root, f"JOIN sources USING (artifact) WHERE sha256 = '{digest}'") == numbers_of(*runs())


def test_every_number_computed_by_this_version_of_a_file(built):
    root = built / "cairn"
    ((digest,),) = query(root, "SELECT DISTINCT sha256 FROM code WHERE file = 'cairn/reranking.py'").rows
    found = numbers(
        root, f"JOIN code USING (artifact) WHERE file = 'cairn/reranking.py' AND sha256 = '{digest}'"
    )
    assert found == numbers_of((*TOY, RERANKED), (*PLACES, RERANKED))
    assert not numbers(root, "JOIN code USING (artifact) WHERE file = 'cairn/reranking.py' AND sha256 = 'x'")


def test_what_differs_between_two_numbers(built):
    one, other = (f"toytown/rootsift-vlad/-/-/{stage}/hard/map" for stage in ("global", RERANKED))
    answer = query(
        built / "cairn",
        f"""SELECT artifact FROM lineage WHERE number = '{other}'
        EXCEPT SELECT artifact FROM lineage WHERE number = '{one}' ORDER BY 1""",
    )
    base = "artifacts/toytown/rootsift-vlad"
    assert answer.rows == [(f"{base}/local",), (f"{base}/reranking",)]


def test_edges_say_whether_the_input_is_still_what_was_consumed(project):
    assert query(project, "SELECT count(*) FROM edges WHERE NOT current").rows == [(0,)]
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for item in lock["stages"]["ranking@toytown-rootsift-vlad"]["deps"]:
        if item["path"].endswith("descriptors"):
            item["md5"] = "a" * 32 + ".dir"
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    rows = query(project, "SELECT artifact, made_by FROM edges WHERE NOT current").rows
    assert rows == [
        ("artifacts/toytown/rootsift-vlad/ranking", "artifacts/toytown/rootsift-vlad/descriptors"),
    ]


@pytest.mark.parametrize(
    ("entry", "status", "says"),
    [
        ({"name": "hearsay", "url": "https://example.org/hearsay"}, "unpinned", "no checksum"),
        (
            {
                "name": "remembered",
                "url": "https://example.org/remembered",
                "sha256": "a" * 64,
                "verified": False,
                "checked_by": "first fetch",
            },
            "unverified",
            "first fetch",
        ),
    ],
)
def test_numbers_on_an_unpinned_or_unverified_source_say_so_everywhere(project, entry, status, says):
    from cairn.lineage import trace, verify

    listed = project / "artifacts/places/sources/sources.json"
    content = json.loads(listed.read_text())
    content["sources"].append(entry)
    listed.write_text(json.dumps(content))
    rows = query(project, "SELECT number FROM results WHERE unpinned_sources > 0").rows
    assert {row[0] for row in rows} == numbers_of(PLACES)
    ((found, problem),) = query(project, "SELECT status, problem FROM sources WHERE status <> 'pinned'").rows
    assert found == status and says in problem
    (source,) = trace(project, "places/rootsift-vlad/global").unverified
    assert (source.location, source.status) == (entry["url"], status)
    assert any(f"{entry['url']} of artifacts/places/sources is {status}" in n for n in verify(project).notes)


def test_a_run_says_that_its_numbers_rest_on_an_unpinned_source(project):
    import io

    from rich.console import Console

    from pipelines.commands.run import say_unpinned

    def said() -> str:
        console = Console(file=io.StringIO(), width=200)
        say_unpinned(project, load_numbers(project), console)
        return console.file.getvalue()

    assert said() == ""
    listed = project / "artifacts/places/sources/sources.json"
    content = json.loads(listed.read_text())
    content["sources"].append({"name": "hearsay", "url": "https://example.org/hearsay"})
    listed.write_text(json.dumps(content))
    assert said().startswith(f"Unpinned sources: {len(numbers_of(PLACES))} of these numbers rest on a source")


def test_a_source_says_when_it_was_retrieved_where_that_is_remembered(project):
    downloads = project / ".cairn/downloads/places"
    downloads.mkdir(parents=True)
    url = "https://example.org/archive.tar"
    remembered = {"archive.tar": {"url": url, "sha256": "b" * 64, "mtime_ns": 1_700_000_000_000_000_000}}
    (downloads / "fetched.json").write_text(json.dumps(remembered))
    listed = project / "artifacts/places/sources/sources.json"
    content = json.loads(listed.read_text())
    entry = {"name": "a", "url": url, "path": ".cairn/downloads/places/archive.tar", "sha256": "b" * 64}
    listed.write_text(json.dumps({"sources": [*content["sources"], entry]}))
    rows = query(project, f"SELECT retrieved FROM sources WHERE location = '{url}'").rows
    assert rows == [("2023-11-14",)]


def test_the_file_of_a_source_with_an_address_is_looked_for_where_its_path_says(project):
    from cairn.lineage.sources import local_file, sources_of

    (project / "archive").mkdir()
    (project / "archive/images.tgz").write_bytes(b"x")
    listed = project / "artifacts/places/sources/sources.json"
    entry = {
        "name": "a",
        "url": "https://example.org/1.tgz",
        "path": "archive/images.tgz",
        "sha256": "b" * 64,
    }
    listed.write_text(json.dumps({"sources": [entry]}))
    graph = load_graph(project)
    artifact = "artifacts/places/sources"
    source = next(s for s in sources_of(graph, graph.producer[artifact], artifact) if s.name == "a")
    assert local_file(project, artifact, source) == project / "archive/images.tgz"


def test_a_damaged_lock_spoils_the_lineage_only_and_says_so(project):
    (project / "dvc.lock").write_text("stages: [")
    assert query(project, "SELECT count(*) FROM results").rows == [(11,)]
    assert query(project, "SELECT DISTINCT unpinned_sources FROM results").rows == [(None,)]
    with pytest.raises(LineageError, match=r"lineage cannot be read.*not valid YAML"):
        query(project, "FROM artifacts")


def test_before_any_run_the_tables_are_empty(tmp_path):
    for name in COLUMNS:
        assert query(tmp_path, f"FROM {name}").rows == []


def test_the_database_file_holds_the_tables(project, tmp_path, monkeypatch):
    path = rebuild_database(project)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect(str(path), read_only=True) as connection:
        for name in COLUMNS:
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] > 0
        joined = "SELECT count(DISTINCT number) FROM results JOIN lineage USING (number) JOIN params USING (artifact)"
        assert connection.execute(joined).fetchone() == (11,)
