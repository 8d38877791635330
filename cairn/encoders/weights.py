"""Weights from a path or a hub, with the SHA-256 of every file that decides what a network computes.

A path works offline. A hub id (`owner/name`) needs `revision`, the commit's 40 hexadecimal digits: a branch or
tag may move. Files of Python code, and pickles where the format is a folder of transformers, are never fetched
or run.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import InputError, ParameterError, SourceError
from cairn.files import file_digest, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".onnx", ".ts")
COMMIT = re.compile(r"[0-9a-f]{40}")
FOLDER_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What a folder of transformers is read from: weights, configuration, tokenizer."""


@dataclass(frozen=True)
class Weights:
    """A folder or file on this machine. `files`: name → SHA-256; `source` is the path or hub id as given."""

    path: Path
    source: str
    revision: str | None
    files: Mapping[str, str]

    def record(self) -> dict[str, object]:
        """What descriptors say about them: `source`, `revision`, `files`."""
        return {"source": self.source, "revision": self.revision, "files": dict(self.files)}


def check_model(model: str, revision: str | None) -> None:
    """ValueError where neither a path nor a hub id with a pinned revision is given."""
    if looks_like_path(model):
        if revision is not None:
            raise ValueError(f"revision = {revision!r}: {model} is a path, which has none; remove it")
    elif not HUB_ID.fullmatch(model):
        raise ValueError(f"{model!r} is neither a path (./…, ../… or /…) nor a hub id (owner/name)")
    elif revision is None or not COMMIT.fullmatch(revision):
        raise ValueError(
            f"the hub id {model} needs revision: the commit's 40 hexadecimal digits (a branch or tag may move)"
        )


def looks_like_path(model: str) -> bool:
    """`./x`, `/x`, `x/y/z` and names with a suffix of weights are paths; `owner/name` is a hub id."""
    return model.startswith((".", "/")) or model.count("/") != 1 or Path(model).suffix in SUFFIXES


def external_model(model: str | None) -> dict[str, str]:
    """`{"model": path}` where a checkpoint is given as a path, {} for a hub id: what DVC is to watch."""
    return {"model": model} if model is not None and looks_like_path(model) else {}


def place(model: str, root: Path) -> Path:
    """Where a path given in params.yaml lies: relative ones start at the project."""
    return Path(root) / model


def folder_weights(model: str, revision: str | None, root: Path) -> Weights:
    """A folder of transformers, downloaded where it is a hub id. ParameterError, SourceError or InputError."""
    if looks_like_path(model):
        path = place(model, root)
        if not path.is_dir():
            raise ParameterError(f"model = {model!r}: no such folder (with config.json and *.safetensors)")
    else:
        path = _download(model, str(revision))
    files = _folder(path)
    names = [name for _, name in files]
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise InputError(
            f"{model}: a folder with config.json and *.safetensors is expected; it has {', '.join(names) or 'nothing'} "
            "(pickled weights are not read: save them with save_pretrained)"
        )
    return Weights(path, model, revision, {name: _digest(file) for file, name in files})


def file_weights(model: str, root: Path) -> Weights:
    """One file of weights. ParameterError where it does not exist."""
    path = place(model, root)
    if not path.is_file():
        raise ParameterError(f"model = {model!r}: no such file")
    return Weights(path, model, None, {path.name: _digest(path)})


def single_file(model: str, revision: str | None, names: "Sequence[str]", root: Path) -> Weights:
    """A file given as a path, or the first of `names` that a hub repository has. Errors as `folder_weights`."""
    if looks_like_path(model):
        return file_weights(model, root)
    folder = _download(model, str(revision), names)
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise SourceError(f"model {model} at {str(revision)[:12]}: has none of {', '.join(names)}")
    return Weights(found, model, revision, {found.name: _digest(found)})


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Tensors by name from `.safetensors`, or from a PyTorch file opened with weights_only. InputError."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make either raise nearly anything
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not a file of weights ({type(error).__name__}: {reason})") from None
    for key in ("state_dict", "model", "state"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise InputError(f"{path}: a mapping of names to tensors is expected")
    return loaded


def fill(
    model: Any, tensors: "Mapping[str, Tensor]", where: str, *, spare: "Callable[[str], bool]" = str.isspace
) -> None:
    """Put `tensors` into a network. InputError where one is missing, has another shape, or is not known.

    `spare` tells which names may be left over.
    """
    try:
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # another shape
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{where}: its parameters do not fit the network ({reason})") from None
    check_loaded(where, missing, [name for name in unexpected if not spare(name)])


def check_loaded(where: str, missing: "Sequence[str]", unexpected: "Sequence[str]" = ()) -> None:
    """InputError where weights lack parameters of the network: they would be random."""
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{where}: lacks the parameter {sorted(missing)[0]}{more}; is it another model's?")
    if unexpected:
        more = f" and {len(unexpected) - 1} more" if len(unexpected) > 1 else ""
        raise InputError(
            f"{where}: has the parameter {sorted(unexpected)[0]}{more}, which the network has not"
        )


def _folder(path: Path) -> list[tuple[Path, str]]:
    if not path.is_dir():
        return []
    found = {file for pattern in FOLDER_FILES for file in path.glob(pattern) if file.is_file()}
    return sorted((file, file.name) for file in found)


def _download(model: str, revision: str, files: "Sequence[str]" = FOLDER_FILES) -> Path:
    import os

    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # the client raises its own and those of its HTTP library
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"model {model} at {revision[:12]}: cannot be downloaded{offline}: {reason}; "
            "a path to a local copy works offline"
        ) from None


def _digest(path: Path) -> str:
    return _digest_of(path.resolve(), stamp(path))


@functools.lru_cache(maxsize=1024)
def _digest_of(path: Path, _stamp: tuple[int, ...]) -> str:
    return file_digest(path)
