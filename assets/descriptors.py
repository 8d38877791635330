"""One vector per image: what is searched."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.step import Job, step

if TYPE_CHECKING:
    from cairn.benchmarks.structure import GroundTruth


def asked(job: Job) -> "GroundTruth":
    """The queries with their boxes; without them where the system is the control of uncropped queries."""
    from cairn.benchmarks.structure import read_ground_truth, without_boxes

    truth = read_ground_truth(job.inputs["manifest"] / "queries")
    return without_boxes(truth) if job.parameters["uncropped_queries"] else truth


def sample(job: Job, stored: Path, items: int, seed: int) -> dict[str, Any]:
    """Recompute a few descriptors for `cairn bless`."""
    from cairn.encoders import load_writer
    from cairn.errors import InputError
    from cairn.images.manifest import read_manifest
    from cairn.systems.sampling import compare_sample, recomputed_sample

    if load_writer(job.parameters["encoder"]) is not None:
        raise InputError(
            f"{job.parameters['encoder']}: run the step again instead, which is quick: no image is read"
        )
    return compare_sample(
        recomputed_sample(
            read_manifest(job.inputs["manifest"] / "manifest.parquet"),
            asked(job),
            job.root,
            job.inputs["vocabulary"],
            job.parameters["encoder"],
            job.parameters["settings"],
            stored,
            items=items,
            seed=seed,
        )
    )


@step(
    scope="run",
    inputs={"manifest": "manifest", "vocabulary": "vocabulary"},
    output="artifacts/{benchmark}/{system}/descriptors",
    parameters=("system.encoder", "system.settings", "system.uncropped_queries"),
    picks=("encoder",),
    kinds=("parquet",),
    sample=sample,
)
def descriptors(job: Job) -> None:
    """Global descriptors of the gallery (one Parquet shard per hash of the image id) and of the queries.

    Queries are cropped to their box (not in the control of uncropped queries), gallery images never.
    """
    from cairn.cache import Cache
    from cairn.encoders import load_writer
    from cairn.executor import open_executor
    from cairn.images.manifest import read_manifest
    from cairn.systems.descriptors import extract_descriptors

    manifest = read_manifest(job.inputs["manifest"] / "manifest.parquet")
    truth = asked(job)
    writer = load_writer(job.parameters["encoder"])
    if writer is not None:
        from cairn.systems.writing import Writing

        parts = (job.root, job.benchmark, job.inputs["vocabulary"], job.parameters["settings"], job.output)
        work = Writing(*parts, cache=Cache.of(job.root), features_code=job.features)
        writer.write_descriptors(manifest, truth, work, job.output)
        return
    with open_executor(job.root) as executor:
        extract_descriptors(
            manifest,
            truth,
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
    from cairn.benchmarks.structure import read_ground_truth, without_boxes
    from cairn.encoders import load_writer
    from cairn.images.manifest import read_manifest
    from cairn.systems.descriptor_checks import check_brought, check_descriptors

    manifest = read_manifest(root / inputs["manifest"] / "manifest.parquet")
    truth = read_ground_truth(root / inputs["manifest"] / "queries")
    if load_writer(parameters["encoder"]) is not None:
        return check_brought(stored, manifest, truth)
    return check_descriptors(
        stored,
        manifest,
        without_boxes(truth) if parameters["uncropped_queries"] else truth,
        root,
        root / inputs["vocabulary"],
        parameters["encoder"],
        parameters["settings"],
    )
