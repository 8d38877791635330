"""Did training see the test? The audit of the training classes, and the training sets with and without them."""

from assets.step import Job, step


@step(
    scope="benchmark",
    inputs={
        "sources": "sources",
        "training_sources": "training:sources",
        "training": "training",
        "ground_truth": "ground_truth",
    },
    output="artifacts/{benchmark}/contamination",
    parameters=(
        "benchmark.adapter",
        "benchmark.settings",
        "benchmark.training",
        "benchmark.training_adapter",
        "benchmark.training_settings",
        "benchmark.contamination.landmarks",
        "benchmark.contamination.stance",
        "benchmark.contamination.minimum",
    ),
    picks=("adapter", "training_adapter"),
    kinds=("json",),
)
def contamination(job: Job) -> None:
    """Training classes named after a queried landmark, each with its rule; the training sets standard and decon.

    Counts are given at each step; where the true overlap is known, precision and recall as well.
    """
    from cairn.benchmarks.adapters import audit_inputs
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.contamination.benchmark import write_contamination
    from cairn.contamination.landmarks import load_landmarks
    from cairn.images.manifest import read_manifest

    given = job.parameters
    own = audit_inputs(given["adapter"], given["settings"], job.root, job.inputs["sources"])
    theirs = audit_inputs(
        given["training_adapter"], given["training_settings"], job.root, job.inputs["training_sources"]
    )
    same = given["training"] == job.benchmark
    names = given["contamination_landmarks"]
    write_contamination(
        read_manifest(job.inputs["training"] / "training.parquet"),
        theirs.categories,
        [load_landmarks(name) for name in (own.landmarks if names is None else names)],
        read_ground_truth(job.inputs["ground_truth"]),
        job.output,
        stance=given["contamination_stance"],
        minimum=given["contamination_minimum"],
        source=given["training"],
        known=own.known_overlap if same else None,
    )
