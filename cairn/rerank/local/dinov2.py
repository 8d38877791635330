"""Local descriptors for AMES: DINOv2 ViT with registers, with the authors' detector or weighted by norm.

Source: pavelsuma/ames, `extract/extract_dino.py`; preprocessing and selection stand in `cairn.rerank.ames_images`.
The network is that of Hugging Face transformers (`Dinov2WithRegistersModel`), whose last hidden state is
normalised as the authors' `x_norm_patchtokens` is; the published descriptors are of `dinov2-with-registers-base`.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.cache import Cache, entry_key
from cairn.errors import InputError, ParameterError
from cairn.images.decode import decode_bgr
from cairn.images.manifest import ImageSource, Manifest
from cairn.progress import track
from cairn.rerank.ames_images import TOP, Selected, positions_in_image, prepare_image, select_descriptors
from cairn.rerank.checkpoints import load_detector
from cairn.rerank.local.opened import Seen, source_entry
from cairn.store.local import LocalFeatures

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KIND = "dinov2_with_registers"


class Dinov2Source:
    """Extracts the strongest `TOP` descriptors of each image, one image at a time, cached by image and box."""

    def __init__(
        self,
        options: Mapping[str, Any],
        root: Path,
        manifest: Manifest,
        cache: Cache | None,
        features_code: str,
    ) -> None:
        folder, detector = options["model"], options["detector"]
        self.sources: list[dict[str, Any]] = [
            source_entry(root, f"{folder}/{CONFIG}", "configuration of the encoder of local descriptors"),
            source_entry(root, f"{folder}/{WEIGHTS}", "weights of the encoder of local descriptors"),
        ]
        self.network = _load(root / folder, folder)
        self.patch = int(self.network.config.patch_size)
        self.detector = None
        if detector is not None:
            self.sources.append(source_entry(root, detector, "weights of the detector of local descriptors"))
            self.detector = load_detector(root / detector)
            if self.detector.conv1.in_channels != self.network.config.hidden_size:
                raise InputError(
                    f"{detector}: a detector for {self.detector.conv1.in_channels} dimensions; the encoder in "
                    f"{folder} gives {self.network.config.hidden_size}"
                )
        self.device = _device()
        self.network = self.network.to(self.device)
        if self.detector is not None:
            self.detector = self.detector.to(self.device)
        self.longest = int(options["longest"])
        self.dim = int(self.network.config.hidden_size)
        self.source = ImageSource(manifest, root)
        self.cache = cache
        self.code = features_code
        self.about = {
            "encoder": KIND,
            "unit": "row / height and column / width of the whole image",
            "detector": "none" if detector is None else self.sources[-1]["sha256"],
            "device": self.device,
        }
        self.facts = {"detector": detector is not None, "longest": self.longest, "patch": self.patch}

    def features(self, file: str, views: Sequence[Seen], most: int) -> Iterator[LocalFeatures]:
        """The features of each view; positions are row / height and column / width of the whole image."""
        for view in track(views, f"Local descriptors of {file[:-5]}", total=len(views), unit="images"):
            selected = self._cached(view)
            positions = selected.positions[:most]
            if view.box is not None:
                manifest = self.source.manifest
                size = int(manifest.width[view.row]), int(manifest.height[view.row])
                positions = positions_in_image(positions, view.box, *size)
            zeros = np.zeros(len(positions), np.float32)
            yield LocalFeatures(positions, zeros, selected.weights[:most], selected.descriptors[:most])

    def _cached(self, view: Seen) -> Selected:
        if self.cache is None:
            return self._select(view)
        key = self._key(view)
        data = self.cache.get(key)
        if data is not None and (kept := _kept(data)) is not None:
            return kept
        selected = self._select(view)
        buffer = io.BytesIO()
        np.savez(
            buffer, positions=selected.positions, weights=selected.weights, descriptors=selected.descriptors
        )
        self.cache.put(key, buffer.getvalue())
        return selected

    def _key(self, view: Seen) -> str:
        from importlib.metadata import version

        return entry_key(
            kind="dinov2-local",
            image=self.source.manifest.sha256[view.row],
            box=view.box,
            weights=[entry["sha256"] for entry in self.sources],
            longest=self.longest,
            code=self.code,
            device=self.device,
            versions={name: version(name) for name in ("torch", "transformers", "opencv-python-headless")},
        )

    def _select(self, view: Seen) -> Selected:
        import torch

        image_id = self.source.manifest.image_id[view.row]
        image = decode_bgr(self.source.read(view.row), image_id)
        pixels = prepare_image(image, view.name, view.box, self.longest, self.patch)
        with torch.inference_mode():
            found = self.network(pixel_values=torch.from_numpy(pixels)[None].to(self.device))
        first = 1 + int(self.network.config.num_register_tokens)
        tokens = found.last_hidden_state[0, first:].float().cpu().numpy()
        return select_descriptors(tokens, pixels.shape[1:], view.name, self.detector, TOP, self.patch)


def _kept(data: bytes) -> Selected | None:
    """What an entry of the cache holds; None where it cannot be read."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return Selected(*(arrays[name] for name in ("positions", "weights", "descriptors")))
    except Exception:  # zipfile, zlib and numpy each raise their own
        return None


def open_source(
    options: Mapping[str, Any],
    root: Path,
    manifest: Manifest,
    truth: Any,
    cache: Cache | None,
    features_code: str,
) -> Dinov2Source:
    """The encoder of `rerank.ames.dinov2`. InputError, naming the file, for weights that are missing or others."""
    return Dinov2Source(options, root, manifest, cache, features_code)


def _load(folder: Path, name: str) -> Any:
    import json

    try:
        from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel
    except ImportError as error:
        raise ParameterError(
            f"rerank.ames.dinov2 needs the package transformers ({error}): pip install 'cairn-retrieval[transformers]'"
        ) from None
    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
    except ValueError:
        raise InputError(f"{name}/{CONFIG}: not a JSON file") from None
    if not isinstance(config, dict) or config.get("model_type") != KIND:
        kind = config.get("model_type") if isinstance(config, dict) else None
        raise InputError(f"{name}/{CONFIG}: model_type is {kind!r}; {KIND!r} is expected")
    try:
        parsed = Dinov2WithRegistersConfig.from_dict(config)
        loaded: Any = Dinov2WithRegistersModel.from_pretrained(
            folder, config=parsed, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        network, about = loaded
    except Exception as error:  # transformers and safetensors raise many kinds
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{name}/{WEIGHTS}: not the weights of this network ({line[:200]})") from None
    if missing := sorted(about["missing_keys"]):
        raise InputError(f"{name}/{WEIGHTS}: lacks the parameter {missing[0]}")
    return network.eval()


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
