"""The encoder `timm`: any model of the library timm, PE-Core among them (Wightman, pytorch-image-models).

Weights are a file: a path, or `model.safetensors` of a timm repository on the hub at a pinned commit.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cairn.encoders.network import NetworkEncoder, PinnedParameters
from cairn.encoders.pooling import Pooling, pool
from cairn.encoders.weights import (
    Weights,
    external_model,
    fill,
    read_tensors,
    single_file,
)
from cairn.errors import CairnError, InputError, ParameterError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LEARNING_KEYS = ()
FEATURE_MODULES = ()


class TimmPooling(Pooling):
    """`head`: what the model gives with its classifier removed (num_classes=0), its own pooling included."""

    kind: Literal["head", "cls", "mean", "gem"] = "head"


class Parameters(PinnedParameters):
    """Keys of `timm`. Preprocessing by default: shorter side 224, centre crop 224, ImageNet's mean and std.

    What timm says about the model (mean, std, interpolation, input size) is compared: a difference is an error
    unless `as_timm: false`.
    """

    architecture: str = Field(min_length=1)
    """timm's name: `vit_base_patch14_reg4_dinov2.lvd142m`, `vit_pe_core_base_patch16_224.fb`."""
    pooling: TimmPooling = TimmPooling()
    as_timm: bool = True
    """Whether mean and std must be those that timm states for the model."""


@dataclass
class TimmNetwork:
    """The model without its classifier."""

    model: Any
    device: "torch.device"
    pooling: Pooling

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels [n, 3, height, width]."""
        if self.pooling.kind == "head":
            return self.model(pixels)
        features = self.model.forward_features(pixels)
        if features.ndim == 4:  # a feature map: most are [n, c, h, w], Swin's are [n, h, w, c]
            last = (
                features.shape[-1] == self.model.num_features and features.shape[1] != self.model.num_features
            )
            features = features.flatten(1, 2) if last else features.flatten(2).transpose(1, 2)
            prefix = 0
        else:
            prefix = getattr(self.model, "num_prefix_tokens", 0)
        if self.pooling.kind == "cls" and not prefix:
            raise InputError(
                "encoder timm: pooling.kind = 'cls', but the model has no class token; use mean or gem"
            )
        return pool(features, prefix, self.pooling)


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def load(weights: Weights, device: "torch.device") -> TimmNetwork:
        timm = _timm()
        # Vision transformers can be fed other sizes than they were trained on; other models take any.
        options: dict[str, Any] = {"num_classes": 0}
        try:
            try:
                model = timm.create_model(
                    parameters.architecture, pretrained=False, dynamic_img_size=True, **options
                )
            except TypeError:
                model = timm.create_model(parameters.architecture, pretrained=False, **options)
        except RuntimeError as error:
            raise ParameterError(f"architecture = {parameters.architecture!r}: {error}") from None
        _check_preprocessing(model, parameters)
        tensors = read_tensors(weights.path)
        if hasattr(model, "pretrained_cfg"):
            tensors = _filtered(timm, model, tensors)
        # A checkpoint has the classifier that the model was made without.
        fill(model, tensors, str(weights.path), spare=lambda _: True)
        return TimmNetwork(model.eval().to(device), device, parameters.pooling)

    def find() -> Weights:
        return single_file(parameters.model, parameters.revision, ("model.safetensors",), Path())

    return NetworkEncoder("timm", parameters, find, load, ("timm", "safetensors"))


def _timm() -> Any:
    try:
        import timm
    except ImportError:
        raise ParameterError("encoder timm: pip install 'cairn-retrieval[timm]'") from None
    except Exception as error:  # torchvision that was built for another torch
        reason = " ".join(str(error).split())[:150]
        raise CairnError(f"encoder timm: timm cannot be imported beside this torch ({reason})") from error
    return timm


def _filtered(timm: Any, model: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Checkpoints in the format of the original authors, renamed by the model's own filter where it has one."""
    import sys

    module = sys.modules[type(model).__module__]
    rename = getattr(module, "checkpoint_filter_fn", None)
    return rename(tensors, model) if rename is not None else tensors


def _check_preprocessing(model: Any, parameters: Parameters) -> None:
    stated = getattr(model, "pretrained_cfg", None) or {}
    if not parameters.as_timm:
        return
    for name in ("mean", "std"):
        said, given = stated.get(name), getattr(parameters.preprocessing, name)
        if said is not None and max(abs(a - b) for a, b in zip(said, given, strict=True)) > 1e-6:
            raise ParameterError(
                f"encoder timm: preprocessing.{name} = {list(given)}, but timm says {list(said)} for "
                f"{parameters.architecture}; set it, or as_timm: false"
            )
