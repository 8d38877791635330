"""The child process in which Dagster runs one stage through DVC, and which dies with everything it started."""

import os
import signal
import sys
import threading
from pathlib import Path

from pipelines.bridge import reproduce

CODE_STAGE = "code"


def materialize(root: Path, stage: str, *, force: bool = False) -> int:
    """Bring the code digests up to date, then run `stage` alone; the exit code.

    DVC runs off the main thread, so that this one stays free to receive the signals with which Dagster cancels:
    they end the whole process group, the stage's command and its workers included.
    """
    if os.getpgrp() != os.getpid():
        os.setsid()
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_group)
    outcome: list[BaseException | bool] = []

    def work() -> None:
        try:
            if stage != CODE_STAGE:
                reproduce(root, CODE_STAGE)
            outcome.append(reproduce(root, stage, force=force))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
        if os.getppid() != parent:  # Dagster itself was killed: nobody waits for this any more
            _end_group(signal.SIGTERM, None)
    result = outcome[0]
    if isinstance(result, BaseException):
        print(f"error: {result}", file=sys.stderr, flush=True)
        return 1
    print(f"{stage}: {'made' if result else 'up to date, nothing to do'}", file=sys.stderr, flush=True)
    return 0


def _end_group(number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    os._exit(128 + number)
