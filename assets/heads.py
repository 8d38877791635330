"""Heads trained on the frozen descriptors of a system: for each training set, one per seed."""

from assets.step import Job, step


@step(
    scope="head",
    inputs={
        "training": "training",
        "contamination": "contamination",
        "training_descriptors": "training_descriptors",
        "descriptors": "selection:descriptors",
        "manifest": "selection:manifest",
        "ground_truth": "selection:ground_truth",
    },
    output="artifacts/{benchmark}/{system}/heads/{head}",
    parameters=("system.heads",),
    kinds=("torch",),
)
def heads(job: Job) -> None:
    """One head per seed on the classes of this training set: `standard`, or `decon` without the flagged classes.

    A killed training goes on from its last epoch to the same weights.
    """
    from cairn.cache import Cache
    from cairn.images.manifest import read_manifest
    from cairn.systems.heads import train_heads

    train_heads(
        read_manifest(job.inputs["training"] / "training.parquet"),
        job.inputs["contamination"],
        job.inputs["training_descriptors"],
        job.parameters["heads"],
        job.head,
        job.output,
        selection=job.inputs,
        cache=Cache.of(job.root),
        code=job.digest,
    )
