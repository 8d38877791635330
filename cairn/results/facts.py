"""What a reader should know of the weights behind a number: pretraining data and their overlap with benchmarks."""

import json
from collections.abc import Iterable
from pathlib import Path

QUIET = ("", "none")
"""What facts say where nothing was trained before."""
UNKNOWN = "not declared"
"""What facts say of a user's own model until the user says more."""


def pretraining_notes(root: Path, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """One line per system of the (benchmark, system) `pairs` whose encoder was trained on something, in order.

    Read from `descriptors.json`, which the numbers rest on. A run whose descriptors are not here is left out.
    """
    notes: dict[str, str] = {}
    for benchmark, system in sorted(pairs):
        path = Path(root) / "artifacts" / benchmark / system / "descriptors" / "descriptors.json"
        try:
            about = json.loads(path.read_text("utf-8"))
            pretraining, overlap = about["facts"]["pretraining"], about["facts"]["overlap"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if (pretraining in QUIET and overlap in QUIET) or system in notes:
            continue
        note = f"{system}: pretrained on {pretraining}; overlap with benchmarks: {overlap}"
        if UNKNOWN in (pretraining, overlap):
            own = str(about.get("encoder", "")).startswith("python:")
            place = "in FACTS of its module" if own else f"under systems.{system}.facts"
            note += f" (declare it {place}: docs/encoders.md)"
        notes[system] = note
    return [" ".join(note.split()) for note in notes.values()]
