"""`cairn bless`: accept old bytes under new code, with evidence."""

from typing import Annotated

import typer


def bless(
    step: Annotated[str, typer.Argument(help="The step whose code changed, e.g. descriptors.")],
    key: Annotated[str, typer.Argument(help="One run or benchmark; all stale ones where left out.")] = "",
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Items to recompute; 0 recomputes all.")
    ] = 64,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the sample.")] = 0,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="Largest difference; 0 = equal.")
    ] = 0.0,
) -> None:
    """Accept an output under changed code after a seeded sample, recomputed, came out equal.

    The old digest, the new one, the sample and the result are written to blessings.json (commit it), and
    `cairn trace` shows them. Example: `cairn bless descriptors --sample 100`
    """
    from cairn.progress import say
    from pipelines.bless import bless as run
    from pipelines.project import enter_root

    for record in run(enter_root(), step, key, sample=sample, seed=seed, tolerance=tolerance):
        say(
            f"blessed {record['stage']}: {record['compared']} {record['unit']} recomputed, "
            f"largest difference {record['largest_difference']:.3g}"
        )
