"""The encoder `torchscript`: a user's own network, saved by torch.jit, with its preprocessing declared."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.user_network import FileParameters, check_output
from cairn.encoders.weights import Weights, external_model, file_weights
from cairn.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LEARNING_KEYS = ()
FEATURE_MODULES = ()


class Parameters(FileParameters):
    """Keys of `torchscript`. The network takes normalised float32 [n, 3, height, width] and gives [n, dim]."""


@dataclass
class Script:
    """The saved network."""

    model: Any
    device: "torch.device"
    where: str

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels."""
        return check_output(self.model(pixels), len(pixels), self.where)


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def load(weights: Weights, device: "torch.device") -> Script:
        import torch

        try:
            model = torch.jit.load(weights.path, map_location=device)
        except Exception as error:  # damaged bytes make it raise nearly anything
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{weights.path}: not a TorchScript file ({type(error).__name__}: {reason})"
            ) from None
        return Script(model.eval(), device, str(weights.path))

    return NetworkEncoder("torchscript", parameters, lambda: file_weights(parameters.model, Path()), load, ())
