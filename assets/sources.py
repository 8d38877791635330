"""The benchmark's own files: drawn, downloaded, or listed where they lie."""

from assets.step import Job, step


@step(
    scope="benchmark",
    output="artifacts/{benchmark}/sources",
    parameters=("benchmark.adapter", "benchmark.settings"),
    picks=("adapter",),
    kinds=("file",),
)
def sources(job: Job) -> None:
    """The benchmark's own files, each with its checksum and licence.

    Drawn, downloaded with pinned checksums, or listed in place.
    """
    from cairn.benchmarks.adapters import load_adapter

    adapter = load_adapter(job.parameters["adapter"], f"benchmarks.{job.benchmark}.adapter")
    adapter.write_sources(job.parameters["settings"], job.root, job.output)
