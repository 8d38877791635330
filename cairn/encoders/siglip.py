"""The encoder `siglip`: SigLIP, and the fixed-resolution SigLIP 2 (Zhai et al., ICCV 2023; Tschannen et al., 2025)."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.pooling import Pooling
from cairn.encoders.transformers_models import HubParameters, TwoTowers, encoder
from cairn.encoders.weights import external_model
from cairn.images.preprocessing import HALF

LEARNING_KEYS = ()
FEATURE_MODULES = ()


class Parameters(HubParameters):
    """Keys of `siglip`. By default both sides 224, the attention-pooled image embedding.

    The SigLIP 2 models named by a resolution (`siglip2-base-patch16-224`) are SigLIP models in transformers.
    """

    DEFAULTS: ClassVar = {"preprocessing": {"resize": "square", "size": 224, "mean": HALF, "std": HALF}}
    pooling: Pooling = Pooling(kind="head")

    @model_validator(mode="after")
    def _without_class_token(self) -> "Parameters":
        if self.pooling.kind == "cls":
            raise ValueError("pooling.kind = 'cls': SigLIP has no class token; head, mean or gem is expected")
        return self


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def network(model: Any, folder: Path, device: Any, _: HubParameters) -> TwoTowers:
        return TwoTowers(model, folder, device, parameters.pooling, prefix=0)

    return encoder(
        "siglip", parameters, {"siglip": "SiglipModel"}, network, has_text=parameters.pooling.kind == "head"
    )
