"""Does training that saw the test score higher, beyond what the seeds move, and which systems saw it?"""

from assets.step import Job, step


@step(
    scope="all",
    fan_in="scores",
    gathers=(
        "contamination",
        "training",
        "vocabulary",
        "descriptors",
        "readout",
        "reranker_training",
        "verification",
        "heads",
    ),
    output="artifacts/heads",
    parameters=("runs",),
    kinds=("json",),
)
def head_report(job: Job) -> None:
    """Mean and deviation of each head over its seeds, differences against the pooled deviation, a verdict in words.

    And what the audits of classes and images found, and for each system which training uses (vocabulary, centring
    and whitening, re-ranker, head) saw flagged images.
    """
    from cairn.systems.head_report import report_heads

    pairs = [(run["benchmark"], run["system"]) for run in job.parameters["runs"].values()]
    report_heads(job.root, pairs, job.output)
