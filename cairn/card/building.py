"""Builds the results card of a project: every number with its artifact and hash, every sentence computed."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from cairn.card.audit import check_card
from cairn.card.claims import Statement, compute, read_claims
from cairn.card.document import checked
from cairn.card.provenance import (
    artifacts_section,
    contamination_section,
    protocol_section,
    shortlist_of,
    sources_section,
    training_section,
)
from cairn.card.published import Published, published_rows
from cairn.card.schema import validate
from cairn.card.standing import label, percent, register_tables
from cairn.errors import ArtifactError
from cairn.files import write_json
from cairn.lineage import Trace, load_graph
from cairn.lineage.graph import load_numbers
from cairn.lineage.revision import read_revision
from cairn.lineage.tracing import trace_result
from cairn.results.database import open_database
from cairn.results.names import FIRST_STAGE, NONE, is_first
from cairn.results.table import RESULTS_PATH, Result

FORMAT = "cairn-card-1"
DEFAULT_PATH = "results-card.json"


def write_card(root: Path, path: Path) -> dict[str, Any]:
    """Write the card of the project at `root` to `path` and return it. Errors as `build_card`."""
    card = build_card(root)
    write_json(path, card)
    return card


def build_card(root: Path) -> dict[str, Any]:
    """The card of the project at `root`; the same artifacts and claims give the same card.

    Raises LineageError where a number cannot be traced or a claim is no longer true, ArtifactError where the
    results table is missing or empty, the card breaks its schema, or does not pass `check_card`.
    """
    root = Path(root)
    numbers = load_numbers(root)
    if not numbers:
        raise ArtifactError(f"{root / RESULTS_PATH}: there are no numbers yet: `cairn run` makes them")
    traces = _traces(root, numbers)
    own = _own_traces(root, numbers)
    cells = {str(result.name): _number(result, own[_alike(result)]) for result in numbers}
    percents = {str(result.name): percent(result.value) for result in numbers if result.unit == "fraction"}
    first = next(iter(traces.values()))
    card = {
        "format": FORMAT,
        "release": {"commit": first.revision.commit, "notes": list(first.revision.notes)},
        "metric": "percent with two decimals where the unit is percent, as it is elsewhere; intervals are 95%",
        "protocol_notes": protocol_section(root, numbers, traces),
        "training_protocols": training_section(root, numbers, traces),
        "ours": _results(numbers, cells),
        "published_comparison": _comparison(numbers, cells, traces, published_rows()),
        "claims": _claims(root, numbers, percents),
        "contamination": contamination_section(root, numbers),
        "seed_spread": _seeds(numbers),
        "provenance": {
            "results_table": _table(first),
            "artifacts": artifacts_section(traces),
            "sources": sources_section(traces),
        },
    }
    card = _plain(card)
    validate(card)
    _audited(card)
    return card


def _traces(root: Path, numbers: Iterable[Result]) -> dict[str, Trace]:
    """Scores artifact → everything it was made from, whichever of its numbers rests on it."""
    whole = {result.source_artifact: replace(result, computed_from=()) for result in numbers}
    return {artifact: trace for (artifact, _), trace in _own_traces(root, whole.values()).items()}


def _own_traces(root: Path, numbers: Iterable[Result]) -> dict[tuple[str, tuple[str, ...]], Trace]:
    """The way back of each number, once for all that share it."""
    graph, revision = load_graph(root), read_revision(root)
    made: dict[tuple[str, tuple[str, ...]], Trace] = {}
    for result in numbers:
        if _alike(result) not in made:
            made[_alike(result)] = trace_result(graph, result, revision)
    return made


def _alike(result: Result) -> tuple[str, tuple[str, ...]]:
    return result.source_artifact, result.computed_from


def _number(result: Result, trace: Trace) -> dict[str, Any]:
    """One number as it stands in the card: value, interval, name, artifact, hash."""
    fraction = result.unit == "fraction"
    made: dict[str, Any] = {
        "value": percent(result.value) if fraction else result.value,
        "unit": "percent" if fraction else result.unit,
        "number": str(result.name),
        "exact": result.value,
        "n_queries": result.n_queries,
        "gallery_size": result.gallery_size,
        "artifact": result.source_artifact,
        "md5": result.source_md5,
    }
    for key, bound in (("low", result.low), ("high", result.high)):
        if bound is not None:
            made[key] = percent(bound) if fraction else bound
    if trace.unverified:
        made["unpinned_sources"] = sorted(source.location for source in trace.unverified)
    return made


def _results(numbers: Iterable[Result], cells: Mapping[str, Any]) -> dict[str, Any]:
    """Stage → system (and head, seed) → benchmark → metric → slice → number."""
    tree: dict[str, Any] = {}
    for result in numbers:
        name = result.name
        node = tree
        for key in (name.stage, label(result), name.benchmark, name.metric):
            node = node.setdefault(key, {})
        node[name.slice] = cells[str(name)]
    return tree


def _comparison(
    numbers: Sequence[Result],
    cells: Mapping[str, Any],
    traces: Mapping[str, Trace],
    published: Sequence[Published],
) -> dict[str, Any]:
    benchmarks = {result.name.benchmark for result in numbers}
    known = [row for row in published if benchmarks & set(row.values)]
    if not known:
        return _missing("no published row is on one of these benchmarks: " + ", ".join(sorted(benchmarks)))
    rows: list[dict[str, Any]] = []
    for row in known:
        entry: dict[str, Any] = {
            "system": row.system,
            "stage": row.stage,
            "shortlist": row.shortlist,
            "source": row.source,
            "via": row.via,
            "uses_dinov2": row.uses_dinov2,
        }
        entry |= {name: dict(values) for name, values in row.values.items() if name in benchmarks}
        rows.append(entry | ({"note": row.note} if row.note else {}))
    compared = {name for row in known for name in row.values}
    metrics = {row.metric for row in known}
    own: dict[tuple[str, str], dict[str, Any]] = {}
    for result in numbers:
        name = result.name
        if name.benchmark in compared and name.metric in metrics:
            facts = traces[result.source_artifact]
            entry = own.setdefault(
                (label(result), name.stage),
                {
                    "system": f"{label(result)} with {name.stage}",
                    "stage": _kind(name.stage),
                    "shortlist": shortlist_of(facts, name.stage),
                    "source": "this release",
                    "uses_dinov2": _uses(facts, "dinov2"),
                },
            )
            entry.setdefault(name.benchmark, {})[name.slice] = cells[str(name)]
    rows += [own[key] for key in sorted(own)]
    return {
        "note": "rows of others as their papers print them; shortlist sizes differ where the column says so",
        "rows": rows,
    }


def _claims(root: Path, numbers: Sequence[Result], percents: Mapping[str, Decimal]) -> list[dict[str, Any]]:
    made = []
    with open_database(root) as connection:
        register_tables(connection, numbers, published_rows())
        for claim in read_claims(root):
            statements = list(compute(claim, connection, percents))
            if statements:
                made.append(
                    {
                        "name": claim.name,
                        "about": claim.about,
                        "query": claim.query,
                        "defined_in": claim.file,
                        "statements": [_statement(statement) for statement in statements],
                    }
                )
    return made


def _statement(statement: Statement) -> dict[str, Any]:
    """A sentence with its numbers as it writes them, and the names of those it compares.

    `against` and `source` where one of them is another's.
    """
    facts = {
        "stated": list(statement.stated) or None,
        "difference": statement.difference,
        "of": statement.of,
        "minus": statement.minus,
        "against": statement.against,
        "source": statement.values.get("source"),
    }
    return {"sentence": statement.sentence} | {
        key: value for key, value in facts.items() if value is not None
    }


def _seeds(numbers: Iterable[Result]) -> dict[str, Any]:
    """Mean and standard deviation (n − 1) over the seeds of what was run with two or more."""
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in numbers:
        name = result.name
        if name.seed != NONE and result.unit == "fraction":
            groups[(name.stage, name.system, name.head, name.benchmark, name.metric, name.slice)].append(
                result
            )
    tree: dict[str, Any] = {}
    for (stage, system, head, benchmark, metric, piece), results in sorted(groups.items()):
        if len(results) < 2:
            continue
        values = [result.value for result in results]
        node = tree
        trained = system if head == NONE else f"{system}/{head}"
        for key in (stage, trained, benchmark, metric):
            node = node.setdefault(key, {})
        node[piece] = {
            "mean": percent(statistics.fmean(values)),
            "sd": percent(statistics.stdev(values)),
            "seeds": len(results),
            "numbers": sorted(str(result.name) for result in results),
            "artifact": RESULTS_PATH,
        }
    return tree or _missing("no system was run with two or more seeds")


def _kind(stage: str) -> str:
    """`global only`, with the options around the search where there are any, or `two stage`."""
    if not is_first(stage):
        return "two stage"
    options = stage.removeprefix(FIRST_STAGE).removeprefix("-")
    return f"global only ({options})" if options else "global only"


def _uses(trace: Trace, name: str) -> bool:
    """Whether a parameter under the number names `name`."""
    return any(
        isinstance(value, str) and name in value.lower()
        for artifact in trace.artifacts.values()
        for code in artifact.code
        for _, value in _leaves(code.parameters)
    )


def _leaves(value: Any, key: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, key)
    else:
        yield key, value


def _table(trace: Trace) -> dict[str, Any]:
    return (
        _missing("dvc.lock does not record the results table")
        if trace.table is None
        else {
            "path": RESULTS_PATH,
            "artifact": asdict(trace.table)["path"],
            "md5": trace.table.md5,
        }
    )


def _missing(reason: str) -> dict[str, str]:
    """What stands in a section that has no data."""
    return {"status": "no data", "reason": reason}


def _plain(value: Any) -> Any:
    """Decimals as the floats that are printed like them, tuples as lists."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _audited(card: dict[str, Any]) -> None:
    """Our own card passes our own audit, as it will be read."""
    findings = check_card(checked(json.loads(json.dumps(card)), "card"))
    wrong = [finding for finding in findings if finding.severity == "error"]
    if wrong:
        raise ArtifactError(
            f"the card does not pass its own audit ({len(wrong)} errors), first: {wrong[0].path}: {wrong[0].message}"
        )
