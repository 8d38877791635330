"""The encoder `dinov2`: DINOv2 in all sizes, with and without registers (Oquab et al., TMLR 2024; Darcet et al.)."""

from typing import ClassVar

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.transformers_models import HubParameters, TokenNetwork, encoder
from cairn.encoders.weights import local_files

LEARNING_KEYS = ()
FEATURE_MODULES = ()
CLASSES = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}


class Parameters(HubParameters):
    """Keys of `dinov2`. By default the image as its authors evaluate it: shorter side 256, centre crop 224."""

    DEFAULTS: ClassVar = {"preprocessing": {"size": 256, "crop": 224}}


def files(settings: dict, root) -> list[str]:
    """Files of the user's that decide what this encoder does."""
    return local_files(settings["model"], root)


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""
    return encoder("dinov2", parameters, CLASSES, TokenNetwork.wrap)
