"""The numbers of each head and seed."""

from assets.step import Job, step


@step(
    scope="head",
    inputs={"ranking": "head_ranking", "ground_truth": "ground_truth", "manifest": "manifest"},
    output="artifacts/scores/{benchmark}/{system}.{head}",
    parameters=("benchmark.metric",),
    kinds=("parquet",),
)
def head_scores(job: Job) -> None:
    """The numbers of each seed's head, with the training set in the field `head` and the seed beside it."""
    from cairn.results.scoring import score_heads

    score_heads(
        job.benchmark,
        job.system,
        job.head,
        ranking=job.inputs["ranking"],
        ground_truth=job.inputs["ground_truth"],
        manifest=job.inputs["manifest"],
        metric=job.parameters["metric"],
        output=job.output,
    )
