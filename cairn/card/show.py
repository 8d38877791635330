"""Prints an audit: what is wrong, what needs an explanation, what cannot be traced, what is right."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairn.card.finding import SEVERITIES, Finding

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan", "right": "green"}
TITLES = {"error": "Errors", "warning": "Warnings", "note": "Cannot be checked or traced", "right": "Right"}
RULES = {
    "difference": "stated differences",
    "quote": "repeated values",
    "best": "superlatives",
    "level": '"level with"',
    "bound": '"no more than"',
    "repeated-row": "rows in two tables",
    "agreement": "repeated counts",
    "share": "parts of a whole",
    "sum": "sums",
    "interval": "values in their intervals",
    "spread": "differences in deviations",
    "published": "rows of other papers",
    "parts": "wholes between their parts",
    "exclusion": "sets without what they exclude",
    "denominator": "precisions and counts",
    "structured": "computed differences",
}


def print_findings(findings: Sequence[Finding], console: "Console", every: bool = False) -> None:
    """Print findings by severity with the JSON path of each; `every` lists also what is right."""
    from rich.text import Text

    for severity in SEVERITIES:
        chosen = [finding for finding in findings if finding.severity == severity]
        if not chosen:
            continue
        console.print(Text(f"{TITLES[severity]} ({len(chosen)}): {SEVERITIES[severity]}", STYLES[severity]))
        if severity == "right" and not every:
            counts = Counter(RULES.get(finding.rule, finding.rule) for finding in chosen)
            listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
            console.print(Text(f"  {listed} (--all lists them)"))
            continue
        for finding in chosen:
            console.print(Text.assemble("  ", (finding.path, "bold"), (f"  [{finding.rule}]", "dim")))
            console.print(Text(f"    {finding.message}"))
    console.print(Text(verdict(findings), "bold"))


def verdict(findings: Sequence[Finding]) -> str:
    """One line with the number of findings of each severity."""
    counts = Counter(finding.severity for finding in findings)
    parts = [
        f"{counts['error']} {'error' if counts['error'] == 1 else 'errors'}",
        f"{counts['warning']} {'warning' if counts['warning'] == 1 else 'warnings'}",
        f"{counts['note']} not checkable or traceable",
        f"{counts['right']} recomputed and right",
    ]
    return ", ".join(parts)


def passed(findings: Sequence[Finding], strict: bool = False) -> bool:
    """Whether nothing is wrong; `strict`: nothing needs an explanation either."""
    return not any(f.severity == "error" or (strict and f.severity == "warning") for f in findings)
