"""AMES pairs per second beside a dense masked implementation of the same network, in one run.

    python -m bench.bench_rerank [--pairs 64] [--rounds 3] [--query 600] [--gallery 50] [--reuse] [--json]

Both score the same random descriptors (query shared by all candidates, no padding) with the same random
weights of the published full-precision model's shape; rounds alternate and the best of each counts, because
other work on the machine only ever slows a round down. The dense one computes as the published code does:
one batch over all cores. Logits must agree to 5e-6. On a GPU, pairs/s in float16 and bfloat16, and the share
of the rate that plain matrix products of the same type reach there.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from bench.dense_ames import DenseAmes
from cairn.memory import reuse_buffers
from cairn.parallel import workers
from cairn.rerank.ames import Ames, AmesShape

TOLERANCE = 5e-6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=64, help="candidates of the query, per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--query", type=int, default=600, help="descriptors of the query")
    parser.add_argument("--gallery", type=int, default=50, help="descriptors of a gallery image")
    parser.add_argument("--batch", type=int, default=8, help="pairs computed together by ours")
    parser.add_argument(
        "--dense-batch", type=int, default=16, help="pairs computed together by the dense one"
    )
    parser.add_argument(
        "--reuse", action="store_true", help="both keep their buffers, as the process of a step does"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.reuse:
        reuse_buffers()
    result = {"cpu": on_cpu(arguments), "gpu": on_gpu(arguments)}
    if arguments.json:
        print(json.dumps(result, indent=1, sort_keys=True))
    else:
        report(result)
    return 0 if result["cpu"]["largest_difference"] <= TOLERANCE else 1


def on_cpu(arguments: argparse.Namespace) -> dict[str, Any]:
    """Pairs per second of both, float32, all cores of this process."""
    network, query, gallery = material(arguments)
    cores = workers()
    dense = DenseAmes(network)
    n, size = len(gallery), arguments.dense_batch
    queries = query.expand(size, -1, -1)
    no_padding = torch.zeros(size, query.shape[1], dtype=torch.bool)
    no_gallery_padding = torch.zeros(size, gallery.shape[1], dtype=torch.bool)

    def reference() -> torch.Tensor:
        torch.set_num_threads(cores)
        parts = []
        with torch.inference_mode():
            for start in range(0, n, size):
                block = gallery[start : start + size]
                m = len(block)
                parts.append(dense(queries[:m], no_padding[:m], block, no_gallery_padding[:m]))
        return torch.cat(parts)

    def blockwise() -> torch.Tensor:
        torch.set_num_threads(1)
        with torch.inference_mode():
            one = network.project(query)

        def score(start: int) -> torch.Tensor:
            with torch.inference_mode():
                tokens = network.project_gallery(gallery[start : start + arguments.batch])
                return network.match(one, None, tokens, None)

        with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.cat(list(pool.map(score, range(0, n, arguments.batch))))

    times: dict[str, list[float]] = {"dense": [], "blockwise": []}
    outputs = {}
    # A first, short round of each warms up memory and thread pools.
    for round_number in range(arguments.rounds + 1):
        for name, function in (("dense", reference), ("blockwise", blockwise)):
            seconds, outputs[name] = timed(function)
            if round_number:
                times[name].append(seconds)
    rate = {name: n / min(seconds) for name, seconds in times.items()}
    return {
        "cores": cores,
        "query_length": arguments.query,
        "gallery_length": arguments.gallery,
        "dense_pairs_per_second": rate["dense"],
        "blockwise_pairs_per_second": rate["blockwise"],
        "ratio": rate["blockwise"] / rate["dense"],
        "ratios_of_rounds": [d / b for d, b in zip(times["dense"], times["blockwise"], strict=True)],
        "largest_difference": float((outputs["dense"] - outputs["blockwise"]).abs().max()),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "torch": torch.__version__,
    }


def on_gpu(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Pairs per second in half precision and the share of the device's matrix rate; a reason without one."""
    if not torch.cuda.is_available():
        return "no GPU here: not measured"
    network, query, gallery = material(arguments)
    work = pair_operations(network.shape, arguments.query, arguments.gallery)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "operations_per_pair": work}
    with torch.inference_mode():
        expected = network.match(network.project(query), None, network.project_gallery(gallery), None)
    for name in ("float16", "bfloat16"):
        kind = getattr(torch, name)
        moved = Ames(network.shape)
        moved.load_state_dict(network.state_dict())
        moved = moved.to("cuda", kind).eval()
        batch = 512
        with torch.inference_mode():
            one = moved.project(query.to("cuda", kind))
            tokens = moved.project_gallery(gallery.to("cuda", kind))
            logits = moved.match(one, None, tokens, None).float().cpu()
            many = tokens.repeat(-(-batch // len(tokens)), 1, 1)[:batch]

            def run(moved=moved, one=one, many=many) -> None:
                for _ in range(4):
                    moved.match(one, None, many, None)
                torch.cuda.synchronize()

            run()
            seconds = min(timed(run)[0] for _ in range(arguments.rounds))
        pairs = 4 * batch / seconds
        peak = matrix_rate(kind)
        found[name] = {
            "pairs_per_second": pairs,
            "matrix_operations_per_second": peak,
            "share_of_matrix_rate": pairs * work / peak,
            "largest_difference_from_float32": float((logits - expected).abs().max()),
            "peak_memory_mib": torch.cuda.max_memory_allocated() / 2**20,
        }
    return found


def pair_operations(shape: AmesShape, q: int, t: int) -> float:
    """Multiplications and additions of one pair in the block-wise form, without projecting its inputs."""
    width, hidden = shape.model_dim, shape.feedforward
    rows, k = q + t + 1, t + 1
    heads = shape.heads
    self_attention = 4 * width * (q * (q + 1) + rows + t * k) + 8 * rows * width * width
    few_keys = 8 * k * width * width + 4 * q * heads * k * width
    few_rows = 8 * k * width * width + 4 * heads * k * (q + 1) * width
    feedforward = 4 * rows * width * hidden
    whole = self_attention + few_keys + few_rows + feedforward
    # In the first layer the query's rows are projected and attended once for all candidates; the last layer
    # ends with the matching token.
    first = whole - 6 * q * width * width - 4 * width * q * (q + 1)
    return float(first + whole * (shape.layers - 2) + self_attention)


def matrix_rate(kind: torch.dtype) -> float:
    """Operations per second of a large square matrix product of this type on the GPU."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=kind) for _ in range(2))

    def run() -> None:
        for _ in range(8):
            torch.mm(a, b)
        torch.cuda.synchronize()

    run()
    return 8 * 2 * n**3 / min(timed(run)[0] for _ in range(3))


def material(arguments: argparse.Namespace) -> tuple[Ames, torch.Tensor, torch.Tensor]:
    """A network with random weights of a trained one's size, a query and its candidates."""
    torch.manual_seed(0)
    network = Ames(AmesShape())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    generator = np.random.default_rng(0)
    query = torch.from_numpy(generator.normal(size=(1, arguments.query, 768)).astype(np.float32))
    gallery = generator.normal(size=(arguments.pairs, arguments.gallery, 768)).astype(np.float32)
    return network.eval(), query, torch.from_numpy(gallery)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of one call."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def report(result: dict[str, Any]) -> None:
    """The figures for a reader."""
    cpu, gpu = result["cpu"], result["gpu"]
    print(f"AMES, Q = {cpu['query_length']}, T = {cpu['gallery_length']}, float32, {cpu['cores']} cores")
    print(f"  dense, masked   {cpu['dense_pairs_per_second']:8.1f} pairs/s")
    print(f"  block by block  {cpu['blockwise_pairs_per_second']:8.1f} pairs/s")
    rounds = ", ".join(f"{ratio:.2f}" for ratio in cpu["ratios_of_rounds"])
    print(f"  ratio {cpu['ratio']:.2f} (rounds: {rounds})")
    print(f"  logits differ by {cpu['largest_difference']:.1e} at most")
    print(f"  peak memory of both {cpu['peak_memory_mib']:.0f} MiB")
    if isinstance(gpu, str):
        print(f"GPU: {gpu}")
        return
    print(f"GPU: {gpu['device']}, {gpu['operations_per_pair'] / 1e9:.2f} G operations per pair")
    for name in ("float16", "bfloat16"):
        part = gpu[name]
        share = 100 * part["share_of_matrix_rate"]
        print(
            f"  {name:9} {part['pairs_per_second']:9.0f} pairs/s, {share:.0f}% of the matrix rate, "
            f"logits within {part['largest_difference_from_float32']:.1e} of float32"
        )


if __name__ == "__main__":
    sys.exit(main())
