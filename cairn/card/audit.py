"""Audits a results file: arithmetic of its claims, counts, ranges, sources, unlike comparisons."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.card.comparisons import check_comparisons
from cairn.card.counts import check_counts
from cairn.card.document import checked
from cairn.card.finding import Finding, ordered
from cairn.card.published import check_published
from cairn.card.ranges import check_ranges
from cairn.card.repeats import check_rows
from cairn.card.rows import find_rows
from cairn.card.statements import check_statements
from cairn.card.structured import check_structured, sentences_with_operands
from cairn.card.superlatives import check_bounds
from cairn.card.totals import check_totals
from cairn.card.tracing import check_sources


def check_card(document: Mapping[str, Any], folder: Path | None = None) -> list[Finding]:
    """Every finding about the results file `document`, gravest first.

    `document` is what a JSON file of results holds (`cairn.card.read_document` reads one that nobody vouches
    for). `folder`: where it lies, so that files which it cites as lying beside it are looked for.
    The rules know no particular file: they find rows of results by their columns, read the sentences for
    differences, repeated values, superlatives and bounds, tie them to rows by their words, and recompute them.
    Raises InputError where `document` is no object, too deep, too large, or holds a number that is not finite.
    """
    document = checked(document)
    table = find_rows(document)
    structure = list(check_structured(document))
    statements = [
        *check_statements(document, table, sentences_with_operands(document)),
        *check_bounds(document, table),
        *structure,
    ]
    findings = [
        *statements,
        *check_rows(table),
        *check_counts(document),
        *check_totals(document),
        *check_ranges(document, table),
        *check_published(document, table),
        *check_comparisons(document, table, statements),
    ]
    # A sentence beside the difference that it states, as data, is checked by that.
    structured = {f"{finding.path}.sentence" for finding in structure if finding.rule == "structured"}
    findings = [f for f in findings if f.rule != "unresolved" or f.path not in structured or f in structure]
    told = [finding for finding in findings if finding.severity != "note" or finding.rule == "unresolved"]
    recomputed = structured | {path for finding in told for path in (finding.path, *finding.related)}
    findings += check_sources(document, recomputed, folder)
    return ordered(findings)
