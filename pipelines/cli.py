"""`cairn`: the command line; it answers fast because every command imports what it needs when it runs."""

import os
import sys

import typer

from cairn.errors import CairnError
from pipelines.commands import (
    add,
    audit,
    bless,
    card,
    check_card,
    export,
    fetch,
    graph,
    grid,
    matches,
    report,
    run,
    score,
    sql,
    status,
    tail,
    trace,
    ui,
    verify,
)

app = typer.Typer(
    name="cairn",
    help="Evaluates image retrieval so that every reported number traces to a source artifact.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("add")(add.add)
app.command("trace")(trace.trace)
app.command("verify")(verify.verify)
app.command("fetch")(fetch.fetch)
app.command("matches")(matches.matches)
app.command("bless")(bless.bless)
app.command("sql")(sql.sql)
app.add_typer(score.app, name="score")
app.command("tail")(tail.tail)
app.add_typer(audit.app, name="audit")
app.command("report")(report.report)
app.command("grid")(grid.grid)
app.command("card")(card.card)
app.command("check-card")(check_card.check_card)
app.add_typer(export.app, name="export")
app.command("ui")(ui.ui)
app.command("generate")(graph.generate)
app.command("code", hidden=True)(graph.code)
app.command("step", hidden=True)(graph.step)
app.command("materialize", hidden=True)(graph.materialize)
app.command("repro", hidden=True)(graph.repro)


def main() -> None:
    """Run the command line; an expected error is one line on standard error and a meaningful exit code."""
    try:
        app(standalone_mode=True)
    except CairnError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on where it stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (`| head`) has gone; what is left to flush has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
