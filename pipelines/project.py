"""Where the project stands, and the paths in it that every part agrees on."""

import os
from pathlib import Path

from cairn.errors import UsageError

PARAMETERS = "params.yaml"
PIPELINE = "dvc.yaml"
LOCK = "dvc.lock"
ARTIFACTS = "artifacts"
CODE = "artifacts/code"
SCORES = "artifacts/scores"
RESULTS = "artifacts/results"
BLESSINGS = "blessings.json"


def find_root(start: Path | None = None) -> Path:
    """The nearest folder, from `start` (the working directory) upwards, that holds `params.yaml` and `assets/`.

    `CAIRN_ROOT` overrides the search. Raises `UsageError` where there is none, or where the project's code is
    not the code that runs (two checkouts, one environment): its numbers would be recorded under the wrong code.
    """
    given = os.environ.get("CAIRN_ROOT")
    start = Path(given) if given else (start or Path.cwd())
    for folder in (start.absolute(), *start.absolute().parents):
        if (folder / PARAMETERS).is_file() and (folder / "assets").is_dir():
            _same_code(folder)
            return folder
        if given:
            break
    raise UsageError(
        f"no Cairn project at {start} or above it: a folder with {PARAMETERS} and assets/ is expected"
    )


def enter_root() -> Path:
    """`find_root`, and make it the working directory: DVC and the paths of `params.yaml` start from there."""
    root = find_root()
    os.chdir(root)
    return root


def _same_code(root: Path) -> None:
    running = Path(__file__).resolve().parents[1]
    if root.resolve() != running and (root / "pipelines").is_dir():
        raise UsageError(
            f"the project at {root} has its own code, but the code that runs is {running}; "
            "use that project's environment, or `python -m pipelines …` inside it"
        )
