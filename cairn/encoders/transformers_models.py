"""Networks of the library transformers: loaded from a folder of safetensors, checked, without code from outside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.encoders.network import NetworkEncoder, PinnedParameters
from cairn.encoders.pooling import Pooling, pool
from cairn.encoders.weights import Weights, check_loaded, folder_weights
from cairn.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PACKAGES = ("transformers", "safetensors")


class HubParameters(PinnedParameters):
    """Keys of an encoder whose weights are a folder of transformers: a path, or a hub id with its commit."""

    pooling: Pooling = Pooling()


def encoder(
    name: str,
    parameters: HubParameters,
    classes: Mapping[str, str],
    network: Callable[..., Any],
    *,
    has_text: bool = False,
    kind: type[NetworkEncoder] = NetworkEncoder,
) -> NetworkEncoder:
    """The encoder `name`. `classes`: model type in config.json → class of transformers; `network` wraps the model."""

    def load(weights: Weights, device: "torch.device") -> Any:
        model = load_model(name, weights.path, classes, device)
        return network(model, weights.path, device, parameters)

    return kind(
        name=name,
        parameters=parameters,
        find=lambda: folder_weights(parameters.model, parameters.revision, Path()),
        load=load,
        packages=PACKAGES,
        has_text=has_text,
    )


def load_model(
    name: str,
    folder: Path,
    classes: Mapping[str, str],
    device: "torch.device",
    dtype: "torch.dtype | None" = None,
) -> Any:
    """The model in a folder, float32 unless told otherwise, in evaluation mode, on `device`.

    InputError where its type is none of `classes` or its weights lack a parameter.
    """
    import json

    import torch
    import transformers

    try:
        kind = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{folder}/config.json: no model_type; a folder of transformers is expected"
        ) from None
    if kind not in classes:
        raise InputError(
            f"{folder}: a model of type {kind}; the encoder {name} takes {', '.join(sorted(classes))}"
        )
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model, about = getattr(transformers, classes[kind]).from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=dtype or torch.float32,
            output_loading_info=True,
        )
    except Exception as error:  # damaged files make it raise nearly anything
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{folder}: cannot be loaded as {classes[kind]} ({type(error).__name__}: {reason})"
        ) from None
    finally:
        transformers.logging.set_verbosity(level)
    check_loaded(str(folder), sorted(about["missing_keys"]))
    if about.get("mismatched_keys"):
        raise InputError(
            f"{folder}: {sorted(about['mismatched_keys'])[0]} has another shape than config.json says"
        )
    return model.eval().to(device)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder. InputError where there is none."""
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: no usable tokenizer ({type(error).__name__}: {reason})") from None


@dataclass
class TokenNetwork:
    """A vision transformer (or ConvNeXt) that gives a class token, registers, and one token per patch."""

    model: Any
    device: "torch.device"
    pooling: Pooling

    @classmethod
    def wrap(cls, model: Any, _: Path, device: "torch.device", parameters: HubParameters) -> "TokenNetwork":
        """As `encoder` asks."""
        return cls(model, device, parameters.pooling)

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels [n, 3, height, width]."""
        found = self.model(pixel_values=pixels)
        if self.pooling.kind == "head":
            return found.pooler_output
        prefix = 1 + (getattr(self.model.config, "num_register_tokens", 0) or 0)
        return pool(found.last_hidden_state, prefix, self.pooling)


@dataclass
class TwoTowers:
    """CLIP or SigLIP: an image tower and a text tower with a common space."""

    model: Any
    folder: Path
    device: "torch.device"
    pooling: Pooling
    prefix: int
    """Class tokens before the patches: 1 for CLIP, 0 for SigLIP."""
    tokenizer: Any = None

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels [n, 3, height, width]; positions are interpolated for other sizes."""
        config = self.model.config.vision_config
        other = tuple(pixels.shape[2:]) != (config.image_size, config.image_size)
        if self.pooling.kind == "head":
            return self.model.get_image_features(
                pixel_values=pixels, interpolate_pos_encoding=other
            ).pooler_output
        found = self.model.vision_model(pixel_values=pixels, interpolate_pos_encoding=other)
        return pool(found.last_hidden_state, self.prefix, self.pooling)

    def texts(self, texts: Sequence[str]) -> "Tensor":
        """[n, dim] from texts, cut to the tower's length."""
        inputs = self.tokens(texts).to(self.device)
        return self.model.get_text_features(**inputs).pooler_output

    def tokens(self, texts: Sequence[str]) -> Any:
        """CLIP pads to the longest and masks; SigLIP was trained on texts padded to full length, unmasked."""
        if self.tokenizer is None:
            self.tokenizer = load_tokenizer(self.folder)
        length = self.model.config.text_config.max_position_embeddings
        padding = "longest" if self.prefix else "max_length"
        found = self.tokenizer(
            list(texts), padding=padding, truncation=True, max_length=length, return_tensors="pt"
        )
        kept = ("input_ids", "attention_mask") if self.prefix else ("input_ids",)
        for name in list(found):
            if name not in kept:
                del found[name]
        return found
