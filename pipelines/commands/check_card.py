"""`cairn check-card`: audits a results file: arithmetic of its claims, counts, ranges, sources."""

import json
from pathlib import Path
from typing import Annotated

import typer


def check_card(
    file: Annotated[
        Path, typer.Argument(help="A results file (JSON), ours or anybody's.", show_default=False)
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail as well.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="List also what was recomputed and found right.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Every finding, as JSON.")] = False,
) -> None:
    """Audit a results file: recompute its differences, check counts, ranges, comparisons and sources.

    Exit code 0: no error. 1: an error (wrong arithmetic, a contradiction, a value out of range), or the file
    cannot be read; with --strict also where there is a warning. What cannot be checked never fails.

    Example: cairn check-card results-card.json
    """
    from cairn.card import check_card as audit
    from cairn.card import read_document
    from cairn.card.show import passed, print_findings

    findings = audit(read_document(file), file.parent)
    if as_json:
        counts = {
            name: sum(f.severity == name for f in findings) for name in ("error", "warning", "note", "right")
        }
        record = {
            "file": str(file),
            "passed": passed(findings, strict),
            "counts": counts,
            "findings": [finding.as_dict() for finding in findings],
        }
        print(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        print_findings(findings, Console(highlight=False, soft_wrap=True), every)
    if not passed(findings, strict):
        raise typer.Exit(1)
