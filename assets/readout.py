"""What is done to descriptors after pooling: truncation, centring, whitening."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"descriptors": "descriptors", "training_descriptors": "training_descriptors"},
    output="artifacts/{benchmark}/{system}/readout",
    parameters=("system.readout",),
    kinds=("parquet",),
)
def readout(job: Job) -> None:
    """Descriptors as they are searched: truncated, centred or whitened with what a declared source teaches.

    A system without a read-out says so in one small file, and its descriptors are searched as they are.
    """
    from cairn.systems.readout import make_readout

    make_readout(
        job.inputs["descriptors"],
        job.inputs["training_descriptors"],
        job.parameters["readout"],
        job.output,
    )
