"""From a network's tokens or feature map to one vector per image. All take and return float tensors."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from torch import Tensor

GEM_EPSILON = 1e-6


class Pooling(BaseModel):
    """How tokens become a descriptor. `head`: as the model's own head does (projection, attention pooling)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["head", "cls", "mean", "gem"] = "cls"
    p: Annotated[float, Field(gt=0, le=1000)] = 3.0
    """Exponent of GeM."""


def cls(tokens: "Tensor") -> "Tensor":
    """[n, dim] from [n, tokens, dim]: the first token."""
    return tokens[:, 0]


def mean(patches: "Tensor") -> "Tensor":
    """[n, dim] from [n, patches, dim], class and register tokens taken out before."""
    return patches.mean(dim=1)


def gem(patches: "Tensor", p: float) -> "Tensor":
    """[n, dim] from [n, patches, dim]: (mean of max(x, 1e-6)^p)^(1/p).

    Generalised mean, Radenović et al., TPAMI 2019, eq. 3, with the clamp of their code (cirtorch,
    layers/functional.py). In float32: a half float overflows at the third power of 40.
    """
    return patches.float().clamp(min=GEM_EPSILON).pow(p).mean(dim=1).pow(1.0 / p)


def last_token(hidden: "Tensor", mask: "Tensor") -> "Tensor":
    """[n, dim] from [n, tokens, dim]: the last token that `mask` [n, tokens] keeps, whichever side is padded."""
    import torch

    position = mask.shape[1] - 1 - mask.flip(dims=[1]).argmax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), position]


def pool(tokens: "Tensor", prefix: int, pooling: Pooling) -> "Tensor":
    """[n, dim] from [n, prefix + patches, dim]: `cls`, `mean` or `gem`; `prefix` counts class and registers."""
    if pooling.kind == "cls":
        return cls(tokens)
    patches = tokens[:, prefix:]
    return mean(patches) if pooling.kind == "mean" else gem(patches, pooling.p)
