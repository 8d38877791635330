"""The encoder `siglip2`: SigLIP 2 NaFlex, native aspect ratios within a budget of patches (Tschannen et al., 2025)."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_validator

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.pooling import Pooling, pool
from cairn.encoders.transformers_models import HubParameters, TwoTowers, encoder
from cairn.encoders.weights import external_model
from cairn.errors import InputError
from cairn.images.preprocessing import HALF

if TYPE_CHECKING:
    from torch import Tensor

LEARNING_KEYS = ()
FEATURE_MODULES = ()


class Parameters(HubParameters):
    """Keys of `siglip2`. By default at most 256 patches of 16 pixels, bilinear, as its processor in transformers."""

    DEFAULTS: ClassVar = {
        "preprocessing": {
            "resize": "patches",
            "size": 256,
            "multiple": 16,
            "interpolation": "bilinear",
            "mean": HALF,
            "std": HALF,
        }
    }
    pooling: Pooling = Pooling(kind="head")

    @model_validator(mode="after")
    def _possible(self) -> "Parameters":
        if self.pooling.kind == "cls":
            raise ValueError("pooling.kind = 'cls': SigLIP has no class token; head, mean or gem is expected")
        if self.preprocessing.multiple == 1 and self.preprocessing.crop is None:
            raise ValueError("preprocessing.multiple: the patch of the network (16) is expected")
        return self


@dataclass
class NaFlex(TwoTowers):
    """Takes patches in place of pixels; a batch here has one shape, so nothing is padded."""

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels whose sides are multiples of the patch."""
        import torch

        patches, grid = patchify(pixels, self.model.config.vision_config.patch_size)
        inputs = {
            "pixel_values": patches,
            "pixel_attention_mask": torch.ones(patches.shape[:2], dtype=torch.int32, device=pixels.device),
            "spatial_shapes": torch.tensor([grid] * len(pixels), device=pixels.device),
        }
        if self.pooling.kind == "head":
            return self.model.get_image_features(**inputs).pooler_output
        found = self.model.vision_model(
            pixel_values=inputs["pixel_values"],
            attention_mask=inputs["pixel_attention_mask"],
            spatial_shapes=inputs["spatial_shapes"],
        )
        return pool(found.last_hidden_state, 0, self.pooling)


def patchify(pixels: "Tensor", patch: int) -> "tuple[Tensor, tuple[int, int]]":
    """[n, patches, patch × patch × 3] (row, column, channel inside a patch) and the grid's height and width."""
    count, channels, height, width = pixels.shape
    if height % patch or width % patch:
        raise InputError(
            f"siglip2: {height} × {width} pixels are no multiple of its patch of {patch}; set multiple"
        )
    grid = (height // patch, width // patch)
    cut = pixels.reshape(count, channels, grid[0], patch, grid[1], patch).permute(0, 2, 4, 3, 5, 1)
    return cut.reshape(count, grid[0] * grid[1], patch * patch * channels), grid


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def network(model: Any, folder: Path, device: Any, _: HubParameters) -> NaFlex:
        return NaFlex(model, folder, device, parameters.pooling, prefix=0)

    has_text = parameters.pooling.kind == "head"
    return encoder("siglip2", parameters, {"siglip2": "Siglip2Model"}, network, has_text=has_text)
