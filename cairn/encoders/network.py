"""An encoder around a neural network: pixels in worker processes, batches on the device, scales averaged.

What every learned encoder shares. What differs is behind `Network`: how weights are found and loaded, and how
normalised pixels (or texts) become one vector each.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cairn.encoders.presets import with_preset
from cairn.encoders.protocol import Learned, Training
from cairn.encoders.weights import Weights, check_model
from cairn.errors import CairnError, ParameterError
from cairn.images.preprocessing import Preprocessing, Size, output_size, prepare, reduction

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DEVICE_VARIABLE = "CAIRN_DEVICE"


class Multiscale(BaseModel):
    """One descriptor from several sizes: each is L2-normalised, their mean is L2-normalised again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scales: Annotated[
        tuple[Annotated[float, Field(gt=0.05, le=8)], ...], Field(min_length=1, max_length=16)
    ] = (1.0,)
    """Factors of the base size."""
    query_scales: (
        Annotated[tuple[Annotated[float, Field(gt=0.05, le=8)], ...], Field(min_length=1)] | None
    ) = None
    """Those of queries where they differ."""
    of: Literal["tensor", "image"] = "tensor"
    """`tensor`: the normalised base image is interpolated (torch.nn.functional.interpolate, not antialiased), as in
    the revisited-Oxford code. `image`: the original is resized to each size by `preprocessing`."""
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    """For `of: tensor`."""


class DeclaredFacts(BaseModel):
    """What a user knows of the weights; null: what the registry says of the encoder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str | None = None
    licence: str | None = None
    pretraining: str | None = None
    overlap: str | None = None


class NetworkParameters(BaseModel):
    """Keys that every learned encoder has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What `preprocessing` and `multiscale` are where neither the system nor its preset says."""

    preset: str | None = None
    """See cairn/encoders/presets.py."""
    preprocessing: Preprocessing = Preprocessing()
    multiscale: Multiscale = Multiscale()
    precision: Literal["float32", "float16", "bfloat16"] = "float16"
    """Of autocast on a GPU; a CPU computes in float32."""
    batch: Annotated[int, Field(ge=1, le=65_536)] = 32
    compile: bool = False
    """torch.compile: faster after minutes of compilation; last bits may differ."""
    damaged: Literal["fail", "missing"] = "fail"
    """An image that cannot be decoded: the step fails, or the image is listed as missing and found by no query."""
    facts: DeclaredFacts | None = None
    """Shown beside the numbers as declared; no descriptor depends on it."""

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        return with_preset(values, cls.DEFAULTS)


class PinnedParameters(NetworkParameters):
    """Keys of an encoder whose weights are a path, or what a repository on the hub has at one commit."""

    model: str
    """The weights: a path (`./…`, `../…` or `/…`), or the repository on the hub (`owner/name`)."""
    revision: str | None = None
    """The commit on the hub: 40 hexadecimal digits."""

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        check_model(self.model, self.revision)
        return self


class Network(Protocol):
    """A loaded network on a device."""

    device: "torch.device"

    def images(self, pixels: "Tensor") -> "Tensor":
        """[n, dim] from normalised pixels float32 [n, 3, height, width]."""
        ...


class TextNetwork(Network, Protocol):
    """A network with a text tower."""

    def texts(self, texts: Sequence[str]) -> "Tensor":
        """[n, dim] from texts."""
        ...


@dataclass(frozen=True)
class Batch:
    """Prepared images of equal shapes, stacked: uint8 [n, height, width, 3] per scale."""

    scales: "tuple[Tensor, ...]"

    def __len__(self) -> int:
        return len(self.scales[0])


class Loaded(dict):
    """What is loaded on this machine: pickled, it is empty, and one object still."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Loaded, ()


@dataclass
class NetworkEncoder:
    """A network behind the encoder protocol.

    `find` says where the weights are (downloading them where they must be), `load` builds the network on a device
    from them. Neither goes to other processes: those that prepare pixels need no network, and one of a cluster that
    does describe makes the encoder again from its parameters.
    """

    name: str
    parameters: NetworkParameters
    find: Callable[[], Weights]
    load: Callable[[Weights, "torch.device"], Any]
    packages: tuple[str, ...]
    has_text: bool = False
    query: bool = False
    halved: bool = False
    """Whether a batch had to be halved since this was last set to False."""
    loaded: "Loaded" = field(default_factory=lambda: Loaded())
    """The network once it is loaded, shared by both sides."""
    features = None
    colour = True
    in_workers = False
    learns = False

    def __getstate__(self) -> dict[str, Any]:
        """Without the network and what loads it."""
        return vars(self) | {"find": None, "load": None}

    @property
    def batch(self) -> int:
        """Images at once."""
        return self.parameters.batch

    @property
    def damaged(self) -> str:
        """`fail` or `missing`."""
        return self.parameters.damaged

    @property
    def device(self) -> str:
        """The kind of device: descriptors of one kind are equal to the last bit."""
        import platform

        import torch

        chosen = choose_device()
        if chosen.type == "cuda":
            return f"cuda {torch.cuda.get_device_name(chosen)} {self.parameters.precision}"
        return f"{chosen.type} {platform.machine()} float32"

    def key(self) -> dict[str, Any]:
        """Every parameter but `facts`, the SHA-256 of every file of weights, and versions."""
        from importlib.metadata import version

        names = ("numpy", "opencv-python-headless", "pillow", "torch", *self.packages)
        return {
            "encoder": self.name,
            "settings": self.parameters.model_dump(mode="json", exclude={"facts"}),
            "weights": self.weights().record(),
            "versions": {name: version(name) for name in names},
        }

    def weights(self) -> Weights:
        """Where the weights lie, with their hashes; downloads them where they are on a hub."""
        return self.find()

    @property
    def declared_facts(self) -> dict[str, str]:
        """What the user says of the weights, of what `cairn.encoders.encoder_facts` gives."""
        facts = self.parameters.facts
        return {} if facts is None else facts.model_dump(exclude_none=True)

    def for_queries(self) -> "NetworkEncoder":
        """This encoder for the side of the queries (their scales, and their instruction where it has one)."""
        return replace(self, query=True)

    def scales(self) -> tuple[float, ...]:
        """Factors of the base size, of this side."""
        multiscale = self.parameters.multiscale
        return (multiscale.query_scales if self.query else None) or multiscale.scales

    def shape(self, height: int, width: int, whole: Size | None = None) -> tuple[Size, ...]:
        """Sizes of what `prepare` returns: images of equal shapes can be batched."""
        rules = self.parameters.preprocessing
        return tuple(output_size(height, width, rules, scale, whole) for scale in self._image_scales())

    def reduction(self, height: int, width: int) -> int:
        """How far a JPEG may be reduced while it is decoded: 1 unless `preprocessing.reduced`."""
        rules = self.parameters.preprocessing
        return min(reduction(height, width, rules, scale) for scale in self._image_scales())

    def prepare(
        self, image: np.ndarray, whole: Size | None = None, stored: Size | None = None
    ) -> tuple[np.ndarray, ...]:
        """uint8 [height, width, 3] red, green, blue, one per scale that is made from the image.

        `whole` is the size of the image that a query was cropped from, `stored` that of one reduced while decoding.
        """
        rules = self.parameters.preprocessing
        return tuple(prepare(image, rules, scale, whole, stored) for scale in self._image_scales())

    def learn(self, training: Training, count: int) -> Learned:
        """Nothing."""
        return {}

    def stack(self, prepared: Sequence[tuple[np.ndarray, ...]]) -> Batch:
        """Prepared images of equal shapes, in memory that a GPU copies from while it computes."""
        import torch

        pinned = choose_device().type == "cuda"
        stacked = [torch.from_numpy(np.stack(images)) for images in zip(*prepared, strict=True)]
        return Batch(tuple(images.pin_memory() if pinned else images for images in stacked))

    def describe(self, prepared: "Sequence[Any] | Batch", learned: Learned) -> np.ndarray:
        """float32 [n, dim], rows of L2 norm 1."""
        if isinstance(prepared, Batch):
            return self._halving(prepared)
        groups: dict[tuple[Size, ...], list[int]] = {}
        for number, images in enumerate(prepared):
            groups.setdefault(tuple(image.shape[:2] for image in images), []).append(number)
        rows: dict[int, np.ndarray] = {}
        for members in groups.values():
            found = self._halving(self.stack([prepared[number] for number in members]))
            rows.update(zip(members, found, strict=True))
        return np.stack([rows[number] for number in range(len(prepared))])

    def describe_texts(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [n, dim], rows of L2 norm 1. ParameterError where the model has no text tower."""
        import torch.nn.functional as F

        if not self.has_text:
            raise ParameterError(f"encoder {self.name} has no text tower")
        network = self._network()
        with self._computing(network.device):
            return F.normalize(self._embed_texts(network, list(texts)).float(), dim=-1).cpu().numpy()

    def _image_scales(self) -> tuple[float, ...]:
        return self.scales() if self.parameters.multiscale.of == "image" else (1.0,)

    def _network(self) -> Any:
        if "network" not in self.loaded:
            import torch

            source = self if self.load is not None else _made_again(self)
            network = source.load(source.weights(), choose_device())
            if self.parameters.compile:
                network.images = torch.compile(network.images)
            self.loaded["network"] = network
        return self.loaded["network"]

    def _embed(self, network: Any, pixels: "Tensor") -> "Tensor":
        return network.images(pixels)

    def _embed_texts(self, network: Any, texts: list[str]) -> "Tensor":
        return network.texts(texts)

    def _halving(self, batch: Batch) -> np.ndarray:
        """The descriptors of a batch, in two halves where the device has too little memory for the whole."""
        import torch

        try:
            return self._forward(batch)
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                sides = " × ".join(str(side) for side in batch.scales[0].shape[1:3])
                raise CairnError(
                    f"encoder {self.name}: one image of {sides} pixels does not fit in the device's memory; "
                    "use a smaller size or scale, or CAIRN_DEVICE=cpu"
                ) from None
        # Outside of the handler: the exception holds the tensors of the failed attempt.
        self.halved = True
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        middle = len(batch) // 2
        halves = [
            Batch(tuple(images[part] for images in batch.scales))
            for part in (slice(None, middle), slice(middle, None))
        ]
        return np.concatenate([self._halving(half) for half in halves])

    def _forward(self, batch: Batch) -> np.ndarray:
        import torch
        import torch.nn.functional as F

        network = self._network()
        with self._computing(network.device):
            found = [
                F.normalize(self._embed(network, pixels).float(), dim=-1)
                for pixels in self._pixels(batch, network.device)
            ]
            if len(found) == 1:
                return found[0].cpu().numpy()
            return F.normalize(torch.stack(found).mean(dim=0), dim=-1).cpu().numpy()

    def _pixels(self, batch: Batch, device: "torch.device") -> Iterator["Tensor"]:
        """Normalised float32 [n, 3, height, width], one per scale."""
        import torch
        import torch.nn.functional as F

        rules, multiscale = self.parameters.preprocessing, self.parameters.multiscale
        mean = torch.tensor(rules.mean, device=device).view(1, 3, 1, 1)
        std = torch.tensor(rules.std, device=device).view(1, 3, 1, 1)
        for images in batch.scales:
            pixels = images.to(device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
            pixels = pixels.sub_(mean).div_(std).contiguous()
            if multiscale.of == "image":
                yield pixels
                continue
            for scale in self.scales():
                if scale == 1.0:
                    yield pixels
                    continue
                mode: dict[str, Any] = {"mode": multiscale.interpolation}
                if multiscale.interpolation != "nearest":
                    mode["align_corners"] = False
                if rules.multiple > 1:
                    sides = [
                        max(1, round(side * scale / rules.multiple)) * rules.multiple
                        for side in pixels.shape[2:]
                    ]
                    yield F.interpolate(pixels, size=sides, **mode)
                else:
                    yield F.interpolate(pixels, scale_factor=scale, **mode)

    @contextlib.contextmanager
    def _computing(self, device: "torch.device") -> Iterator[None]:
        import torch

        types = {"float16": torch.float16, "bfloat16": torch.bfloat16}
        half = types.get(self.parameters.precision) if device.type == "cuda" else None
        cast = torch.autocast("cuda", dtype=half) if half is not None else contextlib.nullcontext()
        with torch.inference_mode(), cast:
            yield


def _made_again(encoder: NetworkEncoder) -> NetworkEncoder:
    """An encoder with what loads its network, in a process that it came to without. ParameterError where it cannot."""
    from cairn.encoders import known_encoders, load_encoder_module

    if encoder.name not in known_encoders():
        raise ParameterError(
            f"encoder {encoder.name}: its network cannot be loaded in another process; use executor: local"
        )
    return load_encoder_module(encoder.name).create(encoder.parameters)


def choose_device() -> "torch.device":
    """CAIRN_DEVICE (`cpu`, `cuda`, `cuda:1`), else a GPU where there is one, else the CPU. ParameterError."""
    import torch

    asked = os.environ.get(DEVICE_VARIABLE)
    if not asked:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(asked)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ParameterError(f"{DEVICE_VARIABLE} = {asked!r}: cpu, cuda or cuda:NUMBER is expected")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ParameterError(
            f"{DEVICE_VARIABLE} = {asked!r}: this machine has {torch.cuda.device_count()} CUDA devices"
        )
    return chosen
