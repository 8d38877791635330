"""Loading and saving network weights from outside without running what they contain.

AMES and detector checkpoints are PyTorch files `{"state": {name: tensor}, ...}` (pavelsuma/ames,
`src/evaluate.py` and `extract/extract_descriptors.py`). They are opened with `weights_only`, so that a pickle
cannot execute code.
"""

import hashlib
import io
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cairn.errors import InputError
from cairn.files import atomic
from cairn.rerank.ames import Ames, AmesShape

LAYER_KEY = re.compile(r"decoder\.layers\.(\d+)\.")


def load_ames(path: Path, heads: int = 2, activation: str = "relu") -> Ames:
    """The network of a checkpoint, in evaluation mode, float32 on the CPU.

    Sizes, depth, binarised or not, and pre- or post-norm follow from the parameters' names and shapes;
    `heads` and `activation` leave no trace in a checkpoint (published: 2, relu). Raises InputError, naming
    the file, where it is no such checkpoint.
    """
    return ames_from_state(read_state(path), str(path), heads, activation)


def ames_from_state(
    state: Mapping[str, Tensor], where: str, heads: int = 2, activation: str = "relu"
) -> Ames:
    """The network with the parameters of `state`; `where` names their origin in errors (InputError)."""
    binarized = "remap_local.0.W" in state
    first = "remap_local.0.W" if binarized else "remap_local.0.weight"
    needed = ("mtc_token", "classifier.weight", first, "decoder.layers.0.linear1.weight")
    missing = [key for key in needed if key not in state]
    if missing:
        raise InputError(
            f"{where}: not an AMES checkpoint: no parameter {missing[0]} (it holds {_some(state)}); "
            "the published ones are dinov2_ames.pt, dinov2_ames_dist.pt, cvnet_ames.pt, cvnet_ames_dist.pt"
        )
    layers = [int(match.group(1)) for key in state if (match := LAYER_KEY.match(key))]
    projection = state[first]
    if (
        projection.ndim != 2
        or state["mtc_token"].ndim != 1
        or state["decoder.layers.0.linear1.weight"].ndim != 2
    ):
        raise InputError(f"{where}: not an AMES checkpoint: {first} has shape {tuple(projection.shape)}")
    width = len(state["mtc_token"])
    if width < 1 or width % heads:
        raise InputError(f"{where}: {heads} heads do not divide the model width {width}")
    if len(set(layers)) <= max(layers):
        raise InputError(f"{where}: not an AMES checkpoint: {len(set(layers))} of {max(layers) + 1} layers")
    shape = AmesShape(
        local_dim=projection.shape[0 if binarized else 1],
        model_dim=width,
        heads=heads,
        layers=max(layers) + 1,
        feedforward=state["decoder.layers.0.linear1.weight"].shape[0],
        binarized=binarized,
        normalize_before="decoder.norm.weight" in state,
        activation=activation,
    )
    # Without memory at first: parameters that do not fit one another could ask for any amount of it.
    with torch.device("meta"):
        _check(Ames(shape), state, where, "AMES")
    network = Ames(shape)
    network.load_state_dict(dict(state), strict=True)
    return network.eval()


def read_state(path: Path) -> dict[str, Tensor]:
    """The named float32 tensors of a PyTorch checkpoint, its `state` entry where it has one.

    Raises InputError, naming the file, where it is missing, unreadable, or holds anything but weights.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint; pavelsuma/ames on GitHub publishes its authors' ones")
    try:
        # Training scripts leave numbers of numpy beside the weights: these types are harmless.
        with torch.serialization.safe_globals(_numpy_scalars()):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it holds a {found.group(1)}" if found else "it is damaged or no PyTorch file"
        raise InputError(
            f"{path}: not a checkpoint of weights alone: {reason}; "
            "save it as {'state': module.state_dict()}"
        ) from None
    except (RuntimeError, EOFError, ValueError, OSError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: not a readable PyTorch checkpoint ({_first_line(error)})") from None
    state = content.get("state", content.get("state_dict", content)) if isinstance(content, dict) else None
    if not isinstance(state, dict) or not any(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path}: no weights in this checkpoint; expected {{'state': {{name: tensor}}}}")
    tensors = {str(key): value for key, value in state.items() if isinstance(value, Tensor)}
    for key, value in tensors.items():
        # A few bytes can claim to be any number of values (strides of zero), or none at all (device meta).
        if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized:
            raise InputError(f"{path}: parameter {key} is no dense tensor")
        if value.is_complex() or value.untyped_storage().nbytes() < value.numel() * value.element_size():
            raise InputError(f"{path}: parameter {key} does not hold {value.numel():,} real numbers")
    return {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}


def save_state(network: nn.Module, path: Path, **facts: Any) -> None:
    """Write `{"state": parameters, **facts}`, as the official code reads it: equal weights, equal bytes."""
    state = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
    # Saved to memory first: PyTorch writes the name of the file into it, and ours is temporary.
    buffer = io.BytesIO()
    torch.save({"state": state, **facts}, buffer)
    with atomic(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def state_digest(network: nn.Module) -> str:
    """Hexadecimal sha256 over names, types, shapes and values of all parameters and buffers."""
    digest = hashlib.sha256()
    for key, value in sorted(network.state_dict().items()):
        array = value.detach().cpu().float().contiguous().numpy()
        digest.update(f"{key} {value.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


class Detector(nn.Module):
    """The authors' local feature detector, parameters named as in their checkpoint (1x1 convolutions).

    Source: `SpatialAttention2d` in pavelsuma/ames, `extract/spatial_attention_2d.py`.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(dim, dim, 1)
        self.bn = nn.BatchNorm2d(dim)
        self.conv2 = nn.Conv2d(dim, 1, 1)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Descriptors [N, dim] of unit length and positive weights [N] from tokens [N, dim]."""
        x = self.bn(self.conv1(tokens[:, :, None, None]))
        descriptors = nn.functional.normalize(x[:, :, 0, 0], dim=1, eps=1e-15)
        weights = nn.functional.softplus(self.conv2(torch.relu(x)))
        return descriptors, weights[:, 0, 0, 0]


def load_detector(path: Path) -> Detector:
    """The detector of a checkpoint, in evaluation mode; InputError, naming the file, where it is none."""
    state = read_state(path)
    weight = state.get("conv1.weight")
    if weight is None or weight.ndim != 4 or weight.shape[2:] != (1, 1):
        raise InputError(
            f"{path}: not a detector checkpoint: no 1x1 convolution conv1.weight (it holds {_some(state)})"
        )
    with torch.device("meta"):
        _check(Detector(weight.shape[0]), state, str(path), "detector")
    detector = Detector(weight.shape[0])
    detector.load_state_dict(state, strict=True)
    return detector.eval()


def _check(network: nn.Module, state: Mapping[str, Tensor], where: str, kind: str) -> None:
    """InputError where `state` does not hold the parameters of `network`, all of them and no other."""
    for key, value in state.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{where}: parameter {key} holds values that are not finite")
    own = network.state_dict()
    missing, surplus = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or surplus:
        parts = [f"lacks {_some(missing)}"] * bool(missing) + [f"has {_some(surplus)} too many"] * bool(
            surplus
        )
        raise InputError(f"{where}: not a complete {kind} checkpoint: it {' and '.join(parts)}")
    for key, value in own.items():
        if value.shape != state[key].shape:
            raise InputError(
                f"{where}: parameter {key} has shape {tuple(state[key].shape)}; the others ask for "
                f"{tuple(value.shape)}"
            )
        if value.is_floating_point() != state[key].is_floating_point():
            raise InputError(f"{where}: parameter {key} has values of type {state[key].dtype}")


def _numpy_scalars() -> list[Any]:
    kinds = [np.dtypes.Float64DType, np.dtypes.Float32DType, np.dtypes.Int64DType, np.dtypes.Int32DType]
    # The function by which numpy scalars are pickled; it has no public name.
    return [np.float64(0).__reduce__()[0], np.dtype, *kinds]


def _some(names: Any) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
