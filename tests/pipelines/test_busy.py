"""Two processes in one project: one line says who is at work, no work is lost, a killed one blocks nobody."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.locking import BusyError, Waiting, busy_line, clear, holders, one_run
from tests.pipelines.project import Project, digests, processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
RUN = "toytown-rootsift-vlad"


def held(project: Project, step: str) -> Path:
    """Make `step` wait while the file that is returned exists."""
    module, file = project.root / "assets" / f"{step}.py", project.root / f"hold-{step}"
    text = module.read_text("utf-8")
    body = text.index('"""', text.index(f"def {step}("))
    end = text.index('"""', body + 3) + 3
    wait = f"\n    import pathlib, time\n    while pathlib.Path('{file.name}').exists():\n        time.sleep(0.05)\n"
    module.write_text(text[:end] + wait + text[end:], "utf-8")
    file.touch()
    return file


def at(project: Project, step: str, process: subprocess.Popen[str]) -> None:
    """Wait until `process` has come to `step`."""
    deadline = time.monotonic() + 120
    while not any(line.endswith(f"step {step} {RUN}") for line in processes_of(project)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"the step {step} has not begun"
        time.sleep(0.1)


def ended(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    return said


def refused(project: Project, *arguments: str) -> str:
    """The one line of a command that is refused."""
    result = project.cairn(*arguments, check=False)
    assert result.returncode == 1 and "DVC" not in result.stderr and result.stdout == ""
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return line.removeprefix("error: ")


def test_a_second_run_is_told_of_the_first(project: Project):
    hold = held(project, "ranking")
    first = project.start("pipelines", "run")
    at(project, "ranking", first)
    line = refused(project, "run")
    assert re.fullmatch(
        rf"another `cairn run` is at work in this project \(process {first.pid}, since \S+ \S+\); wait until it has "
        rf"ended, or end it with `kill {first.pid}`",
        line,
    )
    # What else may run meanwhile: an asset of Dagster's that the run does not touch at the moment.
    assert "made" in project.cairn("materialize", f"tail@{RUN}", "--force").stderr
    # And one that it does touch waits, and says for whom.
    other = project.start("pipelines", "materialize", f"ranking@{RUN}")
    assert other.stdout is not None
    said = other.stdout.readline()
    assert re.match(rf"ranking@{RUN}: waiting, artifacts/\S+ is in use by `cairn repro ", said)
    # Nobody is told of the state of files that are being written, nor kept waiting for it.
    line = refused(project, "status")
    assert re.fullmatch(
        rf"a `cairn run` is at work in this project \(process {first.pid}, since \S+ \S+\) and changes what is stale; "
        "ask when it has ended",
        line,
    )
    assert project.cairn("status", "--quiet", check=False).returncode == 1
    hold.unlink()
    said = ended(first)
    assert "map" in said and f"Running stage 'ranking@{RUN}'" in said
    assert not [advice for advice in ("git add", "autostage", "dvc push") if advice in said]
    assert ended(other) == f"ranking@{RUN}: up to date, nothing to do\n"
    assert project.dvc_stale() == set()


def test_a_run_is_told_of_a_materialisation_and_waits_for_one_that_comes_later(project: Project):
    ranking, tail = held(project, "ranking"), held(project, "tail")
    tail.unlink()  # the run may come there before the ranking
    run = project.start("pipelines", "run")
    at(project, "ranking", run)
    tail.touch()
    asset = project.start("pipelines", "materialize", f"tail@{RUN}", "--force")
    at(project, "tail", asset)
    ranking.unlink()
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        lines.append(line)
        if "waiting" in line:
            break
    assert re.match(
        rf"cairn run: waiting, artifacts/\S+ is in use by `cairn materialize tail@{RUN} --force`", lines[-1]
    ), lines
    tail.unlink()
    ended(asset)
    said = ended(run)
    assert "ERROR" not in said and "is busy" not in "".join(lines) + said
    assert project.dvc_stale() == set()
    tail.touch()
    asset = project.start("pipelines", "materialize", f"tail@{RUN}", "--force")
    at(project, "tail", asset)
    line = refused(project, "run")
    assert line.startswith(
        f"`cairn materialize tail@{RUN} --force` (process {asset.pid}) is at work in this project; wait"
    )
    tail.unlink()
    ended(asset)


def test_status_waits_for_dvcs_lock_aloud_and_not_without_end(project: Project):
    lock = project.root / ".dvc" / "tmp" / "lock"
    program = f"import zc.lockfile; lock = zc.lockfile.LockFile({str(lock)!r}); print(1, flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    other.stdout.readline()
    result = project.cairn("status", check=False)
    lines = result.stderr.splitlines()
    line = f"the project's DVC lock is in use by process {other.pid}"
    assert lines[0] == f"status: waiting, {line}"
    assert lines[-1].startswith(f"error: status: {line}; wait until it has ended")
    assert result.returncode == 1
    other.communicate("\n")
    assert project.cairn("status").returncode == 0


def test_a_killed_run_takes_all_with_it_and_blocks_nobody(project: Project, made: Project):
    hold = held(project, "ranking")
    run = project.start("pipelines", "run")
    at(project, "ranking", run)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    deadline = time.monotonic() + 20
    while (left := processes_of(project)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    # The stage was under way: DVC's list names it still, and here breaks off as if it had been killed over it.
    listed = project.root / ".dvc" / "tmp" / "rwlock"
    assert "ranking" in listed.read_text("utf-8")
    listed.write_text(listed.read_text("utf-8")[:50], "utf-8")
    hold.unlink()
    assert "map" in project.cairn("run").stdout
    assert project.dvc_stale() == set()
    folder = "artifacts/toytown/rootsift-vlad"
    assert digests(project.root / folder) == digests(made.root / folder)


@pytest.mark.parametrize(
    "command",
    [
        ("status",),
        ("repro", "--single-item", f"tail@{RUN}"),
        ("materialize", f"tail@{RUN}", "--force"),
    ],
)
@pytest.mark.parametrize("left", ["", '{"write": {"/a', '{"write": {"/a": {"pid": "x"}}}'])
def test_a_list_that_a_killed_dvc_left_half_written_stops_nobody(project: Project, command, left: str):
    listed = project.root / ".dvc" / "tmp" / "rwlock"
    listed.parent.mkdir(exist_ok=True)
    listed.write_text(left, "utf-8")
    assert "RWLock-file" in project.dvc("status", check=False).stderr
    result = project.cairn(*command, check=False)
    assert "RWLock-file" not in result.stdout + result.stderr
    assert project.dvc("status").returncode == 0


def test_a_project_that_locks_by_hard_links_stays_usable(project: Project):
    project.dvc("config", "core.hardlink_lock", "true")
    (project.root / ".dvc" / "tmp" / "rwlock.lock").unlink(missing_ok=True)
    (project.root / ".dvc" / "tmp" / "lock").unlink(missing_ok=True)
    assert project.cairn("status", check=False).returncode == 0
    (project.root / ".dvc" / "tmp" / "rwlock").write_text("", "utf-8")
    assert project.cairn("status", check=False).returncode == 0
    assert "nothing to do" in project.cairn("run").stderr or project.dvc_stale() == set()
    assert project.dvc("repro").returncode == 0


def test_entries_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path):
    listed = tmp_path / ".dvc" / "tmp" / "rwlock"
    listed.parent.mkdir(parents=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    living = subprocess.Popen([sys.executable, "-c", "input()", "repro", "x"], stdin=subprocess.PIPE)
    path = str(tmp_path / "artifacts" / "a")
    entry = {"pid": living.pid, "cmd": "/project/pipelines/__main__.py repro x"}
    # A number that was a DVC process's is another's now: the system gives numbers again.
    other = {"pid": living.pid, "cmd": "/venv/bin/dvc repro y"}
    dead = {"pid": gone.pid, "cmd": "/venv/bin/dvc repro z"}
    listed.write_text(
        json.dumps({"write": {path: entry, path + "b": other}, "read": {path: [dead], path + "c": [entry]}})
    )
    clear(tmp_path)
    assert json.loads(listed.read_text()) == {"write": {path: entry}, "read": {path + "c": [entry]}}
    assert holders(tmp_path) == {living.pid: "cairn repro x"}
    error = RuntimeError(
        f"'{path}' is busy, it is being blocked by:\n  (PID {living.pid}): {entry['cmd']}\n\nIf"
    )
    line = f"artifacts/a is in use by `cairn repro x` (process {living.pid})"
    assert busy_line(tmp_path, error).startswith(f"{line}; wait until it has ended")
    with pytest.raises(BusyError, match=r"^ranking: artifacts/a is in use"):
        Waiting(tmp_path, "ranking", patience=0).wait(error)
    with (
        pytest.raises(BusyError, match=rf"`cairn repro x` \(process {living.pid}\) is at work"),
        one_run(tmp_path),
    ):
        pass
    living.communicate(b"\n")
    Waiting(tmp_path, "ranking").wait(error)
    assert json.loads(listed.read_text()) == {"write": {}, "read": {}}
    with one_run(tmp_path):
        assert json.loads((tmp_path / ".cairn" / "run.lock").read_text())["process"] == os.getpid()
