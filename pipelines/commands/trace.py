"""`cairn trace`: a number's way back, down to each source with its checksum."""

import json
from typing import Annotated

import typer


def trace(
    number: Annotated[
        str, typer.Argument(help="A number's name; fields may be left out while it stays the only one.")
    ],
    full: Annotated[bool, typer.Option("--full", help="Whole hashes, every module and parameter.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Follow a number back: its scores, rankings, descriptors, code, parameters, and every source.

    Works from dvc.lock and the files alone. Exit code 1 where the number is unknown or ambiguous.

    Example: cairn trace toytown/rootsift-vlad/hard/map
    """
    from cairn.lineage import trace as follow
    from pipelines.project import find_root

    found = follow(find_root(), number)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    from cairn.lineage.show import print_trace

    print_trace(found, Console(highlight=False), full)
