"""Read-outs: what is done to descriptors after pooling and before search, learned from a declared source.

In this order: the first `dimension` numbers are kept (prefix truncation: Kusupati et al., "Matryoshka
Representation Learning", NeurIPS 2022) and L2-normalised; their mean is subtracted; or they are centred, projected
and whitened by PCA (Jégou and Chum, ECCV 2012); and what comes out is L2-normalised again.

Mean and PCA come from `training` descriptors or from the `gallery`. The gallery is what is evaluated on: a number
with such a read-out is not that of a descriptor fixed in advance, and its stage says so.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Source = Literal["training", "gallery"]


class Whitening(BaseModel):
    """PCA of the (truncated) descriptors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source = "training"
    dimension: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Components kept; null for all that the source's images allow."""
    strength: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Each component is divided by its variance to the power strength / 2: 0 only rotates, 1 whitens."""
    images: Annotated[int, Field(ge=2, le=10_000_000)] = 20_000
    """Most images the components are learned from, evenly spaced in the order of the store."""


class ReadoutParameters(BaseModel):
    """`readout` of a system; without it descriptors are searched as the encoder made them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dimension: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Numbers kept, from the first on; null for all."""
    centre: Literal["none", "training", "gallery"] = "none"
    """Whose mean is subtracted."""
    whiten: Whitening | None = None
    """`true` in `params.yaml`: with every default; `false`: none."""

    @field_validator("whiten", mode="before")
    @classmethod
    def _switched(cls, value: Any) -> Any:
        return ({} if value else None) if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _centres_once(self) -> "ReadoutParameters":
        if self.whiten is not None and self.centre != "none":
            raise ValueError("whiten subtracts its own source's mean; leave centre out")
        return self

    @property
    def identity(self) -> bool:
        """Whether nothing is done."""
        return self == ReadoutParameters()

    @property
    def source(self) -> Source | None:
        """What it learns from; None where it learns nothing."""
        if self.whiten is not None:
            return self.whiten.source
        return None if self.centre == "none" else self.centre

    @property
    def slug(self) -> str:
        """`dim1024-centred.gallery`, `whitened.training-d256-w0.5`; `plain` where nothing is done."""
        parts = [f"dim{self.dimension}"] if self.dimension is not None else []
        if self.centre != "none":
            parts.append(f"centred.{self.centre}")
        if self.whiten is not None:
            parts.append(f"whitened.{self.whiten.source}")
            parts += [f"d{self.whiten.dimension}"] if self.whiten.dimension is not None else []
            parts += [f"w{self.whiten.strength:g}"] if self.whiten.strength != 1 else []
        return "-".join(parts) or "plain"

    @property
    def mark(self) -> str:
        """What a stage's name must say: `centred.gallery` or `whitened.gallery`, else nothing."""
        if self.source != "gallery":
            return ""
        return "whitened.gallery" if self.whiten is not None else "centred.gallery"
