"""The encoder `qwen3-vl-embedding`: a vision-language model read at its last token (Qwen3-VL-Embedding, 2026).

Template, sizes and pooling as in the authors' `qwen3_vl_embedding.py` (QwenLM/Qwen3-VL-Embedding): the instruction
is the system's turn, the image or text the user's, and the descriptor the last layer at the last token of the
assistant's opening.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from cairn.encoders.network import NetworkEncoder
from cairn.encoders.pooling import last_token
from cairn.encoders.transformers_models import PACKAGES, HubParameters, load_model, load_tokenizer
from cairn.encoders.weights import Weights, external_model, folder_weights
from cairn.errors import InputError
from cairn.images.preprocessing import HALF

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LEARNING_KEYS = ()
FEATURE_MODULES = ()
CLASSES = {"qwen3_vl": "Qwen3VLModel"}
DEFAULT_INSTRUCTION = "Represent the user's input."
TEMPLATE = "<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
IMAGE = "<|vision_start|>{image}<|vision_end|>"
IMAGE_TOKEN = "<|image_pad|>"  # noqa: S105 - a token of text


class Instruction(BaseModel):
    """What the model is told about its input, on each side."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gallery: Annotated[str, Field(min_length=1)] = DEFAULT_INSTRUCTION
    query: Annotated[str, Field(min_length=1)] = DEFAULT_INSTRUCTION


class LastToken(BaseModel):
    """The one pooling there is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["last-token"] = "last-token"


class Parameters(HubParameters):
    """Keys of `qwen3-vl-embedding`. By default sides are multiples of 32 within 4,096 to 1,843,200 pixels."""

    DEFAULTS: ClassVar = {
        "preprocessing": {
            "resize": "pixels",
            "size": 1_843_200,
            "least": 4_096,
            "multiple": 32,
            "mean": HALF,
            "std": HALF,
        }
    }
    pooling: LastToken = LastToken()  # type: ignore[assignment]
    instruction: Instruction = Instruction()
    longest_text: Annotated[int, Field(ge=1, le=262_144)] = 8192
    """Tokens of a text that are kept."""


@dataclass
class Qwen:
    """The model with its tokenizer."""

    model: Any
    tokenizer: Any
    device: "torch.device"
    longest: int

    def instructed(self, pixels: "Tensor", instruction: str) -> "Tensor":
        """[n, dim] from normalised pixels [n, 3, height, width], sides multiples of patch × merge."""
        import torch

        vision = self.model.config.vision_config
        patches, grid = patchify(
            pixels, vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size
        )
        count = grid[0] * grid[1] // vision.spatial_merge_size**2
        text = prompt(instruction, IMAGE.format(image=IMAGE_TOKEN * count))
        one = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"].to(
            pixels.device
        )
        ids = one.expand(len(pixels), -1).contiguous()
        image = ids == self.model.config.image_token_id
        if int(image[0].sum()) != count:
            raise InputError(f"qwen3-vl-embedding: the tokenizer does not know {IMAGE_TOKEN} as one token")
        found = self.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=image.int(),
            pixel_values=patches,
            image_grid_thw=torch.tensor([[1, *grid]] * len(pixels), device=pixels.device),
            use_cache=False,
        )
        return found.last_hidden_state[:, -1]

    def instructed_texts(self, texts: Sequence[str], instruction: str) -> "Tensor":
        """[n, dim] from texts, padded on the right."""
        inputs = self.tokenizer(
            [prompt(instruction, self._cut(text)) for text in texts],
            add_special_tokens=False,
            padding=True,
            padding_side="right",
            return_tensors="pt",
        ).to(self.device)
        found = self.model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
        )
        return last_token(found.last_hidden_state, inputs["attention_mask"])

    def _cut(self, text: str) -> str:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return text if len(ids) <= self.longest else self.tokenizer.decode(ids[: self.longest])


class QwenEncoder(NetworkEncoder):
    """Gives each side its instruction."""

    def _embed(self, network: Any, pixels: "Tensor") -> "Tensor":
        return network.instructed(pixels, self._instruction())

    def _embed_texts(self, network: Any, texts: list[str]) -> "Tensor":
        return network.instructed_texts(texts, self._instruction())

    def _instruction(self) -> str:
        assert isinstance(self.parameters, Parameters)
        both = self.parameters.instruction
        return both.query if self.query else both.gallery


def prompt(instruction: str, content: str) -> str:
    """What the model reads; an instruction without a final punctuation mark gets a full stop."""
    instruction = instruction.strip()
    if not unicodedata.category(instruction[-1]).startswith("P"):
        instruction += "."
    return TEMPLATE.format(instruction=instruction, content=content)


def patchify(pixels: "Tensor", patch: int, merge: int, temporal: int) -> "tuple[Tensor, tuple[int, int]]":
    """[n × patches, 3 × temporal × patch × patch] as Qwen2-VL's image processor cuts them, and one image's grid."""
    count, channels, height, width = pixels.shape
    if height % (patch * merge) or width % (patch * merge):
        raise InputError(
            f"qwen3-vl-embedding: {height} × {width} pixels are no multiple of {patch * merge} (patch × merge); "
            f"set preprocessing.multiple to {patch * merge}"
        )
    grid = (height // patch, width // patch)
    cut = pixels.reshape(count, channels, grid[0] // merge, merge, patch, grid[1] // merge, merge, patch)
    cut = cut.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, temporal, -1, -1)
    return cut.reshape(count * grid[0] * grid[1], channels * temporal * patch * patch), grid


def external(settings: dict, benchmark: str) -> dict[str, str]:
    """The user's own paths that decide the descriptors: name → path."""
    return external_model(settings["model"])


def create(parameters: Parameters) -> NetworkEncoder:
    """The encoder with these parameters."""

    def load(weights: Weights, device: "torch.device") -> Qwen:
        import torch

        # Billions of parameters: on a GPU they are held in the precision that they are used in.
        kinds = {"float16": torch.float16, "bfloat16": torch.bfloat16}
        dtype = kinds.get(parameters.precision) if device.type == "cuda" else None
        model = load_model("qwen3-vl-embedding", weights.path, CLASSES, device, dtype)
        return Qwen(model, load_tokenizer(weights.path), device, parameters.longest_text)

    return QwenEncoder(
        name="qwen3-vl-embedding",
        parameters=parameters,
        find=lambda: folder_weights(parameters.model, parameters.revision, Path()),
        load=load,
        packages=PACKAGES,
        has_text=True,
    )
