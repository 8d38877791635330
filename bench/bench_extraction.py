"""Extraction beside its parts, in one run: device-bound, decode-bound, and on a GPU where there is one.

    python -m bench.bench_extraction [--device-images 100] [--decode-images 500] [--rounds 2] [--json]

Device-bound: DINOv2-S with random weights at base 224, float32 on the CPU: the whole of Cairn's way (reading a tar
by offset, checking SHA-256, decoding, resizing, batching, network) beside the network's bare forward pass on
preloaded tensors of the same shapes and batches. Target: at most 1.1 × as long.

Decode-bound: a small convolutional network at 224 on JPEGs of 2464 × 1632 (4 megapixels) in a tar: Cairn beside
a plain loop (Pillow, one image at a time, same network, same threads), and beside the workers decoding and
resizing alone, without any network. Targets: at least 1.5 × the plain loop, at least 90% of the workers alone.

GPU: DINOv2-L with random weights, 518 px, float16, from JPEGs in a tar: share of the time in which the device is
busy, images/s, and the share of the rate that plain float16 matrix products reach. Rounds alternate and the best
of each counts: other work on the machine only slows a round down. Photographs are drawn: noise of several scales.
"""

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from cairn.encoders.network import NetworkEncoder, NetworkParameters
from cairn.encoders.weights import Weights
from cairn.images.manifest import Manifest, build_manifest, list_entries, manifest_of
from cairn.parallel import workers
from cairn.systems import extraction
from cairn.systems.batching import Clock, described_shards
from cairn.systems.extraction import gallery_views, prepared, work_of

if TYPE_CHECKING:
    import torch

# torch is imported where it is used: worker processes import the main module, and that of a step has no torch either.


class Wrapped:
    """A network as the encoder takes it."""

    def __init__(
        self, model: "torch.nn.Module", device: "torch.device", pick: "Callable[[Any], torch.Tensor]"
    ) -> None:
        self.model, self.device, self.pick = model.eval().to(device), device, pick

    def images(self, pixels: "torch.Tensor") -> "torch.Tensor":
        return self.pick(self.model(pixels))


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device-images", type=int, default=100)
    parser.add_argument("--decode-images", type=int, default=500)
    parser.add_argument("--gpu-images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "workers": workers(),
            "torch_threads": torch.get_num_threads(),
            "device_bound": device_bound(Path(folder), arguments.device_images, arguments.rounds),
            "decode_bound": decode_bound(Path(folder), arguments.decode_images, arguments.rounds),
            "gpu": on_gpu(Path(folder), arguments.gpu_images),
        }
    print(json.dumps(result, indent=1) if arguments.json else report(result))
    return 0


def device_bound(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """Seconds of the whole way and of the bare forward."""
    import torch

    manifest = archive(folder / "small.tar", count, (640, 480))
    network = dinov2("small", torch.device("cpu"))
    encoder = made(network, {"resize": "shorter", "size": 256, "crop": 224})
    work = work_of(manifest, folder, encoder, "dinov2-s")
    views = gallery_views(manifest, np.arange(count))
    tensors = [torch.rand(min(32, count - start), 3, 224, 224) for start in range(0, count, 32)]

    def bare() -> None:
        with torch.inference_mode():
            for batch in tensors:
                network.images(batch)

    def whole() -> None:
        list(described_shards([views], work, "Describing images"))

    bare()
    seconds = best({"bare": bare, "whole": whole}, rounds)
    return {"images": count, **seconds, "ratio": seconds["whole"] / seconds["bare"], "target": "≤ 1.1"}


def decode_bound(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """Images per second of Cairn, of a plain loop, and of the workers without a network."""
    import torch

    manifest = archive(folder / "large.tar", count, (2464, 1632))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 7, 4), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, 2), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    )  # fmt: skip
    network = Wrapped(model, torch.device("cpu"), lambda found: found)
    encoder = made(network, {"resize": "shorter", "size": 224, "crop": 224, "interpolation": "bilinear"})
    work = work_of(manifest, folder, encoder, "small")
    views = gallery_views(manifest, np.arange(count))
    clock = Clock()
    mean, std = (
        torch.tensor(values).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )

    def cairn() -> None:
        list(described_shards([views], work, "Describing images", clock))

    def alone() -> None:
        for _ in prepared(views, work, "Decoding"):
            pass

    def plain() -> None:
        with tarfile.open(folder / "large.tar") as tar, torch.inference_mode():
            for member in tar:
                image = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")  # type: ignore[union-attr]
                short = min(image.size)
                size = (int(224 * image.width / short), int(224 * image.height / short))
                image = image.resize(size, Image.Resampling.BILINEAR)
                left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
                image = image.crop((left, top, left + 224, top + 224))
                pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)[None]
                torch.nn.functional.normalize(model((pixels - mean) / std), dim=1)

    seconds = best({"cairn": cairn, "workers_alone": alone, "plain_loop": plain}, rounds)
    rates = {name: count / value for name, value in seconds.items()}
    return {
        "images": count,
        "images_per_second": rates,
        "times_plain_loop": rates["cairn"] / rates["plain_loop"],
        "share_of_workers_alone": rates["cairn"] / rates["workers_alone"],
        "held_up_by": clock.note().strip("()"),
        "targets": "≥ 1.5 × the plain loop, ≥ 0.9 of the workers alone",
    }


def on_gpu(folder: Path, count: int) -> dict[str, Any] | str:
    """Share of the time in which the device computes, or why there is none."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device on this machine: not measured"
    device = torch.device("cuda")
    manifest = archive(folder / "gpu.tar", count, (1024, 768), distinct=64)
    network = dinov2("large", device)
    busy: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    forward = network.images

    def timed(pixels: torch.Tensor) -> torch.Tensor:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        found = forward(pixels)
        end.record()
        busy.append((start, end))
        return found

    network.images = timed  # type: ignore[method-assign]
    encoder = made(network, {"resize": "square", "size": 518}, batch=64)
    work = work_of(manifest, folder, encoder, "dinov2-l")
    views = gallery_views(manifest, np.arange(count))
    list(described_shards([views[:256]], work, "Warming up"))
    busy.clear()
    clock = Clock()
    started = time.perf_counter()
    list(described_shards([views], work, "Describing images", clock))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    computing = sum(start.elapsed_time(end) for start, end in busy) / 1000
    tokens, width, layers = (518 // 14) ** 2 + 1, 1024, 24
    operations = layers * (
        24 * tokens * width**2 + 4 * tokens**2 * width
    )  # 2 per multiplication and addition
    peak = matrix_rate(device)
    return {
        "device": torch.cuda.get_device_name(device),
        "images_per_second": count / seconds,
        "device_busy": computing / seconds,
        "held_up_by": clock.note().strip("()"),
        "bound_images_per_second": peak / operations,
        "share_of_matrix_rate": count / seconds * operations / peak,
        "target": "device busy ≥ 0.9",
    }


def matrix_rate(device: "torch.device") -> float:
    """Operations per second of float16 products of 8192 × 8192."""
    import torch

    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.float16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - started)


def dinov2(size: str, device: "torch.device") -> Wrapped:
    """DINOv2-S or -L with random weights."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    width, layers, heads = {"small": (384, 12, 6), "large": (1024, 24, 16)}[size]
    torch.manual_seed(0)
    config = Dinov2Config(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, image_size=518, patch_size=14
    )
    return Wrapped(Dinov2Model(config), device, lambda found: found.last_hidden_state[:, 0])


def made(network: Any, preprocessing: dict[str, Any], batch: int = 32) -> NetworkEncoder:
    """An encoder around a network that is there already."""
    parameters = NetworkParameters(preprocessing=preprocessing, batch=batch)  # type: ignore[arg-type]
    encoder = NetworkEncoder("bench", parameters, _no_weights, lambda *_: network, ())
    encoder.loaded["network"] = network
    return encoder


def _no_weights() -> Weights:
    return Weights(Path(), "random", None, {})


def archive(path: Path, count: int, size: tuple[int, int], distinct: int = 16) -> Manifest:
    """A tar of JPEGs (quality 90) and its manifest; `distinct` of them differ, since drawing takes longest."""
    files = [photograph(number, size) for number in range(min(distinct, count))]
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            info = tarfile.TarInfo(f"{number:06d}.jpg")
            data = files[number % len(files)]
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    entries = [replace(entry, gallery=True) for entry in list_entries(path.name, path.parent)]
    return manifest_of(build_manifest(entries, path.parent))


def photograph(seed: int, size: tuple[int, int]) -> bytes:
    """Noise of several scales: about as many bytes per pixel as a photograph at quality 90."""
    generator = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3), np.float32)
    for cells, strength in ((4, 60), (32, 30), (256, 15), (1024, 8)):
        noise = generator.integers(0, 256, (max(2, cells * size[1] // size[0]), cells, 3), np.uint8)
        layer = Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)
        total += (np.asarray(layer, np.float32) - 127.5) * (strength / 60)
    stream = io.BytesIO()
    Image.fromarray(np.clip(total + 127.5, 0, 255).astype(np.uint8)).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def best(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Seconds of each function's best round."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            found[name].append(time.perf_counter() - started)
    return {name: min(values) for name, values in found.items()}


def report(result: dict[str, Any]) -> str:
    """The result as lines."""
    device, decode, gpu = result["device_bound"], result["decode_bound"], result["gpu"]
    rates = decode["images_per_second"]
    lines: Sequence[str] = [
        f"{result['workers']} workers, {result['torch_threads']} threads of torch; worker processes from "
        f"{extraction.FEW} images on",
        f"device-bound, DINOv2-S at 224, {device['images']} images: whole {device['whole']:.2f} s, bare forward "
        f"{device['bare']:.2f} s, ratio {device['ratio']:.3f} (target {device['target']})",
        f"decode-bound, {decode['images']} JPEGs of 4 megapixels: Cairn {rates['cairn']:.1f} images/s, workers alone "
        f"{rates['workers_alone']:.1f}, plain loop {rates['plain_loop']:.1f}: {decode['times_plain_loop']:.2f} × the "
        f"loop, {decode['share_of_workers_alone']:.2f} of the workers alone (targets {decode['targets']})",
    ]
    if isinstance(gpu, str):
        return "\n".join([*lines, f"GPU: {gpu}"])
    return "\n".join(
        [
            *lines,
            f"GPU ({gpu['device']}), DINOv2-L at 518, float16: {gpu['images_per_second']:.0f} images/s, device busy "
            f"{gpu['device_busy']:.2f} of the time ({gpu['target']}), {gpu['share_of_matrix_rate']:.2f} of the rate "
            f"of plain products (bound {gpu['bound_images_per_second']:.0f} images/s), {gpu['held_up_by']}",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
