"""One vector per training image: what heads and read-outs learn on."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={"training": "training", "contamination": "contamination", "vocabulary": "vocabulary"},
    output="artifacts/{benchmark}/{system}/training-descriptors",
    parameters=("system.encoder", "system.settings", "system.training_descriptors", "system.described_set"),
    picks=("encoder",),
    kinds=("parquet",),
)
def training_descriptors(job: Job) -> None:
    """Global descriptors of the training images, where a head or a read-out of the system learns on them.

    Whole images, described as those of the gallery are; an empty artifact for every other system. A system without
    heads describes those of its `training_set`, so that a read-out learns from them alone.
    """
    from cairn.cache import Cache
    from cairn.contamination.learning import learning_manifest
    from cairn.encoders import load_writer
    from cairn.executor import open_executor
    from cairn.images.manifest import read_manifest
    from cairn.systems.descriptors import extract_training_descriptors

    everything = read_manifest(job.inputs["training"] / "training.parquet")
    training = learning_manifest(everything, job.inputs["contamination"], job.parameters["described_set"])
    writer = load_writer(job.parameters["encoder"])
    if writer is not None and job.parameters["training_descriptors"]:
        from cairn.systems.writing import Writing

        parts = (job.root, job.benchmark, job.inputs["vocabulary"], job.parameters["settings"], job.output)
        work = Writing(*parts, cache=Cache.of(job.root), features_code=job.features)
        writer.write_training_descriptors(everything, training, work, job.output)
        return
    with open_executor(job.root) as executor:
        extract_training_descriptors(
            training,
            job.root,
            job.inputs["vocabulary"],
            job.parameters["encoder"],
            job.parameters["settings"],
            job.output,
            wanted=job.parameters["training_descriptors"],
            cache=Cache.of(job.root),
            code=job.digest,
            features_code=job.features,
            executor=executor,
        )
