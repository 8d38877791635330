"""Parameters of a projection head and of its training; the defaults are those of the published release."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HeadLayers(_Strict):
    """The layers behind the input: hidden with bias → activation → output without → affine norm."""

    hidden: Annotated[int, Field(ge=1, le=65_536)] = 2048
    output: Annotated[int, Field(ge=2, le=65_536)] = 512
    activation: Literal["gelu", "relu"] = "gelu"
    norm: Literal["layer", "batch"] = "layer"
    """Both have a weight and a bias per output; `batch` normalises by statistics of the training set."""
    residual: bool = False
    """Add the descriptor to what the layers make of it, which is 0 at first: training starts at the descriptor."""


class HeadShape(HeadLayers):
    """The layers: Linear(input, hidden) with bias → activation → Linear(hidden, output) without → affine norm."""

    input: Annotated[int, Field(ge=2, le=65_536)] = 1024
    """Dimension of the descriptors."""

    @model_validator(mode="after")
    def _fits(self) -> "HeadShape":
        if self.residual and self.input != self.output:
            raise ValueError(f"residual needs output = input, not {self.output} and {self.input}")
        return self

    @property
    def n_parameters(self) -> int:
        """Trained numbers: 3,148,800 for 1024 → 2048 → 512."""
        return self.input * self.hidden + self.hidden + self.hidden * self.output + 2 * self.output


class HeadTraining(_Strict):
    """Sub-centre ArcFace on the classes of a training set; see `arcface.py` and `training.py`."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    batch: Annotated[int, Field(ge=2, le=65_536)] = 512
    rate: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Learning rate of the head (AdamW) at its highest; it falls to 0 along a cosine."""
    centre_rate: Annotated[float, Field(gt=0, le=1000)] = 0.1
    """Learning rate of the class centres (momentum SGD), along the same cosine."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Share of all steps in which the rates rise from 0."""
    decay: Annotated[float, Field(ge=0, le=1)] = 1e-2
    """AdamW's weight decay."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Between the two layers, in training."""
    scale: Annotated[float, Field(gt=0, le=1000)] = 32.0
    margin: Annotated[float, Field(ge=0, lt=1.5)] = 0.3
    """ArcFace's additive angle, in radians."""
    centres: Annotated[int, Field(ge=1, le=16)] = 3
    """Sub-centres per class."""
    classes_per_step: Annotated[int, Field(ge=2)] = 8192
    """Classes that a step's softmax runs over: those of the batch, and others drawn at random."""
    buffer: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Blocks of descriptors that are in memory, and shuffled, together."""


class HeadsParameters(_Strict):
    """`heads` of a system: one head per protocol and seed, trained on the system's frozen descriptors."""

    protocols: Annotated[tuple[Literal["standard", "decon", "matched"], ...], Field(min_length=1)] = (
        "standard",
        "decon",
    )
    """Training sets, see `cairn.contamination.training_sets`."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], Field(min_length=1)] = (0, 1, 2)
    layers: HeadLayers = HeadLayers()
    training: HeadTraining = HeadTraining()

    @model_validator(mode="after")
    def _each_once(self) -> "HeadsParameters":
        for name, values in (("protocols", self.protocols), ("seeds", self.seeds)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} holds {', '.join(map(str, values))}: give each once")
        return self
