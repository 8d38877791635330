"""One vector per image: what is searched."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.step import Job, step


def sample(job: Job, stored: Path, items: int, seed: int) -> dict[str, Any]:
    """Recompute a few descriptors for `cairn bless`."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.images.manifest import read_manifest
    from cairn.systems.sampling import sample_descriptors

    return sample_descriptors(
        read_manifest(job.inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(job.inputs["manifest"] / "queries"),
        job.root,
        job.inputs["vocabulary"],
        job.parameters["encoder"],
        job.parameters["settings"],
        stored,
        items=items,
        seed=seed,
    )


@step(
    scope="run",
    inputs={"manifest": "manifest", "vocabulary": "vocabulary"},
    output="artifacts/{benchmark}/{system}/descriptors",
    parameters=("system.encoder", "system.settings"),
    picks=("encoder",),
    kinds=("parquet",),
    sample=sample,
)
def descriptors(job: Job) -> None:
    """Global descriptors of the gallery (one Parquet shard per hash of the image id) and of the queries.

    Queries are cropped to their box, gallery images never.
    """
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.cache import Cache
    from cairn.executor import open_executor
    from cairn.images.manifest import read_manifest
    from cairn.systems.descriptors import extract_descriptors

    with open_executor(job.root) as executor:
        extract_descriptors(
            read_manifest(job.inputs["manifest"] / "manifest.parquet"),
            read_ground_truth(job.inputs["manifest"] / "queries"),
            job.root,
            job.inputs["vocabulary"],
            job.parameters["encoder"],
            job.parameters["settings"],
            job.output,
            cache=Cache.of(job.root),
            code=job.digest,
            features_code=job.features,
            executor=executor,
        )


def checks(root: Path, inputs: Mapping[str, str], parameters: Mapping[str, Any], stored: Path) -> list[Any]:
    """The checks of `cairn.systems.descriptor_checks` of what this step made (paths below `root`)."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.images.manifest import read_manifest
    from cairn.systems.descriptor_checks import check_descriptors

    return check_descriptors(
        stored,
        read_manifest(root / inputs["manifest"] / "manifest.parquet"),
        read_ground_truth(root / inputs["manifest"] / "queries"),
        root,
        root / inputs["vocabulary"],
        parameters["encoder"],
        parameters["settings"],
    )
