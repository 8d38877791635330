"""The child process in which Dagster or `cairn run` runs stages through DVC, and which dies with all it started."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from pipelines.bridge import reproduce, update_code

T = TypeVar("T")
CODE_STAGE = "code"


def materialize(root: Path, stage: str, *, force: bool = False) -> int:
    """Bring the code digests up to date, then run `stage` alone; the exit code."""

    def work() -> bool:
        if stage == CODE_STAGE:
            return reproduce(root, stage, force=force)
        update_code(root)
        return reproduce(root, stage, force=force)

    try:
        made = supervised(work)
    except Exception as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"{stage}: {'made' if made else 'up to date, nothing to do'}", file=sys.stderr, flush=True)
    return 0


def supervised(work: Callable[[], T]) -> T:
    """The result of `work`, or what it raises, in a process that dies with the one that started it.

    DVC runs off the main thread, so that this one stays free to receive the signals with which Dagster cancels:
    they end the whole process group, the stage's command and its workers included.
    """
    if os.getpgrp() != os.getpid():
        os.setsid()
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_group)
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
        if os.getppid() != parent:  # what started this was killed: nobody waits for it any more
            _end_group(signal.SIGTERM, None)
    return outcome.result()


def _end_group(number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    os._exit(128 + number)
