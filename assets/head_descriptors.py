"""What each head makes of a system's descriptors."""

from assets.step import Job, step


@step(
    scope="head",
    inputs={"descriptors": "descriptors", "heads": "heads"},
    output="artifacts/{benchmark}/{system}/head-descriptors/{head}",
    kinds=("parquet",),
)
def head_descriptors(job: Job) -> None:
    """The gallery's and the queries' descriptors through each seed's head, one folder per seed."""
    from cairn.systems.heads import describe_with_heads

    describe_with_heads(job.inputs["descriptors"], job.inputs["heads"], job.output)
