"""Runs `dagster dev` for a project: a lasting event log, a reload when sources change, no children left behind."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from cairn.files import stamp
from cairn.progress import say
from pipelines.bridge import environment
from pipelines.project import CODE, PARAMETERS

HOME = ".cairn/dagster"
WATCHED = ("assets", "cairn", "pipelines", PARAMETERS)
POLL_SECONDS = 1.0
GRACE_SECONDS = 8.0
CONFIGURATION = """\
telemetry: {enabled: false}
nux: {enabled: false}
# Sensors are cheap here; their ticks need not be kept.
retention: {sensor: {purge_after_days: {skipped: 1}}}
"""
RELOAD = "mutation { reloadWorkspace { __typename } }"


def dagster_home(root: Path) -> Path:
    """The folder of Dagster's event log (without one it would vanish with the process)."""
    home = root / HOME
    home.mkdir(parents=True, exist_ok=True)
    file = home / "dagster.yaml"
    if not file.is_file():
        file.write_text(CONFIGURATION, "utf-8")
    return home


def serve(root: Path, host: str, port: int) -> int:
    """Run `dagster dev` until it is interrupted; its exit code."""
    os.environ["DAGSTER_HOME"] = str(dagster_home(root))
    # `dagster dev` warns on every start that it will one day be called otherwise; nobody here can act on that.
    quiet = ["-W", "ignore:Function `dev_command` is superseded"]
    command = [sys.executable, *quiet, "-m", "dagster", "dev", "-m", "pipelines.definitions", "-d", str(root)]
    command += ["-h", host, "-p", str(port)]
    # A session of its own: `dagster dev` starts daemons and servers that a signal to it alone would leave behind.
    process = subprocess.Popen(command, cwd=root, env=environment(), start_new_session=True)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(root, f"http://{host}:{port}/graphql", stop), daemon=True)
    watcher.start()
    say(f"Dagster: http://{host}:{port}")

    def end(_number: int, _frame: object) -> None:
        _end(process)
        # Dagster's daemons may take their time to end; nobody waits for them longer than this.
        reaper = threading.Timer(GRACE_SECONDS, _end, (process, signal.SIGKILL))
        reaper.daemon = True
        reaper.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        return process.wait()
    finally:
        stop.set()
        _end(process, signal.SIGKILL)


def _end(process: subprocess.Popen, number: int = signal.SIGTERM) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _watch(root: Path, url: str, stop: threading.Event) -> None:
    """Ask Dagster to load the definitions again whenever a source file changed: code versions are made then."""
    seen = signature(root)
    while not stop.wait(POLL_SECONDS):
        now = signature(root)
        if now != seen and _reload(url):
            seen = now


def signature(root: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Name and stamp of every watched file, and of the user's own that are part of the code of a step."""
    found = []
    for name in (*WATCHED, *_own_files(root)):
        path = root / name
        files = [path] if path.is_file() else path.rglob("*")
        for file in files:
            if "__pycache__" in file.parts:
                continue
            with contextlib.suppress(FileNotFoundError):
                if file.is_file():
                    found.append((file.as_posix(), stamp(file)))
    return sorted(found)


def _own_files(root: Path) -> list[str]:
    """Files outside of the watched folders that the `code` stage found to be part of some step's code."""
    try:
        folder = stamp(root / CODE)
    except FileNotFoundError:
        return []
    return _recorded_files(root, folder)


@functools.lru_cache(maxsize=1)
def _recorded_files(root: Path, _folder: tuple[int, ...]) -> list[str]:
    """Read once for each time that the `code` stage has put another folder in place."""
    from cairn.results.table import read_json_object

    found: set[str] = set()
    for file in (root / CODE).rglob("*.json"):
        record = read_json_object(file) or {}
        found.update([*record.get("modules", {}), *record.get("data", {})])
    return sorted(name for name in found if Path(name).parts[0] not in WATCHED)


def _reload(url: str) -> bool:
    request = urllib.request.Request(  # noqa: S310 - always the local page
        url, json.dumps({"query": RELOAD}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status == 200
    except OSError:
        return False  # the page is still starting; the next round asks again
