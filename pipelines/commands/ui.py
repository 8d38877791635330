"""`cairn ui`: Dagster's page over the graph, reloaded when the code or the parameters change."""

from typing import Annotated

import typer


def ui(
    port: Annotated[int, typer.Option("--port", help="Port on this machine.")] = 3000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Open the graph in Dagster (Ctrl-C ends it and everything it started).

    Example: `cairn ui --port 3001`
    """
    from pipelines.page import serve
    from pipelines.project import find_root

    raise typer.Exit(serve(find_root(), host, port))
