"""Runs `dagster dev` for a project: a lasting event log, a reload when sources change, no children left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from cairn.progress import say
from pipelines.bridge import environment
from pipelines.project import PARAMETERS

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


def signature(root: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of every watched file."""
    found = []
    for name in WATCHED:
        path = root / name
        files = [path] if path.is_file() else path.rglob("*")
        for file in files:
            if "__pycache__" in file.parts:
                continue
            with contextlib.suppress(FileNotFoundError):
                stat = file.stat()
                if file.is_file():
                    found.append((file.as_posix(), stat.st_size, stat.st_mtime_ns))
    return sorted(found)


def _reload(url: str) -> bool:
    request = urllib.request.Request(  # noqa: S310 - always the local page
        url, json.dumps({"query": RELOAD}).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status == 200
    except OSError:
        return False  # the page is still starting; the next round asks again
