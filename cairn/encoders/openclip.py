"""The encoder `openclip`: image and text towers of the library open_clip (Ilharco et al., OpenCLIP).

Weights are a file: a path, or `open_clip_model.safetensors` of a repository on the hub at a pinned commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from cairn.encoders.network import NetworkEncoder, PinnedParameters
from cairn.encoders.weights import (
    Weights,
    external_model,
    fill,
    read_tensors,
    single_file,
)
from cairn.errors import CairnError, ParameterError
from cairn.images.preprocessing import CLIP_MEAN, CLIP_STD

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LEARNING_KEYS = ()
FEATURE_MODULES = ()
HUB_FILES = ("open_clip_model.safetensors", "model.safetensors")


class Parameters(PinnedParameters):
    """Keys of `openclip`. By default shorter side 224, centre crop 224, bicubic, CLIP's mean and std."""

    DEFAULTS: ClassVar = {"preprocessing": {"size": 224, "crop": 224, "mean": CLIP_MEAN, "std": CLIP_STD}}

    architecture: str = Field(min_length=1)
    """open_clip's name: `ViT-B-32`, `ViT-SO400M-14-SigLIP-384`."""
    quick_gelu: bool = False
    """Models trained by OpenAI, and some others, use this activation; weights do not tell."""


@dataclass
class OpenClip:
    """The two towers."""

    model: Any
    tokenizer: Any
    device: "torch.device"

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels [n, 3, height, width]."""
        return self.model.encode_image(pixels)

    def texts(self, texts: Sequence[str]) -> "Tensor":
        """[n, dim] from texts, cut to the tower's length."""
        return self.model.encode_text(self.tokenizer(list(texts)).to(self.device))


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def load(weights: Weights, device: "torch.device") -> OpenClip:
        library = _open_clip()
        if parameters.architecture not in library.list_models():
            raise ParameterError(f"architecture = {parameters.architecture!r}: open_clip has no such model")
        model = library.create_model(
            parameters.architecture,
            pretrained=None,
            force_quick_gelu=parameters.quick_gelu,
            output_dict=False,
        )
        # position_ids: a buffer that some versions of the library save and others make anew.
        tensors = read_tensors(weights.path)
        fill(model, tensors, str(weights.path), spare=lambda name: name.endswith("position_ids"))
        return OpenClip(model.eval().to(device), library.get_tokenizer(parameters.architecture), device)

    def find() -> Weights:
        return single_file(parameters.model, parameters.revision, HUB_FILES, Path())

    return NetworkEncoder(
        "openclip", parameters, find, load, ("open-clip-torch", "safetensors"), has_text=True
    )


def _open_clip() -> Any:
    try:
        import open_clip
    except ImportError:
        raise ParameterError("encoder openclip: pip install 'cairn-retrieval[openclip]'") from None
    except Exception as error:  # torchvision that was built for another torch
        reason = " ".join(str(error).split())[:150]
        raise CairnError(
            f"encoder openclip: open_clip cannot be imported beside this torch ({reason})"
        ) from error
    return open_clip
