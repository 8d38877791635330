"""Asset checks find what is wrong, the folder sensor asks once, the code stage's version is that of its files."""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pyarrow.parquet as pq
import pytest

from cairn.benchmarks.structure import read_ground_truth, write_ground_truth
from cairn.results import read_results, write_results
from pipelines.checks import CHECKS, SAME, Check, checks_of, judged
from pipelines.code_stage import all_code_version, recorded_code_version
from pipelines.graph import Node
from pipelines.sync import CODE_KEY, _report_code, _score_metadata
from pipelines.watching import decide
from tests.report.project import build


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("checked"))
    entry = {"adapter": "revisitop", "training": "town"}
    (root / "params.yaml").write_text(json.dumps({"benchmarks": {"town": {**entry, "data": "."}}}))
    return root


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "cairn")
    return tmp_path / "cairn"


def node(step: str) -> Node:
    """The node of a step of town/second, as far as checks look at it."""
    common, own = "artifacts/town", "artifacts/town/second"
    outputs = {
        "manifest": f"{common}/manifest",
        "ground_truth": f"{common}/ground_truth",
        "ranking": f"{own}/ranking",
        "scores": "artifacts/scores/town/second",
    }
    stage = f"{step}@town" if step in ("manifest", "ground_truth") else f"{step}@town-second"
    asset = ("town", step) if step in ("manifest", "ground_truth") else ("town", "second", step)
    inputs = {name: path for name, path in outputs.items() if name != step}
    known = {
        "step": cast(Any, SimpleNamespace(name=step, fan_in=None)),
        "key": "town-second",
        "benchmark": "town",
        "system": "second",
        "stage": stage,
        "asset": asset,
        "output": outputs[step],
        "inputs": inputs,
        "upstream": {},
        "externals": {},
        "code": f"artifacts/code/{step}/town-second.json",
    }
    # What else a node may have does not concern the checks.
    return Node(**{one.name: known.get(one.name, "") for one in fields(Node)})


def check(step: str, name: str) -> Check:
    return next(one for one in (SAME, *CHECKS[step]) if one.name == name)


@pytest.mark.parametrize("step", ["manifest", "ground_truth", "ranking", "scores"])
def test_what_is_right_passes(root: Path, step: str):
    for one in (SAME, *CHECKS[step]):
        if one.name != "protocol_audit":
            assert judged(root, node(step), one).problem is None, one.name


def test_a_touched_file_fails_the_hash(root: Path):
    file = root / "artifacts/town/second/ranking/ranking.parquet"
    file.write_bytes(file.read_bytes() + b"x")
    assert "dvc.lock has" in str(judged(root, node("ranking"), SAME).problem)


def test_a_number_out_of_range_fails(root: Path):
    path = root / "artifacts/scores/town/second/scores.parquet"
    rows = read_results(path)
    for wrong, words in (
        (replace(rows[0], value=1.2), "between 0 and 1"),
        (replace(rows[0], low=0.9, high=0.1), "no interval"),
        (replace(rows[0], n_queries=999), "999 queries"),
    ):
        write_results(path, [wrong, *rows[1:]])
        assert words in str(judged(root, node("scores"), check("scores", "score_ranges")).problem)


def test_a_query_that_is_not_ranked_fails(root: Path):
    path = root / "artifacts/town/second/ranking/ranking.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(16), path)
    assert "q0" in str(judged(root, node("ranking"), check("ranking", "counts")).problem)


def test_a_truth_about_other_images_fails(root: Path):
    truth = read_ground_truth(root / "artifacts/town/ground_truth")
    relevance = {**truth.relevance, "q0": {"elsewhere.png": "easy"}}
    shutil.rmtree(root / "artifacts/town/ground_truth")
    write_ground_truth(root / "artifacts/town/ground_truth", replace(truth, relevance=relevance))
    assert "elsewhere.png" in str(judged(root, node("ground_truth"), check("ground_truth", "counts")).problem)


def test_a_failed_check_blocks_what_is_downstream(root: Path):
    specs = {spec.name: spec for one in checks_of(root, node("scores")) for spec in one.check_specs}
    assert {name: spec.blocking for name, spec in specs.items()} == {
        "content_matches_lock": True,
        "score_ranges": True,
        "protocol_audit": False,  # a warning: another metric is allowed, and said
    }


def test_the_sensor_asks_once_for_a_settled_state():
    used = {"photos": "a", "truth.csv": "t"}
    asked, cursor, reason = decide(used, used, None)
    assert not asked and "dvc.lock" in reason
    new = {**used, "photos": "b"}
    asked, cursor, reason = decide(new, used, cursor)
    assert not asked and "is changing" in reason  # still being copied, perhaps
    asked, cursor, reason = decide(new, used, cursor)
    assert asked and reason == "changed: photos"
    asked, cursor, _ = decide(new, used, cursor)
    assert not asked  # the run is on its way
    asked, cursor, _ = decide(new, new, cursor)
    assert not asked
    for version, wanted in (("c", False), ("c", True), ("missing", False), ("c", False), ("c", False)):
        asked, cursor, reason = decide({**used, "photos": version}, new, cursor)
        assert asked is wanted, (version, reason)
    asked, cursor, _ = decide({**used, "photos": "d"}, new, cursor)
    assert not asked and decide({**used, "photos": "d"}, new, cursor)[0]


def test_the_code_stage_is_reported_with_the_version_of_its_files(root: Path):
    from cairn.files import dvc_digest

    folder = root / "artifacts/code"
    md5 = dvc_digest(folder)
    records = [json.loads(file.read_text("utf-8")) for file in folder.rglob("*.json")]
    assert recorded_code_version(root, md5) == all_code_version(records)
    entry = {"outs": [{"path": "artifacts/code", "md5": md5}]}
    with dg.DagsterInstance.ephemeral() as instance:
        assert _report_code(root, instance, entry)
        assert not _report_code(root, instance, entry)  # once
        event = instance.get_latest_materialization_event(CODE_KEY)
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.metadata["dvc_hash"].value == md5
    next(folder.rglob("*.json")).write_text("{}")
    assert recorded_code_version(root, md5) is None  # other files than dvc.lock's: nothing true can be said


def test_scores_carry_a_table_that_dagster_shows_in_place(root: Path):
    metadata = _score_metadata(root / "artifacts/scores/town/second/scores.parquet")
    text = metadata["numbers"].md_str
    assert "| geometric rerank (k100) | hard |" in text and len(text) < 1000
    assert 0 <= metadata["map hard geometry-k100"].value <= 1
