"""Which image answers which query, in the one structure that every benchmark is turned into."""

from assets.step import Job, step


@step(
    scope="benchmark",
    inputs={"sources": "sources", "manifest": "manifest"},
    output="artifacts/{benchmark}/ground_truth",
    parameters=("benchmark.adapter", "benchmark.settings"),
    picks=("adapter",),
    kinds=("parquet",),
)
def ground_truth(job: Job) -> None:
    """Queries and relevance (easy, hard, junk or positive) in the common structure, checked against the manifest."""
    from cairn.benchmarks.adapters import load_adapter, write_about
    from cairn.benchmarks.damaged import damaged_notes
    from cairn.benchmarks.structure import check_images, write_ground_truth
    from cairn.images.manifest import read_manifest

    adapter = load_adapter(job.parameters["adapter"], f"benchmarks.{job.benchmark}.adapter")
    truth = adapter.ground_truth(job.parameters["settings"], job.root, job.inputs["sources"])
    check_images(truth, read_manifest(job.inputs["manifest"] / "manifest.parquet").image_id, job.benchmark)
    write_ground_truth(job.output, truth)
    write_about(job.output / "benchmark.json", job.benchmark, adapter, damaged_notes(job.inputs["manifest"]))
