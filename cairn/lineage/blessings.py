"""Old bytes accepted under new code: what `cairn bless` recorded as evidence, in words."""

import json
from pathlib import Path
from typing import Any

BLESSINGS_FILE = "blessings.json"


def blessing_notes(root: Path, stage: str, md5: str | None) -> tuple[str, ...]:
    """One line per blessing of the output `md5` of `stage`, oldest first.

    The file is kept in git beside `dvc.lock`. A damaged one gives a line that says so: evidence that cannot be
    read is no evidence.
    """
    path = Path(root) / BLESSINGS_FILE
    if not path.is_file():
        return ()
    try:
        records: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return tuple(
            _sentence(record)
            for record in records
            if record["stage"] == stage and record["output_hash"] == md5
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return (f"{BLESSINGS_FILE} cannot be read: whether this output was blessed is unknown",)


def _sentence(record: dict[str, Any]) -> str:
    tolerance = f", tolerance {record['tolerance']:g}" if record["tolerance"] else ""
    return (
        f"blessed: made by code {record['old_digest'][:12]}, accepted under {record['new_digest'][:12]} after "
        f"{record['compared']} {record['unit']} were recomputed (seed {record['seed']}{tolerance}): "
        f"largest difference {record['largest_difference']:g}"
    )
