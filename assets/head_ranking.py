"""The gallery in order of similarity, by the descriptors of each head."""

from assets.step import Job, step


@step(
    scope="head",
    inputs={"descriptors": "head_descriptors", "manifest": "manifest", "ground_truth": "ground_truth"},
    output="artifacts/{benchmark}/{system}/head-ranking/{head}",
    parameters=("system.search",),
    kinds=("parquet",),
)
def head_ranking(job: Job) -> None:
    """Exact search with each seed's descriptors, one folder per seed; no index: heads are compared exactly."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.images.manifest import read_manifest
    from cairn.systems.heads import rank_with_heads

    rank_with_heads(
        job.inputs["descriptors"],
        read_manifest(job.inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(job.inputs["ground_truth"]),
        job.parameters["search"],
        job.output,
    )
