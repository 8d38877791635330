"""All contact with DVC: reproduce stages, their status, `dvc.lock`."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cairn.errors import CairnError, LineageError
from pipelines.locking import BusyError, Waiting, broken, busy_line, clear
from pipelines.project import LOCK

PATIENCE = 10.0
"""Seconds that a question waits for a process which is at work; what runs stages waits as long as it takes."""


def environment() -> dict[str, str]:
    """Environment for child processes: the generated commands say plain `python`, which must be this one."""
    path = os.environ.get("PATH", "")
    folder = str(Path(sys.executable).parent)
    if path.split(os.pathsep)[0] != folder:
        path = os.pathsep.join([folder, path])
    return {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"}


def repro_command(root: Path, targets: Iterable[str], *, single: bool = False) -> int:
    """`dvc repro TARGETS` (see `repro`) as a child process that shares this terminal; its exit code."""
    command = [sys.executable, "-m", "pipelines", "repro", *(["--single-item"] if single else []), *targets]
    # A session of its own, so that a signal to this process alone can end all that DVC started.
    process = subprocess.Popen(
        command, cwd=root, env=environment(), stdout=sys.stderr, start_new_session=True
    )
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return process.wait()
    except KeyboardInterrupt:
        _end_session(process)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def repro(root: Path, targets: Iterable[str], *, single: bool = False) -> int:
    """`dvc repro TARGETS` in this process, which waits where DVC gives up: while another one holds a path.

    What was finished until then stays; a stage that has run is never thrown away for want of the lock.
    """
    from dvc.cli import main

    os.environ.update(environment())
    command = ["--wait-for-lock", "repro", *(["--single-item"] if single else []), *targets]
    without_hints()
    waiting, busy = Waiting(root, "cairn run"), _Busy()
    for handler in logging.getLogger("dvc").handlers:
        handler.addFilter(busy)
    while True:
        busy.error = None
        status = main(command)
        if status == 0 or busy.error is None:
            return status
        if not _mended(root, busy.error):
            waiting.wait(busy.error)


def without_hints() -> None:
    """Leave out what DVC advises after a run (`git add dvc.lock`, auto staging, `dvc push`), in this process.

    Its stages, warnings and errors stay.
    """
    from dvc.ui import ui

    # The advice about git is the only thing that this logger says below a warning.
    logging.getLogger("dvc.repo.scm_context").setLevel(logging.WARNING)
    write = ui.write

    def write_without(*objects: Any, **options: Any) -> None:
        if not (objects and str(objects[0]).startswith("Use `dvc push` ")):
            write(*objects, **options)

    ui.write = write_without  # type: ignore[method-assign]


class _Busy(logging.Filter):
    """Keeps DVC's page of text about its locks back; `error` is what it was about."""

    error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        from dvc.lock import LockError
        from dvc.rwlock import RWLockFileCorruptedError, RWLockFileFormatError

        error = record.exc_info[1] if record.exc_info else None
        if not _caused_by(error, LockError, RWLockFileCorruptedError, RWLockFileFormatError):
            return True
        self.error = error
        return False


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End DVC and all that it started, and after a few seconds whatever is left of its session."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 3)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            if not _session_lives(process.pid):
                return


def _session_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reproduce(
    root: Path, stage: str, *, single: bool = True, force: bool = False, patience: float | None = None
) -> bool:
    """Run one stage inside this process; whether anything was executed or restored from DVC's run cache.

    Waits while another process holds what the stage needs, as long as it takes or `patience` seconds (then
    BusyError): `--wait-for-lock` covers the repository lock only, the read-write lock of single paths raises
    `LockError` at once.
    """
    from dvc.lock import LockError
    from dvc.repo import Repo

    os.environ.update(environment())
    waiting = Waiting(root, stage, patience)
    while True:
        try:
            with Repo(str(root), _wait_for_lock=patience is None) as repo:
                return bool(repo.reproduce(stage, single_item=single, force=force))
        except Exception as error:
            if _mended(root, error):
                continue
            if not _caused_by(error, LockError):
                raise CairnError(f"{stage} failed: {_message(error)}") from error
            waiting.wait(error)


def update_code(root: Path, patience: float | None = None) -> None:
    """Bring the code digests up to date. Where they are, nothing is locked: other stages may be running."""
    if status(root, "code", patience=patience):
        reproduce(root, "code", patience=patience)


def commit_stage(root: Path, stage: str) -> None:
    """Record the outputs on disk as made by the code and parameters of now (only `cairn bless` may do this)."""
    from dvc.lock import LockError
    from dvc.repo import Repo

    clear(root)
    try:
        with Repo(str(root), _wait_for_lock=True) as repo:
            repo.commit(stage, force=True)
    except LockError as error:
        raise BusyError(f"{stage}: {busy_line(root, error)}") from error


def _mended(root: Path, error: BaseException) -> bool:
    """Whether the error was that DVC's list of paths breaks off, which a process that was killed over it leaves.

    Then it is removed: every DVC process would end with this error until somebody did.
    """
    from dvc.rwlock import RWLockFileCorruptedError, RWLockFileFormatError

    of_the_list = _caused_by(error, RWLockFileCorruptedError, RWLockFileFormatError)
    if not of_the_list and not (_caused_by(error, UnicodeDecodeError) and broken(root)):
        return False
    clear(root)
    if broken(root):  # somebody holds the lock on it
        time.sleep(0.25)
    return True


def _caused_by(error: BaseException | None, *kinds: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


def _message(error: BaseException) -> str:
    cause = error.__cause__ or error
    text = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    if "not a git repository" in text:
        text += " (DVC wants one: `git init`, or `dvc config core.no_scm true` to go without)"
    return text


def status(root: Path, *stages: str, patience: float | None = PATIENCE) -> dict[str, list[Any]]:
    """DVC's own status: stage address → what changed (a stage that is clean is absent).

    BusyError where another process still holds DVC's lock or writes what is looked at after `patience` seconds; DVC
    itself would wait for its lock without end or word.
    """
    from dvc.lock import LockError
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.ERROR)
    waiting = Waiting(root, "status", patience)
    while True:
        try:
            with Repo(str(root), _wait_for_lock=patience is None) as repo:
                return repo.status(list(stages) or None)
        except Exception as error:
            if _mended(root, error):
                continue
            if not _caused_by(error, LockError):
                raise CairnError(f"dvc status failed: {_message(error)}") from error
            waiting.wait(error)


def read_lock(root: Path) -> dict[str, dict[str, Any]]:
    """The stages of `dvc.lock` (empty where nothing ran yet). Raises `LineageError` where it cannot be read."""
    import yaml

    path = root / LOCK
    if not path.is_file():
        return {}
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        document = yaml.load(path.read_text("utf-8"), Loader=loader) or {}  # noqa: S506 - a safe loader
        stages = document["stages"] or {}
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise LineageError(
            f"{LOCK} cannot be read ({str(error).splitlines()[0]}); restore it from git"
        ) from None
    return stages


def locked_hashes(entry: Mapping[str, Any], part: str) -> dict[str, str]:
    """Path → hash of the `deps` or `outs` of a stage in `dvc.lock`."""
    return {item["path"]: item.get("md5") or item.get("hash", "") for item in entry.get(part) or []}
