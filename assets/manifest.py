"""Which images there are: one row each, where its bytes lie, what they hash to, and the queries' boxes."""

from assets.step import Job, step


@step(
    scope="benchmark",
    inputs={"sources": "sources"},
    output="artifacts/{benchmark}/manifest",
    parameters=("benchmark.adapter", "benchmark.settings"),
    picks=("adapter",),
    kinds=("parquet",),
)
def manifest(job: Job) -> None:
    """One row per image: archive, offset, size, width, height, SHA-256, role; and the queries with their boxes."""
    from cairn.benchmarks.adapters import load_adapter
    from cairn.benchmarks.damaged import manifest_without_damaged
    from cairn.benchmarks.structure import GroundTruth, write_ground_truth
    from cairn.images.manifest import write_manifest

    adapter = load_adapter(job.parameters["adapter"], f"benchmarks.{job.benchmark}.adapter")
    settings = job.parameters["settings"]
    truth = adapter.ground_truth(settings, job.root, job.inputs["sources"])
    images = adapter.images(settings, job.root, job.inputs["sources"])
    table = manifest_without_damaged(images, job.root, truth, settings.get("damaged"), job.output)
    write_manifest(table, job.output / "manifest.parquet")
    # The queries without what is relevant to them: a change of relevance leaves descriptors alone.
    write_ground_truth(job.output / "queries", GroundTruth(truth.queries, {}))
