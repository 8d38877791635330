"""Whether the results table says what the scores say: every row in every column, none left out, none added."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from cairn.errors import ArtifactError
from cairn.lineage.graph import SCORES_FILE
from cairn.lineage.scope import Finding, Group, Scope
from cairn.results.names import NONE, NumberName, printable
from cairn.results.table import RESULTS_PATH, SCORES_PATH, Result, read_results

# What the table adds to a row of the scores: `home_of` and `check_table` compare these.
ADDED = ("name", "source_artifact", "source_md5")
COPIED = tuple(field.name for field in fields(Result) if field.name not in ADDED)
SHOWN = 3


def home_of(name: NumberName) -> str:
    """The scores artifact that a number belongs to: that of its run, or of a head's protocol."""
    head = "" if name.head == NONE else f".{name.head}"
    return f"{SCORES_PATH}/{name.benchmark}/{name.system}{head}"


def check_rows(scope: Scope) -> tuple[list[Finding], list[str]]:
    """Every chosen row against the row of the scores that it was read from, and what it says it was computed from.

    Where all numbers are chosen, also that the table has every number of the runs that it was made for.
    """
    findings = [finding for group in scope.groups for finding in _unknown_inputs(scope, group)]
    by_home: dict[str, list[Result]] = {}
    for row in scope.chosen:
        home = home_of(row.name)
        by_home.setdefault(home, []).append(row)
        # One inside an artifact, or above it, would pass for that artifact.
        if row.source_artifact != home:
            message = f"{row.name} is said to be read from {printable(row.source_artifact)}, expected {home}"
            findings.append(_finding(row.source_artifact, message, row, row.source_artifact, home))
    if scope.complete:
        for home in _listed(scope):
            by_home.setdefault(home, [])
    for home, rows in sorted(by_home.items()):
        if home in scope.graph.outputs and scope.intact(home) and SCORES_FILE in scope.content[home].files:
            findings += _compare(scope, home, rows)
    return findings, []


def _compare(scope: Scope, home: str, rows: Sequence[Result]) -> Iterator[Finding]:
    try:
        stored = {row.name: row for row in read_results(scope.root / home / SCORES_FILE)}
    except ArtifactError as error:
        file = f"{home}/{SCORES_FILE}"
        yield Finding("unreadable", home, file, None, None, str(error), scope.tainted([home]))
        return
    for row in rows:
        there = stored.get(row.name)
        if there is None:
            yield _finding(home, f"{row.name} stands in {RESULTS_PATH}, {home} has no such number", row)
            continue
        for name in COPIED:
            said, expected = getattr(row, name), getattr(there, name)
            # By their text: NaN is NaN, and 0.1 is not 0.1 + 1e-17.
            if repr(said) != repr(expected):
                message = f"{row.name}: its {name} is {said} in {RESULTS_PATH}, expected {expected} ({home})"
                yield _finding(home, message, row, repr(said), repr(expected))
    lacking = sorted(str(name) for name in set(stored) - {row.name for row in rows}) if scope.complete else []
    if lacking:
        more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        message = (
            f"{RESULTS_PATH} lacks {', '.join(lacking[:SHOWN])}{more}, expected from {home}: `cairn run`"
        )
        yield Finding("row", home, RESULTS_PATH, None, None, message, tuple(lacking))


def _unknown_inputs(scope: Scope, group: Group) -> Iterator[Finding]:
    """A number that names an input which its artifact was not made from would pass for one that rests on all."""
    stage = scope.graph.producer[group.artifact]
    known = {item.path for item in stage.inputs}
    chosen = {row.name for row in scope.chosen}
    names = tuple(str(row.name) for row in group.rows if row.name in chosen)
    for path in sorted(set(group.rows[0].computed_from) - known) if names else ():
        which = f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"
        message = f"{which} said to be computed from {printable(path)}, expected an input of {stage.name}"
        yield Finding("row", group.artifact, RESULTS_PATH, path, None, message, names)


def _listed(scope: Scope) -> Iterator[str]:
    """The scores artifacts of the runs and heads that the table was made for, as `dvc.lock` records them."""
    for path in scope.table:
        for recorded in scope.graph.producer[path].parameters.values():
            values = recorded.get("parameters")
            runs = values.get("runs") if isinstance(values, Mapping) else None
            for run in runs.values() if isinstance(runs, Mapping) else ():
                if isinstance(run, Mapping) and {"benchmark", "system"} <= set(run):
                    place = f"{SCORES_PATH}/{run['benchmark']}/{run['system']}"
                    heads = run.get("heads")
                    yield place
                    yield from (f"{place}.{head}" for head in heads) if isinstance(heads, list) else ()


def _finding(
    artifact: str, message: str, row: Result, said: str | None = None, expected: str | None = None
) -> Finding:
    return Finding("row", artifact, RESULTS_PATH, said, expected, message, (str(row.name),))
