"""Whether `dvc.lock` agrees with itself: stages that are gone, commands and parameters that were edited."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cairn.lineage.graph import ARTIFACTS, CODE_FOLDER, CODE_STAGE
from cairn.lineage.lock import LOCK
from cairn.lineage.scope import Finding, Scope
from cairn.results.names import printable
from cairn.results.table import RESULTS_PATH

MEND = f"`git checkout {LOCK}` or `cairn run`"
SHOWN = 3


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
    code = scope.graph.stages.get(CODE_STAGE)
    for stage in [*scope.stages, *([code] if code else [])]:
        outputs = list(scope.users_of_code) if stage is code else [output.path for output in stage.outputs]
        numbers = scope.tainted(outputs)
        artifact = stage.outputs[0].path if stage.outputs else stage.name
        expected = _command(stage.name)
        if stage.command != expected:
            message = (
                f"{LOCK} records the command {printable(stage.command)} for {stage.name}, not {expected!r}"
            )
            findings.append(Finding("command", artifact, None, None, None, f"{message}: {MEND}", numbers))
        if stage is not code:
            step, key = _step_and_key(stage.name)
            file = f"{CODE_FOLDER}{step}/{key}.json"
            digest = stage.parameters.get(file, {}).get("digest")
            if not isinstance(digest, str) and file not in {item.path for item in stage.inputs}:
                message = f"{LOCK} records no digest of the code that made {artifact} ({file}): {MEND}"
                findings.append(Finding("parameters", artifact, file, None, None, message, numbers))
    return findings, []


def input_notes(scope: Scope, declared: Mapping[str, Collection[str]]) -> list[str]:
    """Inputs that a stage is declared with and `dvc.lock` does not record: it hides them, or was run without them."""
    notes = []
    for stage in scope.stages:
        recorded = {item.path for item in stage.inputs}
        lacking = sorted(set(declared.get(stage.name, ())) - recorded)
        if lacking:
            notes.append(
                f"{LOCK} does not record that {stage.name} used {printable(', '.join(lacking))}, which params.yaml "
                "declares: its numbers may rest on more than is shown; `cairn run`"
            )
    return notes


def check_parameters(scope: Scope) -> tuple[list[Finding], list[str]]:
    """Recorded parameters against those in the code file, where both are of one code.

    Where the digests differ the code is another one, which is a note (`checks.code_notes`).
    """
    findings = []
    for stage in scope.stages:
        for file, recorded in sorted(stage.parameters.items()):
            now = scope.graph.code_file(file) if file.startswith(CODE_FOLDER) else None
            if now is None or now.get("digest") != recorded.get("digest"):
                continue
            before, after = (dict(_flatten(record.get("parameters"))) for record in (recorded, now))
            if before != after:
                names = sorted(name for name in {*before, *after} if _differ(before, after, name))
                shown = ", ".join(
                    f"{name or 'all'} is {_shown(before, name)} in {LOCK} and {_shown(after, name)} in {file}"
                    for name in names[:SHOWN]
                )
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                message = f"parameters of {stage.name} differ for the same code: {shown}{more}: {MEND}"
                outputs = [output.path for output in stage.outputs]
                findings.append(
                    Finding("parameters", outputs[0], file, None, None, message, scope.tainted(outputs))
                )
    return findings, []


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
