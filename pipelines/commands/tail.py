"""`cairn tail`: a metric at web scale from each query's best scores in a uniform sample."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cairn.errors import InputError


def tail(
    scores: Annotated[
        Path, typer.Argument(help="An .npz with top, pos_q, pos_s and S (docs/tail-aware.md).")
    ],
    gallery: Annotated[float, typer.Option(help="N, the number of distractors to estimate for.")],
    metric: Annotated[str, typer.Option(help="map@K.")] = "map@1000",
    keep_quantile: Annotated[
        float, typer.Option(help="The paper's q: its fit uses the best round(T(1-q)) of T kept scores.")
    ] = 0.95,
    estimators: Annotated[str, typer.Option(help="all, or names separated by commas.")] = "all",
    per_query: Annotated[bool, typer.Option("--per-query", help="Also AP of every query.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Splits the sample for self-calibration.")
    ] = 0,
    plots: Annotated[Path | None, typer.Option(help="Folder for plots (PNG) and their tables (CSV).")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on standard output and nothing else.")
    ] = False,
) -> None:
    """Estimate mAP at a gallery size far beyond what was indexed, with two 95% intervals.

    Example: cairn tail scores.npz --gallery 100000000 --metric map@1000 --json
    """
    from cairn.tail.estimate import ESTIMATORS, estimate_tail, parse_metric
    from cairn.tail.posterior import tell_first_use
    from cairn.tail.scores import check_gallery, load_scores

    cutoff = parse_metric(metric)
    names = ESTIMATORS if estimators.strip() == "all" else tuple(n.strip() for n in estimators.split(","))
    sample, extra = load_scores(scores)
    check_gallery(sample, gallery, cutoff, str(scores))
    if plots is not None:
        try:
            plots.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{plots}: no folder for plots can be made here ({error.strerror})") from None
    tell_first_use()
    result = estimate_tail(
        sample,
        gallery,
        cutoff,
        estimators=names,
        keep_quantile=keep_quantile,
        seed=seed,
        hard=extra.get("hard"),
    )
    if plots is not None:
        from cairn.tail.plots import write_plots

        write_plots(plots, sample, result, int(gallery), cutoff, extra)
    if as_json:
        print(json.dumps(result.record(per_query), allow_nan=False, sort_keys=True))
    else:
        _show(result, int(gallery), cutoff, per_query)


def _show(result, gallery: int, cutoff: int, per_query: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"mAP@{cutoff} at N = {gallery:,} (percent)")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("estimator")
    table.add_column("mAP", justify="right")
    for name, value in result.estimates.items():
        table.add_row(name, f"{100 * value:.2f}")
    console.print(table)
    for name, label in (("fixed_queries", "these queries"), ("new_queries", "new queries")):
        low, high = result.ci95[name]
        console.print(f"95% interval, {label}: {100 * low:.2f} to {100 * high:.2f}")
    if result.model_bias is not None:
        console.print(f"model bias by self-calibration: {100 * result.model_bias:+.2f} points")
    if per_query:
        console.print("AP per query (percent)")
        rows = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for column in ("query", *result.per_query):
            rows.add_column(column, justify="right")
        for number, values in enumerate(zip(*result.per_query.values(), strict=True)):
            rows.add_row(str(number), *(f"{100 * value:.2f}" for value in values))
        console.print(rows)
    for warning in result.warnings:
        console.print(f"[yellow]warning[/yellow] {warning}")
