"""The projection head: a two-layer perceptron with an affine norm, whose output is L2-normalised."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ArtifactError
from cairn.files import atomic
from cairn.heads.parameters import HeadShape

if TYPE_CHECKING:
    from torch import nn

APPLY_BLOCK = 8192


def build_head(shape: HeadShape, dropout: float = 0.0) -> "nn.Module":
    """A torch module from float32 [n, input] to float32 [n, output], rows of L2 norm 1.

    Its parameters are drawn from torch's generator. The order of the layers and which of them has a bias are
    inferred from a published count, 3,148,800 for 1024 → 2048 → 512 (the source names no layers):
    1024·2048 + 2048 + 2048·512 + 2·512.
    """
    import torch
    from torch import nn
    from torch.nn import functional

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(shape.input, shape.hidden)
            self.activation = nn.GELU() if shape.activation == "gelu" else nn.ReLU()
            self.dropout = nn.Dropout(dropout)
            self.second = nn.Linear(shape.hidden, shape.output, bias=False)
            self.norm = nn.LayerNorm(shape.output) if shape.norm == "layer" else nn.BatchNorm1d(shape.output)
            if shape.residual:
                nn.init.zeros_(self.second.weight)

        def forward(self, descriptors: torch.Tensor) -> torch.Tensor:
            made = self.second(self.dropout(self.activation(self.first(descriptors))))
            return functional.normalize(self.norm(descriptors + made if shape.residual else made), dim=1)

    head = Head()
    assert sum(parameter.numel() for parameter in head.parameters()) == shape.n_parameters
    return head


def apply_head(head: "nn.Module", descriptors: np.ndarray) -> np.ndarray:
    """The head's output for descriptors float16 or float32 [n, input]: float32 [n, output]."""
    import torch

    head.eval()
    device = next(head.parameters()).device
    parts = [np.zeros((0, head.second.out_features), np.float32)]  # type: ignore[union-attr]
    with torch.inference_mode():
        for start in range(0, len(descriptors), APPLY_BLOCK):
            block = np.ascontiguousarray(descriptors[start : start + APPLY_BLOCK], np.float32)
            parts.append(head(torch.from_numpy(block).to(device)).cpu().numpy())
    return np.concatenate(parts)


def through_head(head: "nn.Module", descriptors: np.ndarray) -> np.ndarray:
    """Descriptors [n, input] as they are stored behind the head: [n, output] of their own dtype.

    A zero descriptor (an image without features) stays zero: it is as similar to every query as it was.
    """
    kept = np.any(descriptors != 0, axis=1, keepdims=True)
    return (apply_head(head, descriptors) * kept).astype(descriptors.dtype)


def save_head(path: Path, head: "nn.Module") -> None:
    """Write the weights as an .npz of float32 arrays; equal weights give equal bytes."""
    arrays = {name: value.detach().cpu().numpy() for name, value in head.state_dict().items()}
    with atomic(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def load_head(path: Path, shape: HeadShape) -> "nn.Module":
    """The head in a file of `save_head`. ArtifactError where it is not one, or not of this shape."""
    import torch

    head = build_head(shape)
    expected: dict[str, Any] = head.state_dict()
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise ArtifactError(f"{path}: not a head's weights ({type(error).__name__}: {error!s:.80})") from None
    except Exception as error:  # zipfile raises its own kinds on damaged bytes
        raise ArtifactError(f"{path}: damaged ({type(error).__name__})") from None
    for name, value in expected.items():
        if name not in arrays:
            raise ArtifactError(f"{path}: the weights {name} are missing")
        if arrays[name].shape != tuple(value.shape) or arrays[name].dtype.kind not in "fi":
            raise ArtifactError(
                f"{path}: {name} is {arrays[name].dtype} {list(arrays[name].shape)}; "
                f"a head {shape.input} → {shape.hidden} → {shape.output} has {list(value.shape)}"
            )
        if arrays[name].dtype.kind == "f" and not np.isfinite(arrays[name]).all():
            raise ArtifactError(f"{path}: {name} holds values that are not finite")
    head.load_state_dict({name: torch.from_numpy(arrays[name].copy()) for name in expected})
    return head.eval()
