"""Whether `dvc.lock` agrees with itself: stages that are gone, commands and parameters that were edited."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cairn.errors import LineageError
from cairn.lineage.entries import MEND
from cairn.lineage.graph import ARTIFACTS, CODE_FOLDER, CODE_STAGE
from cairn.lineage.lock import LOCK, Stage, parse_yaml
from cairn.lineage.scope import Finding, Scope
from cairn.results.names import printable
from cairn.results.table import RESULTS_PATH

PARAMETERS = "params.yaml"
SHOWN = 3


@dataclass(frozen=True)
class Declared:
    """What `params.yaml` declares of a stage: the paths that it reads, and the one that it writes."""

    inputs: tuple[str, ...]
    output: str


def check_recorded(scope: Scope) -> tuple[list[Finding], list[str]]:
    """Everything under `artifacts/` that a stage used must be something that a recorded stage made."""
    used: dict[str, list[str]] = {}
    tainted: dict[str, set[str]] = {}
    for output in scope.outputs:
        for path in scope.graph.unrecorded(scope.graph.producer[output]):
            code = path.startswith(CODE_FOLDER)
            numbers = scope.tainted([output]) if code else scope.tainted_through(output, path)
            if numbers:
                shown = CODE_FOLDER.rstrip("/") if code else path
                used.setdefault(shown, []).append(output)
                tainted.setdefault(shown, set()).update(numbers)
    findings = [
        _unrecorded(
            path,
            f"{scope.graph.producer[outputs[0]].name} used {path}, but {LOCK} records no stage that made it",
            tuple(sorted(tainted[path])),
        )
        for path, outputs in sorted(used.items())
    ]
    if not scope.table:
        message = f"{LOCK} records no stage that made {RESULTS_PATH}"
        findings.append(
            _unrecorded(RESULTS_PATH, message, tuple(str(result.name) for result in scope.chosen))
        )
    known = {*scope.outputs, *scope.readers}
    for benchmark, numbers in sorted(scope.benchmarks.items()):
        manifest = f"{ARTIFACTS}{benchmark}/manifest"
        if manifest not in known:
            message = f"{LOCK} records no {manifest} under these numbers: their images cannot be compared"
            findings.append(_unrecorded(manifest, message, tuple(numbers)))
    return findings, []


def check_commands(scope: Scope) -> tuple[list[Finding], list[str]]:
    """Every stage's recorded command must be the one its name implies, with the code file that goes with it."""
    findings = []
    for stage in scope.every_stage:
        numbers = _numbers(scope, stage)
        artifact = stage.outputs[0].path if stage.outputs else stage.name
        expected = _command(stage.name)
        if stage.command != expected:
            message = (
                f"{LOCK} records the command {printable(stage.command)} for {stage.name}, not {expected!r}"
            )
            findings.append(Finding("command", artifact, None, None, None, f"{message}: {MEND}", numbers))
        known = {PARAMETERS} if stage.name == CODE_STAGE else set()
        if stage.name != CODE_STAGE:
            step, key = _step_and_key(stage.name)
            file = f"{CODE_FOLDER}{step}/{key}.json"
            known = {file}
            digest = stage.parameters.get(file, {}).get("digest")
            if not isinstance(digest, str) and file not in {item.path for item in stage.inputs}:
                message = f"{LOCK} records no digest of the code that made {artifact} ({file}): {MEND}"
                findings.append(Finding("parameters", artifact, file, None, None, message, numbers))
        for file in sorted(set(stage.parameters) - known):
            message = f"{LOCK} records parameters from {printable(file)} for {stage.name}, which has none there: {MEND}"
            findings.append(Finding("parameters", artifact, file, None, None, message, numbers))
    return findings, []


def declared_notes(scope: Scope, declared: Mapping[str, Declared]) -> list[str]:
    """What a stage is declared with and `dvc.lock` records otherwise: it hides it, or `params.yaml` changed since."""
    notes = []
    for stage in scope.every_stage:
        if stage.name not in declared:
            continue
        wanted = declared[stage.name]
        # The user's own files may be written in several ways: `../images`, from the root, with a `/` at the end.
        places = {os.path.normpath(scope.root / path): path for path in wanted.inputs}
        recorded = {os.path.normpath(scope.root / item.path): item.path for item in stage.inputs}
        lacking = {path for place, path in places.items() if place not in recorded}
        further = {path for place, path in recorded.items() if place not in places}
        if lacking:
            notes.append(
                f"{LOCK} does not record that {stage.name} used {_listed(lacking)}, which {PARAMETERS} "
                "declares: its numbers may rest on more than is shown; `cairn run`"
            )
        if further:
            notes.append(
                f"{LOCK} records that {stage.name} used {_listed(further)}, which {PARAMETERS} does not declare; "
                "`cairn run`"
            )
        made = {item.path for item in stage.outputs}
        if made != {wanted.output}:
            notes.append(
                f"{LOCK} records that {stage.name} made {_listed(made) or 'nothing'}, {PARAMETERS} declares "
                f"{wanted.output}; `cairn run`"
            )
    if scope.complete:
        absent = sorted(set(declared) - set(scope.graph.stages))
        notes += [
            f"{LOCK} records no run of {name}, which {PARAMETERS} declares; `cairn run`" for name in absent
        ]
    return [*notes, *_code_notes(scope)] if declared else notes


def _code_notes(scope: Scope) -> list[str]:
    """`params.yaml` as the code stage recorded it: from it come the parameters of all other stages."""
    stage = scope.code_stage
    if stage is None:
        return []
    recorded = stage.parameters.get(PARAMETERS)
    if not recorded:
        return [f"{LOCK} does not record with which {PARAMETERS} {stage.name} was run; `cairn run`"]
    path = scope.root / PARAMETERS
    try:
        now = parse_yaml(path.read_bytes(), path)
    except (OSError, LineageError) as error:
        return [f"{PARAMETERS} cannot be compared with {LOCK}: {error}"]
    now = {key: now.get(key) for key in recorded} if isinstance(now, dict) else {}
    shown = _differing(recorded, now, PARAMETERS)
    return (
        [f"{PARAMETERS} is not the one that {stage.name} was run with: {shown}; `cairn run`"] if shown else []
    )


def check_parameters(scope: Scope) -> tuple[list[Finding], list[str]]:
    """Recorded parameters against those in the code file, where both are of one code.

    Where the digests differ the code is another one, which is a note (`checks.code_notes`).
    """
    findings = []
    for stage in scope.every_stage:
        for file, recorded in sorted(stage.parameters.items()):
            now = scope.graph.code_file(file) if file.startswith(CODE_FOLDER) else None
            if now is None or now.get("digest") != recorded.get("digest"):
                continue
            shown = _differing(recorded.get("parameters"), now.get("parameters"), file)
            if shown:
                message = f"parameters of {stage.name} differ for the same code: {shown}: {MEND}"
                artifact = stage.outputs[0].path if stage.outputs else stage.name
                findings.append(
                    Finding("parameters", artifact, file, None, None, message, _numbers(scope, stage))
                )
    return findings, []


def _numbers(scope: Scope, stage: Stage) -> tuple[str, ...]:
    return scope.tainted(
        scope.users_of_code if stage is scope.code_stage else [output.path for output in stage.outputs]
    )


def _differing(recorded: Any, now: Any, file: str) -> str:
    """Which values differ, in words; empty where none does."""
    before, after = dict(_flatten(recorded)), dict(_flatten(now))
    names = sorted(name for name in {*before, *after} if _differ(before, after, name))
    shown = ", ".join(
        f"{name or 'all'} is {_shown(before, name)} in {LOCK} and {_shown(after, name)} in {file}"
        for name in names[:SHOWN]
    )
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _listed(paths: set[str]) -> str:
    return printable(", ".join(sorted(paths)))


def _unrecorded(artifact: str, message: str, numbers: tuple[str, ...]) -> Finding:
    return Finding("unrecorded", artifact, None, None, None, f"{message}: {MEND}", numbers)


def _command(name: str) -> str:
    if name == CODE_STAGE:
        return f"python -m pipelines {CODE_STAGE}"
    return "python -m pipelines step {} {}".format(*_step_and_key(name))


def _step_and_key(name: str) -> tuple[str, str]:
    """`sources-toytown@mine` is the step `sources` of `mine`; a stage without a key is for all."""
    step, _, key = name.partition("@")
    return step.split("-")[0], key or "all"


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name → value; an absent or empty mapping is no parameter at all."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flatten(item, f"{prefix}.{key}" if prefix else str(key))
        if not value and prefix:
            yield prefix, {}
    elif value is not None or prefix:
        yield prefix, value


def _differ(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> bool:
    return name not in before or name not in after or before[name] != after[name]


def _shown(values: Mapping[str, Any], name: str) -> str:
    return printable(str(values[name]), 40) if name in values else "absent"
