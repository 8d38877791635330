"""SuperGlobal's pooling for convolutional encoders: GeM+, Regional-GeM, Scale-GeM and ReLUP.

Source: Shao et al., ICCV 2023 (arXiv 2308.06954), section 3.2; official code ShihaoShao-GH/SuperGlobal,
`modules/coarse_retrieval/{gemp,rgem,sgem,relup}.py` and their use in `model/resnet.py`: ReLUP (0.014)
replaces the activations up to the third stage, Regional-GeM and then GeM+ pool the last feature map, the
result is normalised and projected per scale, and Scale-GeM joins the scales.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def relup(x: "Tensor", alpha: float = 0.014) -> "Tensor":
    """ReLU with a floor: max(x, alpha), any shape."""
    return x.clamp(min=alpha)


def gem_plus(features: "Tensor", p: float = 4.6, epsilon: float = 1e-8) -> "Tensor":
    """Generalised mean over the positions: [B, C] from a feature map [B, C, H, W] or [B, C, positions]."""
    return features.flatten(2).clamp(min=epsilon).pow(p).mean(-1).pow(1 / p)


def regional_gem(features: "Tensor", p: float = 2.5, size: int = 5) -> "Tensor":
    """Mean of each position and the generalised mean of the `size` x `size` region around it.

    `features` [B, C, H, W] >= 0, H and W at least (size + 1) / 2 for the reflected border; same shape.
    """
    import torch.nn.functional as F

    border = (size - 1) // 2
    padded = F.pad(features, (border,) * 4, mode="reflect")
    region = F.avg_pool2d(padded.pow(p), size, stride=1).pow(1 / p)
    return 0.5 * region + 0.5 * features


def scale_gem(descriptors: "Sequence[Tensor]") -> "Tensor":
    """Element-wise maximum [B, D] of the L2-normalised descriptors [B, D] of several image scales.

    (The published variant, p at infinity. Normalise the result before taking inner products.)
    """
    import torch
    import torch.nn.functional as F

    return F.normalize(torch.stack(list(descriptors)), dim=-1).amax(0)
