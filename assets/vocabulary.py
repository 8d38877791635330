"""What a system learns from training images before it can describe any other."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"training": "training", "contamination": "contamination"},
    output="artifacts/{benchmark}/{system}/vocabulary",
    parameters=("system.encoder", "system.learning", "system.training_set"),
    picks=("encoder",),
    kinds=("numpy",),
)
def vocabulary(job: Job) -> None:
    """What the encoder learns from the training images (visual words, PCA); systems that learn nothing say so.

    From all training images, or from those of the system's `training_set` (`decon`: without the flagged classes).
    """
    from cairn.cache import Cache
    from cairn.contamination.benchmark import learning_manifest
    from cairn.images.manifest import read_manifest
    from cairn.systems.vocabulary import learn_vocabulary

    training_set = job.parameters["training_set"]
    learn_vocabulary(
        learning_manifest(
            read_manifest(job.inputs["training"] / "training.parquet"),
            job.inputs["contamination"],
            training_set,
        ),
        job.root,
        job.parameters["encoder"],
        job.parameters["learning"],
        job.output,
        cache=Cache.of(job.root),
        features_code=job.features,
        training_set=training_set,
    )
