"""Every column of the results and the scores edited, all hashes in `dvc.lock` forged to fit: each edit is found."""

import json
import shutil
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cairn.files import dvc_digest
from cairn.lineage import verify
from cairn.lineage.verifying import Verification
from cairn.results import read_results, write_results
from cairn.results.names import FIELDS
from cairn.results.table import COLUMNS, Result
from tests.lineage.project import numbers_of, runs

TABLE = "artifacts/results/results.parquet"
TOY = "artifacts/scores/toytown/rootsift-vlad"
RERANKING = "artifacts/toytown/rootsift-vlad/reranking"
EDITS = {
    "benchmark": "places",
    "system": "tiny-histogram",
    "head": "decon",
    "seed": "0",
    "stage": "global-asmk",
    "slice": "all",
    "metric": "mp@1",
    "value": 0.123456,
    "unit": "score",
    "low": 0.2,
    "high": None,
    "n_queries": 51,
    "gallery_size": 1481,
    "source_artifact": "artifacts/scores/toytown/tiny-histogram",
    "source_md5": "0" * 32 + ".dir",
    "computed_from": (),
}


def forge(project) -> None:
    """Record in `dvc.lock`, for every artifact that lies here, the hash and the sizes that it has now."""
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for stage in lock["stages"].values():
        for item in [*stage.get("deps", []), *stage["outs"]]:
            files = [file for file in (project / item["path"]).rglob("*") if file.is_file()]
            if files:
                size = sum(file.stat().st_size for file in files)
                item.update(md5=dvc_digest(project / item["path"]), size=size, nfiles=len(files))
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))


def change(row: Result, column: str, value: object) -> Result:
    if column in FIELDS:
        return replace(row, name=replace(row.name, **{column: value}))
    return replace(row, **{column: value})


def rewrite(path, number: str, column: str, value: object) -> None:
    write_results(
        path, [change(row, column, value) if str(row.name) == number else row for row in read_results(path)]
    )


@pytest.fixture
def rescore(built):
    """What scoring again gives: the artifact as it was made. The table is gathered from what lies there."""

    def again(root, stage, folder):
        lock = yaml.safe_load((built / "cairn/dvc.lock").read_text())["stages"]
        shutil.copytree(built / "cairn" / lock[stage]["outs"][0]["path"], folder, dirs_exist_ok=True)

    return again


def messages(verification: Verification) -> str:
    return "\n".join(finding.message for finding in verification.findings)


NUMBER = "toytown/rootsift-vlad/-/-/geometry-k100/hard/map"


def test_every_column_has_an_edit():
    assert set(EDITS) == {name for name, _, _ in COLUMNS}


@pytest.mark.parametrize(("column", "value"), EDITS.items())
def test_an_edited_column_of_the_table_is_found_by_hashes_alone(project, column, value):
    before = read_results(project / TABLE)
    rewrite(project / TABLE, NUMBER, column, value)
    forge(project)
    verification = verify(project)
    assert verification.findings
    (row,) = [row for row in read_results(project / TABLE) if row not in before]
    assert str(row.name) in verification.tainted
    text = messages(verification)
    if column in ("benchmark", "system", "head"):
        assert f"{row.name} is said to be read from '{TOY}', expected artifacts/scores/" in text
    elif column in ("seed", "stage", "slice", "metric"):
        assert f"{row.name} stands in {TABLE}, {TOY} has no such number" in text
        assert f"{TABLE} lacks {NUMBER}, expected from {TOY}" in text
    elif column == "source_artifact":
        assert f"{NUMBER} is said to be read from '{value}', expected {TOY}" in text
    elif column == "source_md5":
        assert f"the results table was made from another version of {TOY}" in text
    else:
        assert f"{NUMBER}: its {column} is {value} in {TABLE}, expected " in text
        assert text.endswith(f"({TOY})")


@pytest.mark.parametrize(
    "path", ["artifacts/scores", f"{TOY}/scores.parquet", "artifacts/toytown/ground_truth", "x"]
)
def test_a_source_that_is_no_scores_artifact_of_the_run_is_found(project, path):
    rewrite(project / TABLE, NUMBER, "source_artifact", path)
    forge(project)
    assert NUMBER in verify(project).tainted


@pytest.mark.parametrize("column", [name for name in EDITS if not name.startswith("source_")])
def test_a_column_edited_in_scores_and_table_is_found_by_scoring_again(project, rescore, column):
    value, before = EDITS[column], read_results(project / TABLE)
    for path in (project / TABLE, project / TOY / "scores.parquet"):
        rewrite(path, NUMBER, column, value)
    digest = dvc_digest(project / TOY)
    rows = read_results(project / TABLE)
    write_results(
        project / TABLE,
        [replace(row, source_md5=digest) if row.source_artifact == TOY else row for row in rows],
    )
    forge(project)
    (changed,) = [row for row in rows if row not in before]
    found = verify(project, rescore=rescore)
    assert str(changed.name) in found.tainted
    if column not in ("benchmark", "system", "head", "seed", "stage", "slice", "metric"):
        assert found.tainted == (NUMBER,)
        assert f"{NUMBER}: its {column} is " in messages(found)


def test_what_a_number_was_computed_from_is_what_its_stage_says(project, rescore):
    """Without its re-ranking, the number would rest on files that nobody compared."""
    for path in (project / TABLE, project / TOY / "scores.parquet"):
        rewrite(path, NUMBER, "computed_from", ("artifacts/toytown/ground_truth",))
    rows = read_results(project / TABLE)
    digest = dvc_digest(project / TOY)
    write_results(
        project / TABLE,
        [replace(row, source_md5=digest) if row.source_artifact == TOY else row for row in rows],
    )
    forge(project)
    (finding,) = verify(project, rescore=rescore).findings
    assert (finding.kind, finding.artifact, finding.numbers) == ("score", TOY, (NUMBER,))
    assert finding.message == (
        f"{NUMBER}: its computed_from is artifacts/toytown/ground_truth, its stored ranking gives "
        f"artifacts/toytown/ground_truth, {RERANKING}"
    )


def test_an_input_that_the_stage_did_not_use_is_found(project):
    for path in (project / TABLE, project / TOY / "scores.parquet"):
        rewrite(path, NUMBER, "computed_from", ("artifacts/toytown/ground_truth", "artifacts/elsewhere"))
    forge(project)
    found = [finding for finding in verify(project).findings if "elsewhere" in finding.message]
    assert [(finding.kind, finding.numbers) for finding in found] == [("row", (NUMBER,))]
    assert "expected an input of scores@toytown-rootsift-vlad" in found[0].message


@pytest.mark.parametrize("whole_run", [False, True])
def test_rows_left_out_of_the_table_are_found(project, whole_run):
    rows = read_results(project / TABLE)
    kept = [row for row in rows if row.source_artifact != TOY] if whole_run else rows[:-1]
    write_results(project / TABLE, kept)
    forge(project)
    lacking = {str(row.name) for row in rows} - {str(row.name) for row in kept}
    (finding,) = [finding for finding in verify(project).findings if finding.kind == "row"]
    assert set(finding.numbers) == lacking
    assert f"{TABLE} lacks {min(lacking)}" in finding.message


@pytest.mark.parametrize("column", ["query_id", "stage", "value"])
def test_edited_values_of_single_queries_are_found_by_scoring_again(project, rescore, column):
    path = project / TOY / "per_query.parquet"
    table = pq.ParquetFile(path).read()
    other = pa.array([0.75] if column == "value" else ["other"])
    pq.write_table(table.set_column(table.column_names.index(column), column, other), path)
    digest = dvc_digest(project / TOY)
    rows = read_results(project / TABLE)
    write_results(
        project / TABLE,
        [replace(row, source_md5=digest) if row.source_artifact == TOY else row for row in rows],
    )
    forge(project)
    (finding,) = verify(project, rescore=rescore).findings
    assert finding.file == f"{TOY}/per_query.parquet"
    assert f"{TOY}/per_query.parquet: [0].{column} is {other[0].as_py()!r}, made again " in finding.message
    assert set(finding.numbers) == numbers_of(("toytown", "rootsift-vlad"))


@pytest.mark.parametrize("edit", ["value", "file gone", "file added"])
def test_edited_metrics_are_found_by_gathering_again(project, rescore, edit):
    path = project / "artifacts/results/metrics.json"
    if edit == "value":
        metrics = json.loads(path.read_text())
        metrics["places"]["rootsift-vlad"]["global"]["all"]["map"] = 0.5
        path.write_text(json.dumps(metrics))
    elif edit == "file gone":
        path.unlink()
    else:
        (path.parent / "more.json").write_text("{}")
    forge(project)
    (finding,) = verify(project, rescore=rescore).findings
    said = {
        "value": "metrics.json: places.rootsift-vlad.global.all.map is 0.5, made again ",
        "file gone": "metrics.json: missing; its step makes it",
        "file added": "more.json: its step makes no such file",
    }[edit]
    assert said in finding.message
    assert set(finding.numbers) == numbers_of(*runs())


def test_another_picture_is_a_note_and_equal_values_in_other_bytes_are_nothing(project, built, rescore):
    def drawn(root, stage, folder):
        rescore(root, stage, folder)
        if stage == "scores@places-rootsift-vlad":
            (folder / "gallery.png").write_bytes(b"one")
            facts = json.loads((folder / "benchmark.json").read_text())
            (folder / "benchmark.json").write_text(json.dumps(facts, indent=3))
        return None

    place = project / "artifacts/scores/places/rootsift-vlad"
    (place / "gallery.png").write_bytes(b"two")
    rows = read_results(project / TABLE)
    digest = dvc_digest(place)
    write_results(
        project / TABLE,
        [replace(row, source_md5=digest) if row.name.benchmark == "places" else row for row in rows],
    )
    forge(project)
    verification = verify(project, rescore=drawn)
    assert verification.findings == ()
    drawn_again = "artifacts/scores/places/rootsift-vlad/gallery.png looks otherwise when it is drawn again"
    assert drawn_again in verification.notes
