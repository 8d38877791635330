"""Local features of the queries and of what they found."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={
        "ranking": "ranking",
        "descriptors": "descriptors",
        "readout": "readout",
        "ground_truth": "ground_truth",
        "manifest": "manifest",
    },
    output="artifacts/{benchmark}/{system}/local",
    parameters=("system.encoder", "system.settings", "system.local"),
    picks=("encoder", "reranker"),
    kinds=("hdf5",),
)
def local(job: Job) -> None:
    """Local features of the queries and the shortlisted images only: those of a whole large gallery would not fit."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.cache import Cache
    from cairn.images.manifest import read_manifest
    from cairn.systems.local import extract_local
    from cairn.systems.readout import searched

    truth = read_ground_truth(job.inputs["ground_truth"])
    extract_local(
        job.inputs["ranking"],
        read_manifest(job.inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(job.inputs["manifest"] / "queries"),
        job.root,
        job.parameters["encoder"],
        job.parameters["settings"],
        job.parameters["local"],
        job.output,
        descriptors=searched(job.inputs["descriptors"], job.inputs["readout"]),
        relevance=truth.relevance,
        graded=truth,
        cache=Cache.of(job.root),
        features_code=job.features,
    )
