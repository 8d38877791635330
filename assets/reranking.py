"""The second stage: the shortlist in a better order."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"ranking": "ranking", "local": "local", "manifest": "manifest"},
    output="artifacts/{benchmark}/{system}/reranking",
    parameters=("system.rerank",),
    picks=("reranker",),
    kinds=("parquet",),
)
def reranking(job: Job) -> None:
    """The shortlist re-ranked by the system's second stage, with the evidence per pair (inliers, scores)."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.images.manifest import read_manifest
    from cairn.systems.reranking import rerank

    rerank(
        job.inputs["ranking"],
        job.inputs["local"],
        read_manifest(job.inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(job.inputs["manifest"] / "queries"),
        job.parameters["rerank"],
        job.output,
    )
