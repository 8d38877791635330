"""`executor: ray` in steps of the graph: what two workers write is what one process writes, whoever is killed."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.pipelines.project import Project, digests, processes_of
from tests.pipelines.wide import SYSTEMS, wide_project

pytest.importorskip("ray", reason="Ray is not installed; requirements-dev.lock has it")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
IMAGES = 100_800
RAY = {"CAIRN_EXECUTOR": "ray", "CAIRN_WORKERS": "2", "CAIRN_CACHE": "off"}
LOCAL = {"CAIRN_EXECUTOR": "local", "CAIRN_CACHE": "off"}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A gallery of more images than the longest list, in thirteen tiles and seven shards."""
    return wide_project(tmp_path_factory.mktemp("wide") / "project", IMAGES)


@pytest.fixture(scope="module")
def rankings(wide: Project) -> dict[str, dict[str, str]]:
    """What one process with one thread writes for each system."""
    return {system: ranked(wide, LOCAL | {"CAIRN_WORKERS": "1"}, system)[0] for system in SYSTEMS}


def ranking(project: Project, system: str) -> Path:
    return project.root / "artifacts" / "toytown" / system / "ranking"


def step(project: Project, environment: dict[str, str], name: str, system: str) -> subprocess.Popen[str]:
    return project.start("pipelines", "step", name, f"toytown-{system}", **environment)


def finished(process: subprocess.Popen[str]) -> str:
    """What a step said, once it has ended well."""
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def ranked(project: Project, environment: dict[str, str], *systems: str) -> list[dict[str, str]]:
    """The rankings of systems that are ranked at the same time; they are removed afterwards."""
    processes = [step(project, environment, "ranking", system) for system in systems]
    for process in processes:
        finished(process)
    found = [digests(ranking(project, system)) for system in systems]
    for system in systems:
        shutil.rmtree(ranking(project, system))
    return found


def worker(project: Project, process: subprocess.Popen[str]) -> int | None:
    """The process of one of the step's Ray workers, as soon as there is one; None where the step ends before."""
    while process.poll() is None:
        for line in processes_of(project):
            number, _, command = line.partition(" ")
            if command.startswith("ray::_Worker"):
                return int(number)
        time.sleep(0.02)
    return None


def test_the_first_100000_are_the_same_whatever_the_number_of_threads(wide: Project, rankings):
    for threads in ("2", "3"):
        assert ranked(wide, LOCAL | {"CAIRN_WORKERS": threads}, SYSTEMS[0]) == [rankings[SYSTEMS[0]]]


def test_two_workers_rank_as_one_process_does(wide: Project, rankings):
    assert ranked(wide, RAY, SYSTEMS[0]) == [rankings[SYSTEMS[0]]]


def test_two_runs_rank_at_the_same_time_on_clusters_of_their_own(wide: Project, rankings):
    assert ranked(wide, RAY, *SYSTEMS) == [rankings[system] for system in SYSTEMS]


def test_a_killed_worker_costs_time_alone(wide: Project, rankings):
    process = step(wide, RAY, "ranking", SYSTEMS[0])
    found = worker(wide, process)
    time.sleep(random.Random(4).uniform(0, 1.5))
    assert found is not None and process.poll() is None
    os.kill(found, signal.SIGKILL)
    finished(process)
    assert digests(ranking(wide, SYSTEMS[0])) == rankings[SYSTEMS[0]]
    shutil.rmtree(ranking(wide, SYSTEMS[0]))


def test_a_killed_step_leaves_no_ranking_and_no_worker(wide: Project, rankings):
    process = step(wide, RAY, "ranking", SYSTEMS[0])
    assert worker(wide, process) is not None
    process.kill()
    process.communicate()
    assert not ranking(wide, SYSTEMS[0]).exists()
    deadline = time.monotonic() + 60
    while (left := computing(wide)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert ranked(wide, RAY, SYSTEMS[0]) == [rankings[SYSTEMS[0]]]
    assert not list(ranking(wide, SYSTEMS[0]).parent.glob(".*"))


def computing(project: Project) -> list[str]:
    """Workers, and the part of Ray that starts them (its two agents end when they have noticed that it is gone)."""
    return [line for line in processes_of(project) if "ray::_" in line or "raylet" in line or "gcs" in line]


def test_extraction_writes_the_same_bytes_though_a_worker_is_killed(project: Project):
    output = project.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors"
    before = digests(output)
    process = step(project, RAY, "descriptors", "rootsift-vlad")
    found = worker(project, process)
    assert found is not None
    os.kill(found, signal.SIGKILL)
    finished(process)
    assert digests(output) == before


DYING = """
import os
from cairn.encoders.colour_histogram import ColourHistogram, Parameters

class Dying(ColourHistogram):
    def describe(self, prepared, learned):
        os._exit(1)

def make(parameters):
    return Dying(Parameters())
"""


def test_workers_that_always_die_are_one_clear_line(project: Project):
    (project.root / "dying.py").write_text(DYING, "utf-8")
    parameters = project.parameters()
    parameters["systems"]["dying"] = {"encoder": "python:dying:make"}
    parameters["runs"]["toytown-dying"] = {"benchmark": "toytown", "system": "dying"}
    project.write_parameters(parameters)
    project.cairn("generate")
    project.cairn("code")
    project.cairn("step", "vocabulary", "toytown-dying")
    process = step(project, RAY, "descriptors", "dying")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1 and "Traceback" not in said
    [line] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: Ray: a worker was lost more than 3 times")
    folder = project.root / "artifacts" / "toytown" / "dying"
    assert not (folder / "descriptors").exists() and not list(folder.glob(".*"))
