"""The main job on a small project: same bytes twice, only what is new runs, faults are found and named."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipelines.project import TINY, Project, digests, new_project

NUMBER = "toytown/rootsift-vlad/global/hard/map"
pytestmark = pytest.mark.slow


def test_two_runs_give_the_same_bytes_whatever_the_number_of_workers(made: Project, tmp_path: Path):
    again = new_project(tmp_path / "again", TINY)
    subprocess.run(
        [sys.executable, "-m", "dvc", "repro"],
        cwd=again.root,
        env={**again.environment(), "CAIRN_WORKERS": "1"},
        check=True,
        capture_output=True,
    )
    assert digests(again.root / "artifacts") == digests(made.root / "artifacts")
    assert (again.root / "dvc.lock").read_bytes() == (made.root / "dvc.lock").read_bytes()


def test_a_second_system_computes_only_what_is_new(project: Project):
    parameters = project.parameters()
    parameters["systems"]["colours"] = {"encoder": "colour-histogram"}
    parameters["runs"]["toytown-colours"] = {"benchmark": "toytown", "system": "colours"}
    project.write_parameters(parameters)
    before = digests(project.root / "artifacts" / "toytown" / "rootsift-vlad")
    ran = project.repro()
    assert {stage for stage in ran if "toytown-rootsift-vlad" in stage} == set()
    assert "code" in ran
    assert "results" in ran
    assert {stage.split("@")[0] for stage in ran if stage.endswith("@toytown-colours")} == {
        "vocabulary",
        "descriptors",
        "training_descriptors",
        "reranker_training",
        "readout",
        "ranking",
        "local",
        "reranking",
        "tail",
        "scores",
    }
    assert digests(project.root / "artifacts" / "toytown" / "rootsift-vlad") == before
    shown = json.loads(project.dvc("metrics", "show", "--json").stdout)
    [values] = [entry["data"] for entry in shown[""]["data"].values()]
    assert set(values["toytown (synthetic)"]) == {"rootsift-vlad", "colours"}


def test_an_unrelated_key_of_the_same_system_leaves_the_expensive_stages_alone(project: Project):
    result = project.dvc("exp", "run", "-S", "systems.rootsift-vlad.rerank.shortlist=3", check=False)
    assert result.returncode == 0, result.stderr
    ran = {line.split("'")[1] for line in result.stdout.splitlines() if line.startswith("Running stage ")}
    assert "descriptors@toytown-rootsift-vlad" not in ran
    assert "reranking@toytown-rootsift-vlad" in ran


def test_changed_pixels_change_the_descriptors_with_a_warm_cache(project: Project):
    cache = project.root / ".cairn" / "cache"
    assert any(cache.rglob("*")), "the run left no scratch cache: this test would show nothing"
    folder = project.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors"
    before = digests(folder)
    path = project.root / "cairn" / "images" / "decode.py"
    path.write_text(
        path.read_text("utf-8")
        + "\n_plain = decode_gray\n\n\ndef decode_gray(*asked):\n    return _plain(*asked)[::-1].copy()\n",
        "utf-8",
    )
    ran = project.repro()
    assert "descriptors@toytown-rootsift-vlad" in ran
    after = digests(folder)
    assert {name for name in before if before[name] != after[name]} >= {"0000.parquet", "queries.parquet"}


def test_one_flipped_byte_is_found_and_taints_exactly_what_is_below(project: Project):
    folder = project.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors"
    shard = sorted(folder.glob("[0-9]*.parquet"))[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    result = project.cairn("verify", "--json", check=False)
    assert result.returncode == 1
    report = json.loads(result.stdout)
    numbers = json.loads(project.cairn("sql", "--json", "SELECT count(*) AS n FROM results").stdout)
    [finding] = [f for f in report["findings"] if shard.name in json.dumps(f)]
    tainted = set(finding["numbers"])
    assert len(tainted) == numbers[0]["n"]
    assert all(name.startswith("toytown/rootsift-vlad/") for name in tainted)


def test_every_leaf_of_a_trace_is_a_source_with_a_checksum(made: Project):
    traced = json.loads(made.cairn("trace", NUMBER, "--json").stdout)
    assert traced["unverified_sources"] == []
    assert traced["sources"]
    for source in traced["sources"]:
        assert source["checksums"]["sha256"]
    for path, artifact in traced["artifacts"].items():
        assert artifact["inputs"] or artifact["sources"], f"{path} has no way back"


def test_a_killed_step_leaves_nothing_half_written_and_the_next_run_finishes(project: Project, made: Project):
    shutil.rmtree(project.root / ".cairn" / "cache")
    shutil.rmtree(project.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors")
    shutil.rmtree(project.root / ".dvc" / "cache")
    output = project.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors"
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "step", "descriptors", "toytown-rootsift-vlad"],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(output.parent.glob(".descriptors.*")):
        time.sleep(0.01)
    os.killpg(process.pid, 9)
    process.wait()
    assert not output.exists()
    project.cairn("step", "descriptors", "toytown-rootsift-vlad")
    assert digests(output) == digests(made.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors")
    assert not list(output.parent.glob(".descriptors.*"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "nowhere"), 2, "toytown/rootsift-vlad"),
        (("trace", "toytown/nothing"), 1, "toytown"),
        (("step", "descriptors", "nowhere"), 2, "toytown-rootsift-vlad"),
        (("step", "nothing", "all"), 2, "descriptors"),
        (("add", "Bad.Name", "--images", ".", "--truth", "params.yaml"), 1, "bad-name"),
        (("add", "toytown", "--images", ".", "--truth", "params.yaml"), 1, "already"),
        (("add", "mine", "--images", "absent", "--truth", "params.yaml"), 1, "absent"),
        (("add", "mine", "--images", ".", "--truth", "absent.csv"), 1, "absent.csv"),
        (("sql", "SELEC 1"), 1, "SELEC"),
        (("sql", "DROP VIEW results"), 1, ""),
    ],
)
def test_wrong_use_is_one_clear_line(made: Project, arguments: tuple[str, ...], code: int, said: str):
    result = made.cairn(*arguments, check=False)
    assert result.returncode == code, result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_help_answers_quickly_and_imports_nothing_heavy(made: Project):
    code = (
        "import sys; sys.argv=['cairn','--help']\n"
        "try:\n    from pipelines.cli import main; main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch','faiss','cv2','pyarrow','duckdb','dagster','dvc','numpy','scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=made.root,
        env=made.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "trace" in result.stdout


def test_bad_parameters_stop_every_way_in(project: Project):
    parameters = project.parameters()
    parameters["systems"]["rootsift-vlad"]["wrods"] = 3
    project.write_parameters(parameters)
    before = digests(project.root / "artifacts")
    for arguments in (("run",), ("status",), ("code",), ("generate",)):
        result = project.cairn(*arguments, check=False)
        assert result.returncode == 1
        assert "systems.rootsift-vlad.wrods" in result.stderr
        assert "Traceback" not in result.stderr
    result = project.dvc("repro", check=False)
    assert result.returncode != 0
    assert "systems.rootsift-vlad.wrods" in result.stderr
    assert digests(project.root / "artifacts") == before
