"""What a system learns from training images before it can describe any other."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"training": "training"},
    output="artifacts/{benchmark}/{system}/vocabulary",
    parameters=("system.encoder", "system.learning"),
    picks=("encoder",),
    kinds=("numpy",),
)
def vocabulary(job: Job) -> None:
    """What the encoder learns from the training images (visual words, PCA); systems that learn nothing say so."""
    from cairn.cache import Cache
    from cairn.images.manifest import read_manifest
    from cairn.systems.vocabulary import learn_vocabulary

    learn_vocabulary(
        read_manifest(job.inputs["training"] / "training.parquet"),
        job.root,
        job.parameters["encoder"],
        job.parameters["learning"],
        job.output,
        cache=Cache.of(job.root),
        features_code=job.features,
    )
