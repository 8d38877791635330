"""`cairn score`: score an existing run file in a benchmark's official format; needs neither Dagster nor DVC."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cairn.metrics.result import ScoredRun

app = typer.Typer(
    help="Score an existing run file exactly as the benchmark's authors score it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, full precision, fractions 0–1.")]
PerQuery = Annotated[bool, typer.Option("--per-query", help="With --json: every query's values too.")]
Gnd = Annotated[Path, typer.Option("--gnd", help="Ground truth: gnd_*.pkl, or .json with the same keys.")]
Scores = Annotated[
    Path | None, typer.Option("--scores", help="Scores [query, gallery], higher is better: .npy or .npz.")
]
Ranks = Annotated[
    Path | None, typer.Option("--ranks", help="Image numbers [gallery, query], best first: .npy or .npz.")
]


@app.command("revisitop")
def revisitop(
    gnd: Gnd,
    scores: Scores = None,
    ranks: Ranks = None,
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """ROxford and RParis: mAP and mP@{1,5,10}, Easy, Medium and Hard.

    The gallery is `imlist` in its order, then distractors. Example:
    `cairn score revisitop --gnd gnd_roxford5k.pkl --scores scores.npy`
    """
    from cairn.scoring.revisitop import score

    _show(score(gnd, scores, ranks), json, per_query)


@app.command("instre")
def instre(
    gnd: Gnd,
    scores: Scores = None,
    ranks: Ranks = None,
    k: Annotated[
        int | None,
        typer.Option("--k", min=1, help="mAP@k as ILIAS defines it: 1000 where ILIAS distractors are added."),
    ] = None,
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """INSTRE: mAP (trapezoid AP) over its 1,250 queries; with ILIAS distractors mAP@1000.

    Example: `cairn score instre --gnd gnd_instre.pkl --ranks ranks.npy`
    """
    from cairn.scoring.instre import score

    _show(score(gnd, scores, ranks, k), json, per_query)


@app.command("gldv2")
def gldv2(
    submission: Annotated[Path, typer.Option("--submission", help="CSV id,images (blanks between images).")],
    solution: Annotated[Path, typer.Option("--solution", help="retrieval_solution_v2.1.csv.")],
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """Google Landmarks v2 retrieval: mAP@100, public, private and all.

    Example: `cairn score gldv2 --submission sub.csv --solution retrieval_solution_v2.1.csv`
    """
    from cairn.scoring.gldv2 import score

    _show(score(submission, solution), json, per_query)


@app.command("forb")
def forb(
    metadata: Annotated[Path, typer.Option("--metadata", help="Folder with {object}_gt.ndjson.")],
    results: Annotated[
        Path, typer.Option("--results", help="Folder with {object}_all.ndjson and {object}_oods.ndjson.")
    ],
    objects: Annotated[
        str, typer.Option("--objects", help="Object types, commas between; all eight where left out.")
    ] = "",
    subset: Annotated[
        bool, typer.Option("--subset", help="The published FORB_subset (other ID offsets).")
    ] = False,
    before_reranking: Annotated[
        bool,
        typer.Option("--before-reranking", help="Score the first stage's lists that re-ranked results keep."),
    ] = False,
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """FORB: mAP@{1,5} and t-mAP@{1,5}, overall, per difficulty and per object type.

    Example: `cairn score forb --metadata FORB/metadata --results dinov2/retrieval_results`
    """
    from cairn.scoring.forb import score

    chosen = [name.strip() for name in objects.split(",") if name.strip()]
    _show(score(metadata, results, chosen, subset, before_reranking), json, per_query)


@app.command("disc21")
def disc21(
    predictions: Annotated[
        Path, typer.Option("--predictions", help="CSV query_id,reference_id,score; at most 500,000 rows.")
    ],
    ground_truth: Annotated[
        Path, typer.Option("--ground-truth", help="CSV query_id,reference_id (empty: distractor query).")
    ],
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """DISC21: micro-AP, recall at precision 90 with its threshold, recall@1 and @10.

    Example: `cairn score disc21 --predictions p.csv --ground-truth test_queries_groundtruth.csv`
    """
    from cairn.scoring.disc21 import score

    _show(score(predictions, ground_truth), json, per_query)


@app.command("disc21-track2")
def disc21_track2(
    ground_truth: Annotated[Path, typer.Option("--ground-truth", help="CSV query_id,reference_id.")],
    queries: Annotated[list[Path], typer.Option("--queries", help="Descriptors, HDF5 (repeatable).")],
    references: Annotated[list[Path], typer.Option("--references", help="Descriptors, HDF5 (repeatable).")],
    training: Annotated[
        list[Path], typer.Option("--training", help="Training descriptors: normalises the scores.")
    ] = [],  # noqa: B006
    neighbor: Annotated[int, typer.Option("--neighbor", min=1, help="Which training neighbour.")] = 1,
    factor: Annotated[float, typer.Option("--factor", help="Weight of the normalisation.")] = 1.0,
    inner_product: Annotated[
        bool, typer.Option("--inner-product", help="Compare by inner product instead of L2 distance.")
    ] = False,
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """DISC21 track 2: descriptors of at most 256 dimensions, matched exhaustively, the best 500,000 pairs scored.

    Example: `cairn score disc21-track2 --ground-truth gt.csv --queries q.hdf5 --references r.hdf5`
    """
    from cairn.scoring.track2 import score

    run = score(ground_truth, queries, references, training, neighbor, factor, inner_product)
    _show(run, json, per_query)


@app.command("inquire")
def inquire(
    queries: Annotated[Path, typer.Option("--queries", help="inquire_queries_{val,test}.csv.")],
    annotations: Annotated[Path, typer.Option("--annotations", help="inquire_annotations.csv.")],
    run: Annotated[Path, typer.Option("--run", help="CSV query_id,image_path,score.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Depth of the lists.")] = 50,
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """INQUIRE-Fullrank: AP, nDCG, precision and recall at k, and MRR, also per category.

    Example: `cairn score inquire --queries inquire_queries_test.csv --annotations inquire_annotations.csv
    --run run.csv`
    """
    from cairn.scoring.inquire import score

    _show(score(queries, annotations, run, k), json, per_query)


@app.command("inquire-rerank")
def inquire_rerank(
    rerank: Annotated[Path, typer.Option("--rerank", help="inquire_rerank.csv.")],
    run: Annotated[Path, typer.Option("--run", help="CSV query_id,image_path,score of the same images.")],
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """INQUIRE-Rerank: AP, nDCG and MRR over the fixed 100 images of each query.

    Example: `cairn score inquire-rerank --rerank inquire_rerank.csv --run run.csv`
    """
    from cairn.scoring.inquire import score_rerank

    _show(score_rerank(rerank, run), json, per_query)


@app.command("ilias")
def ilias(
    dataset_dir: Annotated[Path, typer.Option("--dataset-dir", help="Folder that holds image_ids/.")],
    similarities: Annotated[
        Path, typer.Option("--similarities", help=".json {query: {image: similarity}}, or official .pkl.")
    ],
    k: Annotated[int, typer.Option("--k", min=1, help="Depth of the lists.")] = 1000,
    taxonomy: Annotated[
        Path | None, typer.Option("--taxonomy", help="taxonomy.json: adds (sub)categories.")
    ] = None,
    json: Json = False,
    per_query: PerQuery = False,
) -> None:
    """ILIAS and mini-ILIAS: mAP@1000 and oracle, by scale, clutter and category.

    Example: `cairn score ilias --dataset-dir ilias --similarities sims.json --taxonomy misc/taxonomy.json`
    """
    from cairn.scoring.ilias import score

    _show(score(dataset_dir, similarities, k, taxonomy), json, per_query)


def _show(run: "ScoredRun", as_json: bool, per_query: bool) -> None:
    """Nothing but JSON, or a table, on standard output; warnings on standard error, and in the JSON."""
    import sys
    from json import dumps

    from cairn.errors import UsageError
    from cairn.images.names import one_line
    from cairn.metrics.result import as_json as json_object

    if per_query and not as_json:
        raise UsageError("--per-query needs --json")
    for warning in run.warnings:
        print(f"warning: {one_line(warning)}", file=sys.stderr)
    if as_json:
        result = json_object(run, per_query)
        try:
            text = dumps(result, ensure_ascii=False, allow_nan=False)
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError:  # a name with half a surrogate pair, or an output that is not UTF-8
            text = dumps(result, allow_nan=False)
        print(text)
        return
    from rich.console import Console

    from cairn.scoring.show import rich_table

    console = Console()
    if not console.is_terminal:
        console.width = 400  # a file or a pipe has no edge to break lines at
    console.print(rich_table(run))


def main() -> None:
    """`python -m pipelines.commands.score`: the same commands without the rest of `cairn`."""
    import sys

    from cairn.errors import CairnError

    try:
        app()
    except CairnError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
