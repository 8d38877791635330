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


@app.command("sets")
def sets(
    images: Annotated[Path, typer.Option("--images", help="train_clean.csv (landmark_id,images).")],
    exclude: Annotated[Path, typer.Option("--exclude", help="leak_class_ids.json, or any list of ids.")],
    minimum: Annotated[int, typer.Option("--minimum", min=1, help="Images a class must have.")] = 3,
    stance: Stance = "inclusive",
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for standard.json and decon.json (class ids).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the training sets `standard` and `decon`, with what each step drops; the counts close.

    Example: `cairn audit sets --images train_clean.csv --exclude leak_class_ids.json --minimum 3`
    """
    from cairn.contamination import training_sets
    from cairn.contamination.exclusion_lists import read_exclusion_list
    from cairn.contamination.show import sets_table
    from cairn.contamination.training_classes import read_training_images

    _check_stance(stance)
    training = read_training_images(images)
    flagged = read_exclusion_list(exclude, stance)
    standard, decon = training_sets.standard_and_decon(training, flagged, minimum)
    closing = training_sets.reconcile(training, standard, decon, flagged)
    if output is not None:
        for one in (standard, decon):
            training_sets.write_training_set(output / f"{one.protocol}.json", one)
    if as_json:
        value = {one.protocol: one.as_json() for one in (standard, decon)}
        _print_json(value | {"closes": closing.closes, "reconciliation": str(closing)})
        return
    _print(sets_table([standard, decon]), str(closing))


@app.command("judgements")
def judgements(
    sample: Annotated[Path, typer.Argument(help="The sample the judging page was made from (sample.json).")],
    verdicts: Annotated[list[Path], typer.Argument(help="Files that the page saved, one per judge.")],
    as_json: Json = False,
) -> None:
    """Read judges' verdicts back: precision with its interval, kappa with the detector and between judges.

    Example: `cairn audit judgements sample.json verdicts-ann.json verdicts-bob.json`
    """
    from cairn.contamination import sampling
    from cairn.contamination.show import judgement_tables

    drawn = sampling.read_sample(sample)
    judges = [sampling.read_judgements(path, drawn) for path in verdicts]
    sampling.unique_judges(judges)
    reports = [sampling.report_judgements(drawn, one) for one in judges]
    between = sampling.agreement_of_judges(judges)
    if as_json:
        _print_json(
            {
                "judges": [one.as_json() for one in reports],
                "kappa_between_judges": {name: one.as_json() for name, one in between.items()},
            }
        )
    else:
        _print(*judgement_tables(reports, between))


@app.command("seeds")
def seeds(
    runs: Annotated[Path, typer.Argument(help="CSV protocol,seed,cell,value; a cell is benchmark/slice.")],
    selected_on: Annotated[
        str | None, typer.Option("--selected-on", help="The cell that epochs were chosen by.")
    ] = None,
    unit: Annotated[str, typer.Option("--unit", help="What the values are given in.")] = "mAP points",
    as_json: Json = False,
) -> None:
    """Compare two training protocols over seeds: is the difference larger than what the seed moves?

    Example: `cairn audit seeds runs.csv --selected-on roxford5k/medium`
    """
    from cairn.contamination.seeds import analyse_seeds, read_runs
    from cairn.contamination.show import seed_tables

    analysis = analyse_seeds(read_runs(runs), unit=unit, selected_on=selected_on)
    if as_json:
        _print_json(analysis.as_json())
    else:
        _print(*seed_tables(analysis))


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
        console.print(part, highlight=False, markup=False)


def _note(message: str) -> None:
    import sys

    print(message, file=sys.stderr)
