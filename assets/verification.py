"""Do the flagged classes' pictures show what is queried, and what did the names miss?"""

from assets.step import Job, step


@step(
    scope="headed",
    inputs={
        "contamination": "contamination",
        "training": "training",
        "training_descriptors": "training_descriptors",
        "descriptors": "descriptors",
        "manifest": "manifest",
        "ground_truth": "ground_truth",
        "sources": "sources",
        "training_sources": "training:sources",
    },
    output="artifacts/{benchmark}/{system}/verification",
    parameters=(
        "benchmark.adapter",
        "benchmark.settings",
        "benchmark.training",
        "benchmark.training_adapter",
        "benchmark.training_settings",
        "benchmark.contamination",
    ),
    picks=("adapter", "training_adapter", "verifier"),
    kinds=("html", "json"),
)
def verification(job: Job) -> None:
    """Flagged classes checked picture by picture: candidates by this system's descriptors, verified geometrically.

    Precision by rule with intervals, recall over the training set, what the detector cannot see, a page for judges.
    """
    from cairn.benchmarks.adapters import audit_inputs
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.cache import Cache
    from cairn.contamination.landmarks import load_landmarks
    from cairn.images.manifest import read_manifest
    from cairn.systems.verification import verify_training

    given = job.parameters
    own = audit_inputs(given["adapter"], given["settings"], job.root, job.inputs["sources"])
    theirs = audit_inputs(
        given["training_adapter"], given["training_settings"], job.root, job.inputs["training_sources"]
    )
    names = given["contamination"]["landmarks"]
    verify_training(
        read_manifest(job.inputs["training"] / "training.parquet"),
        read_manifest(job.inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(job.inputs["ground_truth"]),
        job.root,
        theirs.categories,
        [load_landmarks(name) for name in (own.landmarks if names is None else names)],
        job.inputs["training_descriptors"],
        job.inputs["descriptors"],
        given["contamination"],
        job.output,
        source=given["training"],
        known=own.known_overlap if given["training"] == job.benchmark else None,
        cache=Cache.of(job.root),
        features_code=job.features,
    )
