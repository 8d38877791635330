"""What the run would score against a gallery far beyond what was described."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"descriptors": "descriptors", "readout": "readout", "ground_truth": "ground_truth"},
    output="artifacts/{benchmark}/{system}/tail",
    parameters=("benchmark.tail",),
    kinds=("json",),
)
def tail(job: Job) -> None:
    """Tail-aware estimate of the metric at web scale, from a seeded sample of the distractors, with its intervals.

    Only for benchmarks whose entry in params.yaml has `tail`; see docs/tail-aware.md.
    """
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.systems.readout import searched
    from cairn.systems.tail import estimate_run

    truth = read_ground_truth(job.inputs["ground_truth"])
    descriptors = searched(job.inputs["descriptors"], job.inputs["readout"])
    estimate_run(descriptors, truth, job.parameters["tail"], job.output)
