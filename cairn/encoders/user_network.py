"""What the encoders `torchscript` and `onnx` share: a file, and an output that must be one vector per image."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from cairn.encoders.network import NetworkParameters
from cairn.errors import InputError
from cairn.images.preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import Tensor


class FileParameters(NetworkParameters):
    """Keys of a network in one file. Nothing in the file tells how its images were prepared: it is declared."""

    model: str = Field(min_length=1)
    """Path of the file, relative to the project."""
    preprocessing: Preprocessing = Field(...)


def check_output(found: Any, count: int, where: str) -> "Tensor":
    """`found` where it is a tensor [count, dim], else InputError naming the file."""
    import torch

    if not isinstance(found, torch.Tensor) or found.ndim != 2 or len(found) != count:
        shape = list(found.shape) if isinstance(found, torch.Tensor) else ""
        raise InputError(
            f"{where}: gave a {type(found).__name__} {shape} for {count} images; one tensor [{count}, dim] is expected"
        )
    return found
