"""The second stage: the shortlist in a better order."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={
        "ranking": "ranking",
        "descriptors": "descriptors",
        "readout": "readout",
        "local": "local",
        "reranker": "reranker_training",
        "ground_truth": "ground_truth",
        "manifest": "manifest",
    },
    output="artifacts/{benchmark}/{system}/reranking",
    parameters=("system.rerank",),
    picks=("reranker",),
    kinds=("parquet",),
)
def reranking(job: Job) -> None:
    """The shortlist re-ranked by the system's second stage, or its logits, with the evidence per pair.

    Ground truth says which pairs the published protocol of AMES looks at; no score depends on it.
    """
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.cache import Cache
    from cairn.images.manifest import read_manifest
    from cairn.systems.readout import searched
    from cairn.systems.reranking import rerank

    truth = read_ground_truth(job.inputs["ground_truth"])
    rerank(
        job.inputs["ranking"],
        job.inputs["local"],
        read_manifest(job.inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(job.inputs["manifest"] / "queries"),
        job.parameters["rerank"],
        job.output,
        descriptors=searched(job.inputs["descriptors"], job.inputs["readout"]),
        relevance=truth.relevance,
        graded=truth,
        reranker=job.inputs["reranker"],
        root=job.root,
        cache=Cache.of(job.root),
        code=job.digest,
    )
