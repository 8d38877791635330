"""A killed extraction goes on where it was, and ends with the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from cairn.cache import Cache
from tests.systems.conftest import Town
from tests.systems.test_steps import contents, run

CHILD = """
import sys
from pathlib import Path
from cairn.cache import Cache
from cairn.systems import extraction
from tests.systems.conftest import Town, read, truth_of
from tests.systems.test_steps import run

if __name__ == "__main__":
    root, output, cache = map(Path, sys.argv[1:])
    extraction.FEW = 2  # worker processes from the second image on
    print("on", flush=True)
    run(Town(root, read(root), truth_of()), output, Cache(cache))
"""


def gone(group: int) -> bool:
    """Whether all processes of a group end within ten seconds."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    return False


def test_killed_at_random_moments(town: Town, tmp_path: Path):
    whole = contents(run(town, tmp_path / "whole"))
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    cache, chance, entries = tmp_path / "cache", random.Random(0), [0]
    repository = Path(__file__).resolve().parents[2]
    for attempt in range(3):
        child = subprocess.Popen(
            [sys.executable, str(script), str(town.root), str(tmp_path / f"try{attempt}"), str(cache)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=repository,
            env=os.environ | {"PYTHONPATH": str(repository), "CAIRN_WORKERS": "2"},
            start_new_session=True,
        )
        assert child.stdout is not None and child.stdout.readline() == b"on\n"
        # Wait until something new is in the cache, so that the kill falls into the work.
        deadline = time.monotonic() + 60
        while sum(1 for _ in cache.glob("??/[!.]*")) <= entries[-1] and time.monotonic() < deadline:
            if child.poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert gone(child.pid), "worker processes outlive a killed parent"
        entries.append(sum(1 for _ in cache.glob("??/[!.]*")))
    assert entries[1] > 0 and entries == sorted(entries)
    assert contents(run(town, tmp_path / "last", Cache(cache))) == whole
