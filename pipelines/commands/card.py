"""`cairn card`: writes the results card, one JSON file per release."""

import json
from pathlib import Path
from typing import Annotated

import typer


def card(
    output: Annotated[
        Path | None, typer.Option("--output", help="Where to write it (results-card.json).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card instead of writing it.")] = False,
) -> None:
    """Write the results card: every number with its artifact and hash, every sentence computed by a query.

    Exit code 1, and no file, where a number cannot be traced, a claim is no longer true, or the card does not pass
    `cairn check-card`.

    Example: cairn card --output release/results.json
    """
    from cairn.card.building import DEFAULT_PATH, build_card, write_card
    from cairn.errors import UsageError
    from pipelines.project import find_root

    if as_json and output is not None:
        raise UsageError("--json and --output exclude one another: choose one")
    root = find_root()
    if as_json:
        print(json.dumps(build_card(root), indent=1, sort_keys=True, ensure_ascii=False))
        return
    target = output or root / DEFAULT_PATH
    made = write_card(root, target)
    statements = sum(len(claim["statements"]) for claim in made["claims"])
    print(f"{target}: {statements} computed sentences, {len(made['provenance']['artifacts'])} artifacts")
