"""The compiled estimator gives the same bytes in the process that compiles it and in all that come after."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import json
import numpy as np
from cairn.tail.estimate import estimate_arrays

chance = np.random.default_rng(3)
top = -np.sort(-chance.standard_normal((7, 120)), axis=1)
scores = chance.normal(2, 0.5, 21)
found = estimate_arrays(top, np.repeat(np.arange(7), 3), scores, 120, 100_000, 10)
print(json.dumps(found.record(), sort_keys=True))
"""


@pytest.mark.slow
def test_compiled_now_or_kept_from_before_it_gives_the_same_bytes(tmp_path: Path):
    repository = Path(__file__).resolve().parents[2]
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", CHILD]
    said = []
    for _ in range(2):
        result = subprocess.run(command, env=environment, capture_output=True, check=True)
        said.append(result.stdout)
        assert list(tmp_path.rglob("*.nbi")), "nothing is kept: the second process compiles as the first did"
    assert said[0] == said[1] and b"NaN" not in said[0]
