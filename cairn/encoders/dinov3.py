"""The encoder `dinov3`: DINOv3 vision transformers and ConvNeXts (Siméoni et al., arXiv 2508.10104)."""

from typing import ClassVar

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.transformers_models import HubParameters, TokenNetwork, encoder
from cairn.encoders.weights import external_model

LEARNING_KEYS = ()
FEATURE_MODULES = ()
CLASSES = {"dinov3_vit": "DINOv3ViTModel", "dinov3_convnext": "DINOv3ConvNextModel"}


class Parameters(HubParameters):
    """Keys of `dinov3`. By default both sides 224, bilinear, as its processor in transformers.

    The models trained on satellite images were normalised otherwise: give their mean and std.
    """

    DEFAULTS: ClassVar = {"preprocessing": {"resize": "square", "size": 224, "interpolation": "bilinear"}}


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""
    return encoder("dinov3", parameters, CLASSES, TokenNetwork.wrap)
