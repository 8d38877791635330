"""The network of a second stage that is trained in the graph."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={
        "training": "training",
        "contamination": "contamination",
        "training_descriptors": "training_descriptors",
    },
    output="artifacts/{benchmark}/{system}/reranker",
    parameters=("system.encoder", "system.settings", "system.training_set", "system.reranker_training"),
    picks=("encoder", "reranker"),
    kinds=("pytorch",),
)
def reranker_training(job: Job) -> None:
    """The re-ranker's network, trained on pairs that are mined from the training images; empty for other systems.

    From all training images, or from those of the system's `training_set` (`decon`: without the flagged classes).
    """
    from cairn.cache import Cache
    from cairn.contamination.learning import learning_manifest
    from cairn.images.manifest import read_manifest
    from cairn.systems.reranker_training import train_reranker

    train_reranker(
        learning_manifest(
            read_manifest(job.inputs["training"] / "training.parquet"),
            job.inputs["contamination"],
            job.parameters["training_set"],
        ),
        job.inputs["training_descriptors"],
        job.root,
        job.parameters["encoder"],
        job.parameters["settings"],
        job.parameters["reranker_training"],
        job.output,
        cache=Cache.of(job.root),
        code=job.digest,
        features_code=job.features,
        training_set=job.parameters["training_set"],
    )
