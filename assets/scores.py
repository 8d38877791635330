"""The numbers of one run and the picture of its queries."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={
        "ranking": "ranking",
        "reranking": "reranking",
        "tail": "tail",
        "ground_truth": "ground_truth",
        "manifest": "manifest",
    },
    output="artifacts/scores/{benchmark}/{system}",
    parameters=("benchmark.metric", "system.mixing"),
    kinds=("parquet",),
)
def scores(job: Job) -> None:
    """The run's numbers with intervals over queries, the value of every query, and a gallery of results.

    Scored by the benchmark's own protocol (toytown: revisited Oxford / Paris, Radenović et al., CVPR 2018).
    """
    from cairn.report.gallery import write_gallery
    from cairn.results.scoring import score_run

    score_run(
        job.benchmark,
        job.system,
        ranking=job.inputs["ranking"],
        reranking=job.inputs["reranking"],
        tail=job.inputs["tail"],
        ground_truth=job.inputs["ground_truth"],
        manifest=job.inputs["manifest"],
        metric=job.parameters["metric"],
        mixing=job.parameters["mixing"],
        output=job.output,
    )
    write_gallery(
        ranking=job.inputs["ranking"],
        reranking=job.inputs["reranking"],
        ground_truth=job.inputs["ground_truth"],
        manifest=job.inputs["manifest"],
        per_query=job.output / "per_query.parquet",
        root=job.root,
        output=job.output / "gallery.png",
    )
