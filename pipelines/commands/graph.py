"""`cairn generate`, and the commands that DVC, Dagster and `cairn run` call: `code`, `step`, `materialize`, `repro`."""

from typing import Annotated

import typer


def generate(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 where dvc.yaml is out of date.")
    ] = False,
) -> None:
    """Write dvc.yaml from the declarations in assets/ and the benchmarks in params.yaml.

    Example: `cairn generate`
    """
    from cairn.parameters import load_parameters
    from cairn.progress import say
    from pipelines.generate import check_pipeline, write_pipeline
    from pipelines.project import PARAMETERS, enter_root

    root = enter_root()
    parameters = load_parameters(root / PARAMETERS)
    if check:
        check_pipeline(root, parameters)
        say("dvc.yaml is up to date")
    else:
        say("dvc.yaml written" if write_pipeline(root, parameters) else "dvc.yaml was up to date")


def code() -> None:
    """Write the digests of the code and the effective parameters (the `code` stage of dvc.yaml)."""
    from pipelines.code_stage import write_code
    from pipelines.project import enter_root

    write_code(enter_root())


def step(name: str, key: str) -> None:
    """Run one step of one run or benchmark (a stage of dvc.yaml)."""
    from cairn.memory import reuse_buffers
    from pipelines.project import enter_root
    from pipelines.runner import run_step

    reuse_buffers()  # this process does nothing else
    run_step(enter_root(), name, key)


def materialize(stage: str, force: bool = False) -> None:
    """Run one stage through DVC for Dagster."""
    from pipelines.materialize import materialize as run
    from pipelines.project import enter_root

    raise typer.Exit(run(enter_root(), stage, force=force))


def repro(targets: list[str], single_item: bool = False) -> None:
    """`dvc repro` for `cairn run`: it waits where another process is at work on a path, and ends with its parent."""
    from pipelines.bridge import repro as run
    from pipelines.materialize import supervised
    from pipelines.project import enter_root

    root = enter_root()
    raise typer.Exit(supervised(lambda: run(root, targets, single=single_item)))
