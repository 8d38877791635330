"""The first stage: for every query the gallery in order of similarity."""

from assets.step import Job, step


@step(
    scope="run",
    inputs={
        "descriptors": "descriptors",
        "readout": "readout",
        "training_descriptors": "training_descriptors",
        "manifest": "manifest",
        "ground_truth": "ground_truth",
    },
    output="artifacts/{benchmark}/{system}/ranking",
    parameters=("system.search", "system.uncropped_queries"),
    kinds=("faiss", "parquet"),
)
def ranking(job: Job) -> None:
    """Exact search: each query's top images, the exact rank of every judged image, and a FAISS index.

    Ties: score, then manifest row. The index's recall against the exact search stands beside it.
    """
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.executor import device_of, open_executor
    from cairn.images.manifest import read_manifest
    from cairn.systems.ranking import search

    with open_executor(job.root) as executor:
        search(
            job.inputs["descriptors"],
            read_manifest(job.inputs["manifest"] / "manifest.parquet"),
            read_ground_truth(job.inputs["ground_truth"]),
            job.parameters["search"],
            job.output,
            readout=job.inputs["readout"],
            training=job.inputs["training_descriptors"],
            uncropped=job.parameters["uncropped_queries"],
            executor=executor,
            device=device_of(job.root),
            measurements=job.root
            / ".cairn"
            / "measurements"
            / "ranking"
            / job.benchmark
            / f"{job.system}.json",
        )
