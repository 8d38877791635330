"""The images a system may learn from, never those of the gallery."""

from assets.step import Job, step


@step(
    scope="benchmark",
    inputs={"manifest": "training:manifest"},
    output="artifacts/{benchmark}/training",
    parameters=("benchmark.training",),
    kinds=("parquet",),
)
def training(job: Job) -> None:
    """The training images: the benchmark's own, or another benchmark's where it has none (then it says so)."""
    from cairn.benchmarks.training import write_training

    write_training(job.inputs["manifest"], job.benchmark, job.parameters["training"], job.output)
