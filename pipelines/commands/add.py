"""`cairn add`: make a folder of images and a CSV a benchmark like any other."""

from pathlib import Path
from typing import Annotated

import typer


def add(
    name: Annotated[str, typer.Argument(help="The benchmark's name: lower-case letters, digits, hyphens.")],
    images: Annotated[Path, typer.Option("--images", help="Folder with the images (subfolders count).")],
    truth: Annotated[
        Path, typer.Option("--truth", help="CSV: query,image,relevance[,x1,y1,x2,y2][,split][,text].")
    ],
    metric: Annotated[
        str,
        typer.Option("--metric", help="How it is scored, as `map,recall@1`; `revisitop` gives E/M/H mAP."),
    ] = "",
    training: Annotated[
        str, typer.Option("--training", help="Whose training images systems learn from.")
    ] = "toytown",
    system: Annotated[
        list[str], typer.Option("--system", help="Systems to run (default: all in params.yaml).")
    ] = [],  # noqa: B006
) -> None:
    """Check a folder of images and its ground truth, and write the entries in params.yaml.

    Example: `cairn add places --images photos --truth places.csv`
    """
    from pipelines.add import add_folder
    from pipelines.project import enter_root

    images, truth = images.absolute(), truth.absolute()
    add_folder(enter_root(), name, images, truth, metric=metric, training=training, systems=system)
