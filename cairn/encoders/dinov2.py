"""The encoder `dinov2`: DINOv2 in all sizes, with and without registers (Oquab et al., TMLR 2024; Darcet et al.)."""

from typing import ClassVar

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.transformers_models import HubParameters, TokenNetwork, encoder
from cairn.encoders.weights import external_model

LEARNING_KEYS = ()
FEATURE_MODULES = ()
CLASSES = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}


class Parameters(HubParameters):
    """Keys of `dinov2`. By default the image as its authors evaluate it: shorter side 256, centre crop 224."""

    DEFAULTS: ClassVar = {"preprocessing": {"size": 256, "crop": 224}}


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""
    return encoder("dinov2", parameters, CLASSES, TokenNetwork.wrap)
