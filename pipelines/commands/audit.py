"""`cairn audit`: was the test in the training set? Class names, exclusion lists and judgements, from files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Find out whether a training set holds a benchmark's queried landmarks.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Stance = Annotated[
    str, typer.Option("--stance", help="inclusive (plausibly a landmark) or strict (without a doubt).")
]


@app.command("classes")
def classes(
    categories: Annotated[
        Path, typer.Option("--categories", help="train_label_to_category.csv (landmark_id,category).")
    ],
    landmarks: Annotated[
        list[str],
        typer.Option("--landmarks", help="roxford5k, rparis6k, or a .yaml or .json list; may be repeated."),
    ],
    images: Annotated[
        Path | None, typer.Option("--images", help="train_clean.csv (landmark_id,images); counts images.")
    ] = None,
    stance: Stance = "inclusive",
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write leak_class_ids.json here: both stances, all reasons."),
    ] = None,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Also what was considered and rejected.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every flagged class, not the largest.")] = False,
    as_json: Json = False,
) -> None:
    """Flag the classes of a training set that are named after a queried landmark, each with its rule.

    Example: `cairn audit classes --categories train_label_to_category.csv --images train_clean.csv
    --landmarks roxford5k --landmarks rparis6k --output leak_class_ids.json`
    """
    from cairn.contamination import classes as audit
    from cairn.contamination.landmarks import load_landmarks
    from cairn.contamination.show import class_tables
    from cairn.contamination.training_classes import read_categories, read_training_images

    _check_stance(stance)
    lists = [load_landmarks(name) for name in landmarks]
    known = read_categories(categories)
    training = read_training_images(images, known) if images is not None else None
    result = audit.audit_classes(known, training, lists)
    if output is not None:
        audit.write_audit(output, result)
    if as_json:
        _print_json(audit.as_json(result))
        return
    _print(*class_tables(result, stance, rejected, None if everything else 40))
    if output is not None:
        _note(f"written: {output}")


@app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(help="Exclusion list A: .txt, .csv or .json with class ids.")],
    b: Annotated[Path, typer.Argument(help="Exclusion list B.")],
    images: Annotated[
        Path | None, typer.Option("--images", help="train_clean.csv: compare images as well.")
    ] = None,
    stance: Stance = "inclusive",
    as_json: Json = False,
) -> None:
    """Compare two exclusion lists: overlap of classes and images, and who contains whom.

    Example: `cairn audit compare leak_class_ids.json rgldv2_ids.txt --images train_clean.csv`
    """
    from cairn.contamination import exclusion_lists as lists
    from cairn.contamination.show import comparison_table
    from cairn.contamination.training_classes import read_training_images

    _check_stance(stance)
    counts = read_training_images(images).count_of() if images is not None else None
    result = lists.compare(lists.read_exclusion_list(a, stance), lists.read_exclusion_list(b, stance), counts)
    for name, missing in ((a, result.missing_a), (b, result.missing_b)):
        if missing:
            _note(f"note: {name} lists {len(missing)} classes that have no images, such as {missing[0]}")
    if as_json:
        _print_json(lists.comparison_json(result))
    else:
        _print(comparison_table(result, a.name, b.name))


def _check_stance(stance: str) -> None:
    from cairn.contamination.classes import STANCES
    from cairn.errors import UsageError

    if stance not in STANCES:
        raise UsageError(f"--stance {stance}: expected one of {', '.join(STANCES)}")


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _print(*parts: "RenderableType") -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 400  # a file or a pipe has no edge to break lines at
    for part in parts:
        console.print(part)


def _note(message: str) -> None:
    import sys

    print(message, file=sys.stderr)
