"""`cairn verify`: recomputes every hash under the numbers and names what differs and whom it taints."""

import json
from typing import Annotated

import typer


def verify(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(help="Numbers to verify; all where none is given.", show_default=False),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Notes (uncommitted work, other versions…) fail as well.")
    ] = False,
    hashes_only: Annotated[
        bool, typer.Option("--hashes-only", help="Do not score the stored rankings again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Findings, notes and numbers, as JSON.")] = False,
) -> None:
    """Recompute every hash under the numbers and score the stored rankings again; name what differs and its numbers.

    Exit code 0: everything is what was recorded. 1: something differs or is missing; with --strict also where
    there is a note, such as a dirty git tree, a dvc.lock or code that no commit holds.

    Example: cairn verify toytown/rootsift-vlad/hard/map
    """
    from cairn.lineage import verify as recompute
    from pipelines.digests import digest_of, unchanged
    from pipelines.generate import declared_stages
    from pipelines.project import find_root
    from pipelines.runner import rescore

    root = find_root()
    verification = recompute(
        root,
        numbers or (),
        changed_code=unchanged,
        digest_of=digest_of,
        rescore=None if hashes_only else rescore,
        declared=declared_stages(root),
    )
    if as_json:
        print(json.dumps(verification.as_dict(strict), indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        from cairn.lineage.show import print_verification

        print_verification(verification, Console(highlight=False), strict)
    if not verification.passed(strict):
        raise typer.Exit(1)
