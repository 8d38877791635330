"""`cairn trace`: a number's way back, down to each source with its checksum; or what separates two of them."""

import json
from typing import Annotated

import typer


def trace(
    number: Annotated[
        str | None,
        typer.Argument(
            help="A number's name; fields may be left out while it stays the only one.", show_default=False
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="NUMBER", help="Show only what separates it from this number."),
    ] = None,
    against_revision: Annotated[
        str | None,
        typer.Option(
            "--against-revision",
            metavar="REVISION",
            help="… from the same number (or that of --against) at this git revision; without a number, from all.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Whole hashes, and of every artifact the code, parameters, packages."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Follow a number back: its scores, rankings, descriptors, with --full their code and parameters, and every source.

    With --against or --against-revision: the smallest set of differences (parameters, code, packages, sources,
    steps) that separates the two. Works from dvc.lock and the files alone. Exit code 1 where the number is unknown
    or ambiguous.

    Example: cairn trace toytown/rootsift-vlad/hard/map
    """
    from cairn.errors import UsageError
    from pipelines.project import find_root

    root = find_root()
    if against is not None or against_revision is not None:
        if number is None and against is not None:
            raise UsageError("--against compares with a NUMBER: give one before it")
        _differences(root, number, against, against_revision, full, as_json)
        return
    if number is None:
        raise UsageError("give a NUMBER to follow, or --against-revision REVISION; `cairn sql` lists numbers")
    from cairn.lineage import trace as follow

    found = follow(root, number)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    from cairn.lineage.show import print_trace

    print_trace(found, Console(highlight=False), full)


def _differences(root, number, other, revision, full, as_json) -> None:
    from cairn.lineage.against import against
    from pipelines.digests import digest_of

    found = against(root, number, other, revision, digest_of)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    from cairn.lineage.show_against import print_against

    print_against(found, Console(highlight=False, soft_wrap=True), full)
