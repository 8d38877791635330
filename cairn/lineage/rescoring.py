"""Scores stored rankings again: a stored number must be the one that its artifacts give."""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.errors import CairnError
from cairn.lineage.scope import Finding, Scope
from cairn.progress import track
from cairn.results.table import Result, read_results

SCORES_FILE = "scores.parquet"
# Another processor may add in another order; a value that differs by more was not computed from these files.
TOLERANCE = 1e-12

ChangedCode = Callable[[Path, Mapping[str, Any]], Sequence[str]]
Rescore = Callable[[Path, str, Path], None]


def check_scores(
    scope: Scope, rescore: Rescore, changed_code: ChangedCode | None
) -> tuple[list[Finding], list[str]]:
    """Every chosen number against what its stored rankings give now: value, interval, queries, gallery, unit.

    `rescore(root, stage, folder)` runs the stage that scored once more, into `folder`. A run is left out where one
    of the artifacts it is scored from is not what was recorded (that is a finding already). Where the scoring code
    is not the recorded one any more, a difference is a note.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    chosen: dict[str, list[Result]] = {}
    for result in scope.chosen:
        artifact = result.source_artifact
        if artifact in scope.graph.producer and SCORES_FILE in scope.content[artifact].files:
            chosen.setdefault(artifact, []).append(result)
    for artifact in track(sorted(chosen), "Scoring again", total=len(chosen), unit="runs"):
        edges = scope.graph.edges(scope.graph.producer[artifact])
        used = {origin for edge in edges for origin in edge.made_by}
        if not all(scope.intact(output) for output in used if output in scope.content):
            continue
        absent = [edge.input.path for edge in edges if not (scope.root / edge.input.path).exists()]
        if absent:
            notes.append(f"{artifact} cannot be scored again: {absent[0]} is not here (`dvc pull`)")
            continue
        again, problem = _again(scope, artifact, rescore)
        if problem is not None:
            notes.append(f"{artifact} cannot be scored again: {problem}")
            continue
        same_code = _same_code(scope, artifact, changed_code)
        for row in chosen[artifact]:
            now = again.get(str(row.name))
            said = _difference(row, now)
            if said is None:
                continue
            message = f"{row.name}: {said}"
            if same_code:
                found = None if now is None else repr(now.value)
                name = (str(row.name),)
                findings.append(Finding("score", artifact, None, repr(row.value), found, message, name))
            else:
                notes.append(f"{message} (by other scoring code than was recorded): `cairn run`")
    return findings, notes


def _again(scope: Scope, artifact: str, rescore: Rescore) -> tuple[dict[str, Result], str | None]:
    """The run's numbers, by name, computed from its rankings as they lie there; and why they could not be."""
    problem = None
    with tempfile.TemporaryDirectory(prefix="cairn-verify-") as folder:
        try:
            rescore(scope.root, scope.graph.producer[artifact].name, Path(folder))
        except (CairnError, OSError, ValueError, KeyError, TypeError) as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        # The numbers come first: where only a picture could not be drawn, they are there.
        try:
            return {str(row.name): row for row in read_results(Path(folder) / SCORES_FILE)}, None
        except CairnError as error:
            return {}, problem or str(error)


def _difference(stored: Result, again: Result | None) -> str | None:
    if again is None:
        return "its stored ranking gives no such number"
    for name in ("value", "low", "high", "n_queries", "gallery_size", "unit"):
        before, after = getattr(stored, name), getattr(again, name)
        equal = before == after
        if isinstance(before, float) and isinstance(after, float):
            equal = math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not equal:
            return f"its {name} is {before}, its stored ranking gives {after}"
    return None


def _same_code(scope: Scope, artifact: str, changed_code: ChangedCode | None) -> bool:
    codes = scope.graph.code(scope.graph.producer[artifact])
    if not all(code.current for code in codes):
        return False
    return changed_code is None or not any(
        changed_code(scope.root, {"modules": code.modules, "data": code.data}) for code in codes
    )
