"""`cairn export`: the lineage in the forms that other tools read."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Write the lineage for other tools: a research object (RO-Crate), or OpenLineage events.",
    no_args_is_help=True,
)

Numbers = Annotated[
    list[str] | None,
    typer.Argument(
        help="Numbers to export with all they rest on; every number where none is given.", show_default=False
    ),
]


@app.command("ro-crate")
def ro_crate(
    numbers: Numbers = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="A new folder for the crate with copies of everything in it; without it the project itself "
            "becomes the crate: ro-crate-metadata.json beside dvc.lock, nothing copied.",
        ),
    ] = None,
) -> None:
    """Write an RO-Crate (profile Process Run Crate): every stage with its inputs, parameters, code and output.

    Example: cairn export ro-crate --output release-1
    """
    from cairn.export.selection import select
    from pipelines.project import find_root

    _needs("rocrate")
    from cairn.export.ro_crate import write_crate

    selection = select(find_root(), numbers or ())
    written = write_crate(selection, output)
    print(f"{written}: {len(selection.numbers):,} numbers, {len(selection.made):,} artifacts")


@app.command("openlineage")
def openlineage(
    output: Annotated[Path, typer.Argument(help="The file to write, one event a line.")],
    numbers: Numbers = None,
) -> None:
    """Write OpenLineage events (START and COMPLETE of every stage), one JSON object a line.

    Example: cairn export openlineage events.ndjson
    """
    from cairn.export.selection import select
    from pipelines.project import find_root

    _needs("openlineage")
    from cairn.export.openlineage import write_events

    selection = select(find_root(), numbers or ())
    print(f"{output}: {write_events(selection, output):,} events of {len(selection.made):,} stages")


def _needs(module: str) -> None:
    import importlib.util

    from cairn.errors import UsageError

    if importlib.util.find_spec(module) is None:
        raise UsageError(
            f"{module} is not installed: `pip install -e '.[export]'` in the project's environment"
        )
