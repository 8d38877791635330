"""All numbers in one table."""

from assets.step import Job, step


@step(
    scope="all",
    fan_in="scores",
    output="artifacts/results",
    parameters=("runs",),
    kinds=("parquet", "duckdb"),
)
def results(job: Job) -> None:
    """Every number of every run, one row each, with the artifact it was computed from and that artifact's hash.

    Beside the table, `metrics.json` (for `dvc metrics`) and `plots/` (for `dvc plots`).
    """
    from cairn.report.plots import write_tables
    from cairn.results import gather_results, read_results

    pairs = [(run["benchmark"], run["system"]) for run in job.parameters["runs"].values()]
    gather_results(job.root, pairs, job.output)
    write_tables(job.root, read_results(job.output / "results.parquet"), job.output / "plots")
