"""`cairn status`: what is out of date, and why."""

from typing import Annotated

import typer


def status(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON: asset → reasons.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only the exit code: 0 clean, 3 something is stale.")
    ] = False,
) -> None:
    """What is stale and why; the digests of the code are brought up to date first.

    Exit code 0 where all is up to date, 3 where something is stale. Example: `cairn status`
    """
    import json

    from pipelines.project import enter_root
    from pipelines.stale import stale_assets

    report = stale_assets(enter_root())
    if json_output:
        print(json.dumps(report, indent=1))
    elif not quiet:
        _print(report)
    raise typer.Exit(3 if report["stale"] else 0)


def _print(report: dict) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True)
    if not report["stale"]:
        console.print("[green]up to date[/]: every artifact is what params.yaml, the code and the inputs say")
    for asset, reasons in report["stale"].items():
        console.print(f"[red]stale[/]  {escape(asset)}")
        for reason in reasons:
            console.print(f"       {escape(reason)}", style="dim")
    for asset in report["downstream"]:
        console.print(f"[yellow]below[/]  {escape(asset)}  [dim]runs again only if what it reads changes[/]")
