"""`contamination` of a benchmark, and which training images a system may learn from."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

VERIFIER = "rootsift-vlad"
"""The encoder whose local features verify pairs, whatever a system describes images with."""

TRAINING_SETS = ("all", "standard", "decon", "matched")
"""`training_set` of a system: all training images, or a set of `cairn.contamination.training_sets`."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ImageAuditParameters(_Strict):
    """The image-level audit, made for systems that have heads; see `cairn.contamination.images`."""

    precision: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Stated precision on labelled pairs, for which the threshold on inliers is chosen."""
    labelled: Annotated[int, Field(ge=1, le=100_000)] = 40
    """Most similar gallery images of each query: the labelled pairs."""
    candidates: Annotated[int, Field(ge=1, le=1000)] = 10
    """Most similar queries of each flagged image."""
    depth: Annotated[int, Field(ge=1, le=100_000)] = 60
    """Most similar training images of each query, flagged or not: what recall is measured over."""
    sample: Annotated[int, Field(ge=0, le=100_000)] = 40
    """Images on the page for judges; 0 for no page."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class ContaminationParameters(_Strict):
    """`contamination` of a benchmark: what to look for in its training images, and what is taken out of them."""

    landmarks: tuple[str, ...] | None = None
    """Landmark lists that come with Cairn; null: the benchmark's own. Name all benchmarks a head is used for."""
    stance: Literal["inclusive", "strict"] = "inclusive"
    """Which flagged classes `decon` leaves out."""
    minimum: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """Images that a class must have to be trained on."""
    images: ImageAuditParameters = ImageAuditParameters()

    @field_validator("landmarks")
    @classmethod
    def _shipped(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from cairn.contamination.landmarks import shipped_lists

        for name in names or ():
            if name not in shipped_lists():
                raise ValueError(
                    f"no landmark list {name!r} comes with Cairn; there are: {', '.join(shipped_lists())}"
                )
        return names
