"""Scores stored rankings again: what stands in the scores must be what the stored artifacts give."""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cairn.errors import CairnError
from cairn.lineage.graph import SCORES_FILE
from cairn.lineage.made_again import TOLERANCE, differences
from cairn.lineage.scope import Finding, Scope
from cairn.progress import track
from cairn.results.table import Result, read_results

COMPARED = ("value", "low", "high", "n_queries", "gallery_size", "unit", "computed_from")
GATHERED = ("artifacts/results", "artifacts/heads")
"""What is made from the scores of all runs: the table with its metrics and plots, the report about heads."""

ChangedCode = Callable[[Path, Mapping[str, Any]], Sequence[str]]
Rescore = Callable[[Path, str, Path], None]


def check_scores(
    scope: Scope, rescore: Rescore, changed_code: ChangedCode | None
) -> tuple[list[Finding], list[str]]:
    """What every chosen number's stored ranking gives now against what is stored, down to the value of each query.

    `rescore(root, stage, folder)` runs the stage that scored once more, into `folder`; where all numbers are
    chosen, those that gather the scores of all runs too. A run is left out where one of the artifacts it is made
    from is not what was recorded (that is a finding already). Where the scoring code is not the recorded one any
    more, a difference is a note; so is another picture, since only its look can be compared.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    chosen: dict[str, list[Result]] = {}
    for result in scope.chosen:
        artifact = result.source_artifact
        if artifact in scope.graph.producer and SCORES_FILE in scope.content[artifact].files:
            chosen.setdefault(artifact, []).append(result)
    for artifact in GATHERED if scope.complete else ():
        content = scope.content.get(artifact)
        if content is not None and content.files and scope.intact(artifact):
            chosen[artifact] = []
    for artifact in track(list(chosen), "Scoring again", total=len(chosen), unit="artifacts"):
        edges = scope.graph.edges(scope.graph.producer[artifact])
        used = {origin for edge in edges for origin in edge.made_by}
        if not all(
            scope.intact(output) for output in used if output in scope.content and _there(scope, output)
        ):
            continue
        absent = [edge.input.path for edge in edges if not (scope.root / edge.input.path).exists()]
        if absent:
            notes.append(f"{artifact} cannot be scored again: {absent[0]} is not here (`dvc pull`)")
            continue
        with tempfile.TemporaryDirectory(prefix="cairn-verify-") as folder:
            found, said = _check(scope, artifact, chosen[artifact], Path(folder), rescore)
        if _same_code(scope, artifact, changed_code):
            findings += found
        else:
            said += [f"{one.message} (by other scoring code than was recorded): `cairn run`" for one in found]
        notes += said
    return findings, notes


def _check(
    scope: Scope, artifact: str, rows: Sequence[Result], folder: Path, rescore: Rescore
) -> tuple[list[Finding], list[str]]:
    problem = None
    try:
        rescore(scope.root, scope.graph.producer[artifact].name, folder)
    except (CairnError, OSError, ValueError, KeyError, TypeError) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
    again: dict[str, Result] = {}
    if artifact not in GATHERED:
        # The numbers come first: where only a picture could not be drawn, they are there.
        try:
            again = {str(row.name): _relative(row, scope.root) for row in read_results(folder / SCORES_FILE)}
        except CairnError as error:
            return [], [f"{artifact} cannot be scored again: {problem or error}"]
    elif problem is not None:
        return [], [f"{artifact} cannot be made again: {problem}"]
    findings = list(_numbers(scope, artifact, rows, again)) if artifact not in GATHERED else []
    if problem is not None:
        return findings, [f"{artifact} cannot be made again as a whole: {problem}"]
    others, pictures = differences(scope.root / artifact, folder)
    tainted = scope.tainted([artifact])
    for file, difference in others:
        message = f"{artifact}/{file}: {difference}"
        findings.append(Finding("score", artifact, f"{artifact}/{file}", None, None, message, tainted))
    return findings, [f"{artifact}/{file} looks otherwise when it is drawn again" for file in pictures]


def _numbers(
    scope: Scope, artifact: str, rows: Sequence[Result], again: Mapping[str, Result]
) -> Iterator[Finding]:
    for row in rows:
        now = again.get(str(row.name))
        said = _difference(row, now)
        if said is not None:
            found = None if now is None else repr(now.value)
            name = (str(row.name),)
            yield Finding("score", artifact, None, repr(row.value), found, f"{row.name}: {said}", name)
    if scope.complete:
        lacking = sorted(set(again) - {str(row.name) for row in rows})
        for name in lacking:
            message = f"{name}: its stored ranking gives {again[name].value}, which {artifact} does not have"
            yield Finding("score", artifact, None, None, repr(again[name].value), message, (name,))


def _difference(stored: Result, again: Result | None) -> str | None:
    if again is None:
        return "its stored ranking gives no such number"
    for name in COMPARED:
        before, after = getattr(stored, name), getattr(again, name)
        equal = before == after
        if isinstance(before, float) and isinstance(after, float):
            equal = math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if not equal:
            return f"its {name} is {_shown(before)}, its stored ranking gives {_shown(after)}"
    return None


def _relative(row: Result, root: Path) -> Result:
    """What was scored again read its inputs where they lie; a stored row names them as the project does."""
    return replace(
        row, computed_from=tuple(path.removeprefix(f"{root.as_posix()}/") for path in row.computed_from)
    )


def _shown(value: Any) -> str:
    return (", ".join(value) or "not said") if isinstance(value, tuple) else str(value)


def _there(scope: Scope, output: str) -> bool:
    """Whether an output counts: what systems left that are no longer listed may lie elsewhere."""
    return output in scope.outputs or bool(scope.content[output].files)


def _same_code(scope: Scope, artifact: str, changed_code: ChangedCode | None) -> bool:
    codes = scope.graph.code(scope.graph.producer[artifact])
    if not all(code.current for code in codes):
        return False
    return changed_code is None or not any(
        changed_code(scope.root, {"modules": code.modules, "data": code.data}) for code in codes
    )
