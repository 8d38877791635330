"""Who is at work in a project: one `cairn run` at a time, and what DVC's locks say in one line.

DVC has a lock on the repository, which it holds for moments, and a list of the paths that its processes read and
write (`.dvc/tmp/rwlock`), where a process stands for as long as its stage runs. A killed process leaves its entries:
DVC drops them once no process has the number, but not where another has been given it since.
"""

import contextlib
import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from cairn.errors import CairnError

RUN = Path(".cairn") / "run.lock"
DVC = Path(".dvc") / "tmp"
PAUSE = 0.25
REMIND_SECONDS = 600
_BLOCKED = re.compile(
    r"'(?P<path>[^'\n]+)' is busy, it is being blocked by:\n  \(PID (?P<process>\d+)\): (?P<said>.*)"
)


class BusyError(CairnError):
    """Another process is at work on what is wanted."""


@contextlib.contextmanager
def one_run(root: Path) -> Iterator[None]:
    """Inside, this process runs the graph. BusyError, naming it, where another process does.

    The kernel gives the lock back when its process ends, however that happens.
    """
    path = root / RUN
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as stream:
        if not _locked(stream, fcntl.LOCK_EX):
            stream.seek(0)
            who, process = _who(stream.read())
            raise BusyError(f"another `cairn run` is at work in this project{who}{_advice(process)}")
        stream.truncate(0)
        json.dump({"process": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}, stream)
        stream.flush()
        clear(root)
        for process, command in holders(root).items():
            raise BusyError(f"`{command}` (process {process}) is at work in this project{_advice(process)}")
        yield


def check_no_run(root: Path) -> None:
    """BusyError, naming it, where a `cairn run` is at work in the project; waits for nothing."""
    path = root / RUN
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as stream:
        if not _locked(stream, fcntl.LOCK_SH):
            who, _ = _who(stream.read())
            raise BusyError(
                f"a `cairn run` is at work in this project{who} and changes what is stale; ask when it has ended"
            )


def _locked(stream: IO[str], kind: int) -> bool:
    """Whether the lock was free. One that is held for a moment, to ask whether it is free, is waited for."""
    for pause in (0.1, 0.3, None):
        try:
            fcntl.flock(stream, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if pause is not None:
                time.sleep(pause)
    return False


def holders(root: Path) -> dict[int, str]:
    """Process → command of those that live and read or write paths of the project through DVC."""
    found = {}
    for entry in _entries(_listed(root) or {}):
        process, command = int(entry["pid"]), str(entry["cmd"])
        if process != os.getpid() and _lives(process, command):
            found[process] = _short(command)
    return found


def clear(root: Path) -> None:
    """Remove from DVC's list what killed processes left in it: their entries, or a list that breaks off."""
    from dvc.lock import LockError, make_lock

    path = root / DVC / "rwlock"
    if not path.is_file():
        return
    guard = make_lock(
        str(root / DVC / "rwlock.lock"), tmp_dir=str(root / DVC), hardlink_lock=_by_hardlinks(root)
    )
    with contextlib.suppress(LockError), guard:
        listed = _listed(root)
        if listed is None:
            path.unlink(missing_ok=True)
            return
        dead = [entry for entry in _entries(listed) if not _lives(int(entry["pid"]), str(entry["cmd"]))]
        if dead:
            kept = {
                "write": {p: entry for p, entry in listed.get("write", {}).items() if entry not in dead},
                "read": {
                    p: left
                    for p, entries in listed.get("read", {}).items()
                    if (left := [entry for entry in entries if entry not in dead])
                },
            }
            path.write_text(json.dumps(kept), "utf-8")


class Waiting:
    """Waits while another process holds what `what` needs, as long as that lives and `patience` seconds at most."""

    def __init__(self, root: Path, what: str, patience: float | None = None) -> None:
        self.root, self.what, self.patience = root, what, patience
        self._started, self._told, self._next = time.monotonic(), "", 0.0

    def wait(self, error: BaseException) -> None:
        """Wait until it is worth another try after DVC's `error`. BusyError where that takes too long."""
        place, process = _blocker(self.root, error)
        while True:
            now = time.monotonic()
            line = _held(self.root, place, process)
            if self.patience is not None and now - self._started > self.patience:
                raise BusyError(f"{self.what}: {line}{_advice(process)}")
            if line != self._told or now > self._next:
                print(f"{self.what}: waiting, {line}", file=sys.stderr, flush=True)
                self._told, self._next = line, now + REMIND_SECONDS
            time.sleep(PAUSE)
            if process is None or process not in holders(self.root):
                clear(self.root)
                return


def busy_line(root: Path, error: BaseException) -> str:
    """What is held by whom, for a LockError of DVC's."""
    place, process = _blocker(root, error)
    return f"{_held(root, place, process)}{_advice(process)}"


def _held(root: Path, place: str, process: int | None) -> str:
    if process is None:
        return f"another DVC process holds {place}"
    command = holders(root).get(process)
    return f"{place} is in use by " + (
        f"`{command}` (process {process})" if command else f"process {process}"
    )


def _blocker(root: Path, error: BaseException) -> tuple[str, int | None]:
    """What is held, and by which process where DVC knows it."""
    text, cause = "", error
    while cause is not None:
        text += f"{cause}\n"
        cause = cause.__cause__ or cause.__context__
    if found := _BLOCKED.search(text):
        path = Path(found["path"])
        place = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        return place, int(found["process"])
    try:
        process = int((root / DVC / "lock").read_text("ascii").strip())
    except (OSError, ValueError):
        process = None
    return "the project's DVC lock", process


def _listed(root: Path) -> dict[str, Any] | None:
    """DVC's list; None where it breaks off or DVC would not read it, empty where there is none."""
    from dvc.rwlock import SCHEMA, Invalid

    try:
        return SCHEMA(json.loads((root / DVC / "rwlock").read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (ValueError, Invalid):
        return None


def broken(root: Path) -> bool:
    """Whether DVC cannot read its list of paths."""
    return _listed(root) is None


def _by_hardlinks(root: Path) -> bool:
    """Whether DVC locks by hard links here (`core.hardlink_lock`): to it, a file of the other kind is a held lock."""
    from dvc.config import Config

    return bool(Config(str(root / ".dvc")).get("core", {}).get("hardlink_lock", False))


def _entries(listed: dict[str, Any]) -> list[dict[str, Any]]:
    entries = list(listed.get("write", {}).values())
    return entries + [entry for readers in listed.get("read", {}).values() for entry in readers]


def _lives(process: int, command: str) -> bool:
    """Whether the process that DVC lists lives, and not another one that has been given its number."""
    import psutil

    try:
        found = psutil.Process(process)
        line = found.cmdline()
        if found.status() == psutil.STATUS_ZOMBIE:
            return False
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    # DVC keeps `sys.argv`; the interpreter and `-m package` in front of it look different from outside.
    arguments = command.split(" ")[1:]
    return " ".join(line).endswith(" ".join(arguments)) if arguments and line else True


def _short(command: str) -> str:
    """`cairn materialize X` for what DVC keeps as `/project/pipelines/__main__.py materialize X`."""
    program, _, arguments = command.partition(" ")
    path = Path(program)
    name = path.parent.name if path.stem == "__main__" else path.name
    return f"{'cairn' if name == 'pipelines' else name} {arguments}".strip()


def _who(text: str) -> tuple[str, int | None]:
    """What the file of a running `cairn run` says of it, and its process; nothing where it cannot be read."""
    try:
        said = json.loads(text)
        process, since = int(said["process"]), str(said["since"])
    except (ValueError, KeyError, TypeError):
        return "", None
    return f" (process {process}, since {since})", process


def _advice(process: int | None) -> str:
    return "; wait until it has ended" + (f", or end it with `kill {process}`" if process is not None else "")
