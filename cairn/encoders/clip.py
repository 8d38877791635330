"""The encoder `clip`: OpenAI's CLIP and models of its kind in transformers (Radford et al., ICML 2021)."""

from pathlib import Path
from typing import Any, ClassVar

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.pooling import Pooling
from cairn.encoders.transformers_models import HubParameters, TwoTowers, encoder
from cairn.encoders.weights import external_model
from cairn.images.preprocessing import CLIP_MEAN, CLIP_STD

LEARNING_KEYS = ()
FEATURE_MODULES = ()


class Parameters(HubParameters):
    """Keys of `clip`. By default shorter side 224, centre crop 224, the projected image embedding."""

    DEFAULTS: ClassVar = {"preprocessing": {"size": 224, "crop": 224, "mean": CLIP_MEAN, "std": CLIP_STD}}
    pooling: Pooling = Pooling(kind="head")


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def network(model: Any, folder: Path, device: Any, _: HubParameters) -> TwoTowers:
        return TwoTowers(model, folder, device, parameters.pooling, prefix=1)

    return encoder(
        "clip", parameters, {"clip": "CLIPModel"}, network, has_text=parameters.pooling.kind == "head"
    )
