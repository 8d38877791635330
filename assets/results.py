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

    listed = [
        (run["benchmark"], run["system"], head)
        for run in job.parameters["runs"].values()
        for head in ("-", *run.get("heads", ()))
    ]
    gather_results(job.root, listed, job.output)
    write_tables(job.root, read_results(job.output / "results.parquet"), job.output / "plots")
