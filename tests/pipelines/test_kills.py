"""kill -9 at random moments of a step, and of DVC around it: nothing is half-written, the next run ends the same."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time

import pytest

from tests.pipelines.project import TINY, Project, digests, new_project, processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RUN, OWN = "toytown-colours", "artifacts/toytown/colours"
STEPS = {
    "readout": (RUN, f"{OWN}/readout"),
    "ranking": (RUN, f"{OWN}/ranking"),
    "tail": (RUN, f"{OWN}/tail"),
    "scores": (RUN, "artifacts/scores/toytown/colours"),
    "results": ("all", "artifacts/results"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A small run in which every step has something to write: a read-out, an index, an estimate."""
    parameters = json.loads(json.dumps(TINY))
    parameters["benchmarks"]["toytown"] |= {
        "distractors": 120,
        "tail": {"gallery": 100_000, "metric": "map@10", "sample": 1.0},
    }
    parameters["systems"] = {
        "colours": {
            "encoder": "colour-histogram",
            "readout": {"centre": "gallery", "dimension": 32},
            "search": {"index": {"kind": "hnsw"}},
        }
    }
    parameters["runs"] = {RUN: {"benchmark": "toytown", "system": "colours"}}
    project = new_project(tmp_path_factory.mktemp("killed") / "project", parameters)
    project.cairn("run")
    return project


def killed(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the process and all that it started; they are gone afterwards."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("name", STEPS)
def test_a_step_killed_at_random_moments(whole: Project, name: str):
    key, path = STEPS[name]
    output = whole.root / path
    before, chance = digests(output), random.Random(name)
    started = time.monotonic()
    whole.cairn("step", name, key)
    seconds = time.monotonic() - started
    assert digests(output) == before
    caught = 0
    for attempt in range(4):
        process = whole.start("pipelines", "step", name, key)
        if attempt % 2:  # anywhere: while it imports, reads, computes
            time.sleep(chance.uniform(0, seconds))
        else:  # while it writes
            while process.poll() is None and not list(output.parent.glob(f".{output.name}.{process.pid}.*")):
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.2))
        caught += process.poll() is None
        killed(process)
        assert not output.exists() or digests(output) == before
    assert caught, "every kill came after the end"
    whole.cairn("step", name, key)
    assert digests(output) == before
    assert not list(output.parent.glob(".*")), "the next run clears what the killed ones left"


def test_dvc_killed_at_random_moments_tells_the_truth_afterwards(whole: Project):
    """`dvc status` and `cairn verify` say what is there, and a run brings everything back to the same bytes."""
    lock, before = (whole.root / "dvc.lock").read_bytes(), digests(whole.root / "artifacts")
    output, chance, missing = whole.root / OWN / "ranking", random.Random(1), 0
    stage = f"ranking@{RUN}"
    for attempt in range(3):
        process = whole.start("dvc", "repro", "--force", "--single-item", stage)
        deadline = time.monotonic() + 60
        while output.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)  # DVC removes what is to be made again
        time.sleep(chance.uniform(0, 1.5) * attempt)
        killed(process)
        assert not processes_of(whole)
        result = whole.cairn("verify", "--json", check=False)
        findings = [
            finding for finding in json.loads(result.stdout)["findings"] if "ranking" in json.dumps(finding)
        ]
        # A kill in the moment in which DVC writes its list of paths leaves half of it: Cairn's commands mend that.
        whole.cairn("status", check=False)
        stale = whole.dvc_stale()
        if output.exists():
            assert digests(output) == {
                file.removeprefix("toytown/colours/ranking/"): digest
                for file, digest in before.items()
                if file.startswith("toytown/colours/ranking/")
            }
            assert not findings and stage not in stale
        else:
            missing += 1
            assert result.returncode == 1 and findings and stage in stale
    assert missing
    assert "map" in whole.cairn("run").stdout
    assert digests(whole.root / "artifacts") == before
    assert (whole.root / "dvc.lock").read_bytes() == lock
    assert whole.dvc_stale() == set()
    assert whole.cairn("verify", check=False).returncode == 0
    assert not list((whole.root / "artifacts").rglob(".*"))


def test_what_a_killed_run_left_among_the_scores_is_not_in_the_hash_of_the_results(whole: Project):
    lock = (whole.root / "dvc.lock").read_bytes()
    gone = whole.start("pipelines", "--help")
    gone.communicate()
    left = whole.root / "artifacts" / "scores" / "toytown" / f".colours.{gone.pid}.abcdefgh"
    left.mkdir()
    (left / "scores.parquet").write_bytes(b"half")
    whole.dvc("repro", "--force", "--single-item", "results")
    assert not left.exists()
    assert (whole.root / "dvc.lock").read_bytes() == lock
