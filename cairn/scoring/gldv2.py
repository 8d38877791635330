"""Google Landmarks v2 retrieval: a Kaggle submission against the published solution."""

from pathlib import Path

import numpy as np

from cairn.errors import InputError
from cairn.metrics import gldv2
from cairn.metrics.result import PerQuery, ScoredRun, scored
from cairn.scoring.files import Table, read_table, unfinished

USAGES = ("Public", "Private", "Ignored")


def read_solution(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Usage (Public, Private or Ignored) and positives of every test image, from `id,images,Usage`.

    Images are separated by blanks; `None` marks an ignored test image, whatever its usage.
    """
    table = read_table(path, ("id", "images", "Usage"))
    usage: dict[str, str] = {}
    positives: dict[str, list[str]] = {}
    for row, (name, images, use) in enumerate(zip(*table.columns.values(), strict=True)):
        _check_id(table, row, name, usage)
        if use not in USAGES:
            table.fail(row, f"test image {name}: Usage is {use!r:.40}; expected {', '.join(USAGES)}")
        usage[name] = "Ignored" if images == "None" else use
        positives[name] = [] if usage[name] == "Ignored" else list[str](images.split())
        if len(set(positives[name])) < len(positives[name]):
            table.fail(row, f"test image {name}: an image is listed twice")
    if not usage:
        raise InputError(f"{path}: no test image; expected rows of id,images,Usage")
    return usage, positives


def read_submission(path: Path, known: dict[str, str]) -> dict[str, list[str]]:
    """Predicted index images of every test image, best first, from `id,images`; ids must be `known`."""
    table = read_table(path, ("id", "images"))
    predictions: dict[str, list[str]] = {}
    for row, (name, images) in enumerate(zip(*table.columns.values(), strict=True)):
        _check_id(table, row, name, predictions)
        if name not in known:
            table.fail(row, f"test image {name!r:.60} is not in the solution")
        predictions[name] = images.split()
    return predictions


def score(submission: Path, solution: Path) -> ScoredRun:
    """mAP@100 of a submission: `public`, `private` and `all`."""
    usage, positives = read_solution(Path(solution))
    predictions = read_submission(Path(submission), usage)
    names = [name for name, use in usage.items() if use != "Ignored"]
    query, place, correct = [], [], []
    repeats = long = 0
    for number, name in enumerate(names):
        images = predictions.get(name, [])
        long += len(images) > gldv2.K
        images = images[: gldv2.K]
        first = {image: rank for rank, image in reversed(list(enumerate(images)))}
        repeats += len(first) < len(images)
        for image in positives[name]:
            if image in first:
                query.append(number)
                place.append(first[image])
                correct.append(True)
    order = np.lexsort((place, query))
    values = gldv2.score(
        np.array(query, np.int64)[order],
        np.array(place, np.int64)[order],
        np.array(correct, bool)[order],
        np.array([len(positives[name]) for name in names]),
    )
    parts = {
        "public": [i for i, name in enumerate(names) if usage[name] == "Public"],
        "private": [i for i, name in enumerate(names) if usage[name] == "Private"],
        "all": list(range(len(names))),
    }
    per_query = [
        PerQuery(part, f"map@{gldv2.K}", tuple(names[i] for i in members), values[members])
        for part, members in parts.items()
    ]
    notes = {
        "test images have no row in the submission and score 0": sum(n not in predictions for n in names),
        f"test images have more than {gldv2.K} predictions; the first {gldv2.K} count": long,
        "test images repeat a prediction; a repeat takes up its place and is never correct": repeats,
        "test images have no positive and are left out": sum(not positives[name] for name in names),
    }
    warnings = [f"{count:,} {note}" for note, count in notes.items() if count]
    return scored("gldv2", per_query, [*warnings, *unfinished(submission, solution)])


def _check_id(table: Table, row: int, name: str, seen: dict) -> None:
    if not name:
        table.fail(row, "the id is empty")
    if name in seen:
        table.fail(row, f"test image {name} occurs twice")
