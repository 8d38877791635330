"""AMES logits for the pairs of many shortlists: streamed, resumable, in memory that a batch bounds.

Every gallery image is projected once, read in file order ahead of the network, into a scratch file of tokens.
Each query's shortlist is then scored in batches of fixed size, by threads that compute on one core each:
faster than one batch over all cores, and the logits do not depend on how many there are.
"""

import contextlib
import copy
import hashlib
import itertools
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cairn.cache import Cache
from cairn.errors import ArtifactError, InputError, ParameterError
from cairn.parallel import workers
from cairn.progress import track
from cairn.rerank.ames import Ames
from cairn.rerank.checkpoints import state_digest

T = TypeVar("T")
R = TypeVar("R")
READ_BATCH = 64
AHEAD = 4


class LocalSource(Protocol):
    """Local descriptors by image name (`cairn.store.local.LocalStore`); `batch` pads, mask true = padding."""

    @property
    def path(self) -> Path: ...
    @property
    def dim(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def row_of(self, name: str) -> int: ...
    def batch(self, names: Sequence[str], keypoints: int) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class RootSource:
    """A source of SIFT descriptors (8-bit integers) as RootSIFT, which is what they are to be compared as."""

    source: LocalSource

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def dim(self) -> int:
        return self.source.dim

    def __contains__(self, name: object) -> bool:
        return name in self.source

    def row_of(self, name: str) -> int:
        return self.source.row_of(name)

    def batch(self, names: Sequence[str], keypoints: int) -> tuple[np.ndarray, np.ndarray]:
        from cairn.encoders.rootsift import root

        descriptors, mask = self.source.batch(names, keypoints)
        return root(descriptors.reshape(-1, self.dim)).reshape(descriptors.shape), mask


@dataclass(frozen=True)
class Shortlist:
    """The candidates of one query whose logits are wanted, in any order."""

    query_id: str
    image_ids: tuple[str, ...]


@dataclass(frozen=True)
class PairOptions:
    """What decides a logit's bits besides weights and descriptors; lengths are descriptors per image.

    `batch` pairs are computed together (None: 8 on a CPU, 256 on a GPU); `dtype` is float32, float16 or
    bfloat16.
    """

    query_length: int = 600
    gallery_length: int = 50
    dtype: str = "float32"
    device: str = "cpu"
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.query_length < 1 or self.gallery_length < 1 or (self.batch or 1) < 1:
            raise ParameterError("AMES: descriptors per image and pairs per batch must be at least 1")
        if self.dtype not in ("float32", "float16", "bfloat16"):
            raise ParameterError(f"AMES: dtype {self.dtype!r}; expected float32, float16 or bfloat16")

    @property
    def pairs(self) -> int:
        """Pairs computed together."""
        return self.batch or (8 if self.device == "cpu" else 256)


def pair_logits(
    network: Ames,
    queries: LocalSource,
    gallery: LocalSource,
    shortlists: Sequence[Shortlist],
    options: PairOptions | None = None,
    scratch: Cache | None = None,
    keys: Sequence[str] | None = None,
    workspace: Path | None = None,
) -> list[NDArray[np.float32]]:
    """Logits [len(image_ids)] of every shortlist.

    With `scratch` each finished query is kept there and found again after an interruption, under a key that
    holds its one of `keys` (the caller's digests of code and descriptors), the weights, the options and the
    images. The projected gallery lies in a temporary folder of `workspace` (the system's where None).
    Raises InputError where the network is for another dimension than the descriptors have or an image is all
    padding, ArtifactError where a shortlisted image has no local descriptors; each names file and image.
    """
    options = options or PairOptions()
    _check_sources(network, queries, gallery, shortlists)
    dtype = getattr(torch, options.dtype)
    network = copy.deepcopy(network).to(device=options.device, dtype=dtype).eval()
    # Heads and activation leave no trace in the weights.
    weights = f"{network.shape} {state_digest(network)}"
    given = keys or [""] * len(shortlists)
    names = [_block_name(key, weights, options, s) for key, s in zip(given, shortlists, strict=True)]
    found = [_read_block(scratch, name, s) for name, s in zip(names, shortlists, strict=True)]
    todo = [number for number, logits in enumerate(found) if logits is None]
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(_one_core_each())
        stack.enter_context(torch.inference_mode())
        left = [shortlists[n] for n in todo]
        tokens = stack.enter_context(_gallery_tokens(network, gallery, left, options, workspace))
        total = sum(len(shortlist.image_ids) for shortlist in left)
        done = _score_all(network, queries, left, tokens, options, threads)
        block: list[NDArray[np.float32]] = []
        pending = iter(todo)
        number = next(pending, None)
        for part in track(done, "AMES", total=-(-total // options.pairs), unit="batches"):
            block.append(part)
            if number is not None and sum(map(len, block)) == len(shortlists[number].image_ids):
                logits = np.concatenate(block)
                found[number] = logits
                _write_block(scratch, names[number], logits)
                block, number = [], next(pending, None)
    return [np.empty(0, np.float32) if logits is None else logits for logits in found]


@dataclass(frozen=True)
class _Tokens:
    """Projected gallery images in a scratch file: tokens [image, T, width] and padding [image, T]."""

    row_of: dict[str, int]
    tokens: NDArray
    padding: NDArray[np.bool_]


@contextlib.contextmanager
def _gallery_tokens(
    network: Ames,
    gallery: LocalSource,
    shortlists: Sequence[Shortlist],
    options: PairOptions,
    place: Path | None,
) -> Iterator[_Tokens]:
    names = sorted({image for s in shortlists for image in s.image_ids}, key=gallery.row_of)
    length, width = options.gallery_length, network.shape.model_dim
    # Tokens of a full-precision model are rounded to float16 anyway, so the file loses nothing.
    kind = np.float32 if network.shape.binarized or options.dtype == "bfloat16" else np.float16
    with tempfile.TemporaryDirectory(prefix="tokens-", dir=place) as folder:
        shape = (max(1, len(names)), length, width)
        path = Path(folder) / "tokens"
        _reserve(path, int(np.prod(shape)) * np.dtype(kind).itemsize)
        tokens = np.memmap(path, dtype=kind, mode="r+", shape=shape)
        padding = np.ones(shape[:2], bool)
        batches = [names[i : i + READ_BATCH] for i in range(0, len(names), READ_BATCH)]

        def read(batch: list[str]) -> tuple[NDArray, NDArray[np.bool_]]:
            return checked_batch(gallery, batch, length)

        start = 0
        for local, mask in track(
            _ahead(read, batches), "project gallery", total=len(batches), unit="batches"
        ):
            tokens[start : start + len(local)] = _project(network, _to(local, options))
            padding[start : start + len(local)] = mask
            start += len(local)
        try:
            yield _Tokens({name: row for row, name in enumerate(names)}, tokens, padding)
        finally:
            del tokens


def _reserve(path: Path, size: int) -> None:
    """Make a file of `size` bytes whose blocks are its own: a write to a mapped page that finds the disk full ends
    the process (SIGBUS) instead of raising an error. OSError where there is no room."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def _score_all(
    network: Ames,
    queries: LocalSource,
    shortlists: Sequence[Shortlist],
    gallery: _Tokens,
    options: PairOptions,
    threads: int,
) -> Iterator[NDArray[np.float32]]:
    """Logits of batch after batch, query after query, in order."""

    def jobs() -> Iterator[tuple[Tensor, Sequence[str]]]:
        for shortlist in shortlists:
            local, mask = checked_batch(queries, [shortlist.query_id], options.query_length)
            # The query is the same for the whole batch: its padding is cut off instead of masked.
            kept = np.ascontiguousarray(local[:, ~mask[0]])
            query = network.project(_to(kept, options))
            for start in range(0, len(shortlist.image_ids), options.pairs):
                yield query, shortlist.image_ids[start : start + options.pairs]

    def score(job: tuple[Tensor, Sequence[str]]) -> NDArray[np.float32]:
        query, images = job
        with torch.inference_mode():
            rows = [gallery.row_of[image] for image in images]
            tokens = torch.from_numpy(gallery.tokens[rows]).to(options.device).to(query.dtype)
            mask = gallery.padding[rows]
            padding = torch.from_numpy(mask).to(options.device) if mask.any() else None
            return network.match(query, None, tokens, padding).float().cpu().numpy()

    yield from _ahead(score, jobs(), threads if options.device == "cpu" else 1)


def _project(network: Ames, local: Tensor) -> NDArray[np.float32]:
    """Gallery tokens [n, T, width] of descriptors [n, T, dim], each image's the same in any company.

    A matrix product's last bit can depend on how many rows it has, and what is left to do after an
    interruption is another number of images: on the CPU they are projected one by one, on a GPU in batches
    of one size.
    """
    if local.device.type == "cpu":
        return np.stack([network.project_gallery(image).float().numpy() for image in local])
    full = torch.zeros(READ_BATCH, *local.shape[1:], dtype=local.dtype, device=local.device)
    full[: len(local)] = local
    return network.project_gallery(full)[: len(local)].float().cpu().numpy()


def checked_batch(
    source: LocalSource, names: Sequence[str], length: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Descriptors float32 [n, length, dim] and padding [n, length], checked.

    InputError for an image that is all padding or holds a value that is not finite, ArtifactError where its
    row was never written (zeros that are not marked as padding).
    """
    local, padding = source.batch(names, length)
    local, padding = np.asarray(local, np.float32), np.asarray(padding, bool)
    empty = padding.all(axis=1)
    if empty.any():
        name = names[int(np.argmax(empty))]
        raise InputError(
            f"{source.path}: image {name}: every local descriptor is masked; it needs at least one"
        )
    size = np.abs(local).max(axis=2, initial=0)
    broken = ~(np.isfinite(size) | padding).all(axis=1)
    if broken.any():
        raise InputError(
            f"{source.path}: image {names[int(np.argmax(broken))]}: a local descriptor is not finite"
        )
    unwritten = ((size == 0) | padding).all(axis=1)
    if unwritten.any():
        name = names[int(np.argmax(unwritten))]
        raise ArtifactError(
            f"{source.path}: image {name}: all its local descriptors are zero; extract it again"
        )
    return local, padding


def _check_sources(
    network: Ames, queries: LocalSource, gallery: LocalSource, shortlists: Sequence[Shortlist]
) -> None:
    for source in (queries, gallery):
        if source.dim != network.shape.local_dim:
            raise InputError(
                f"{source.path}: local descriptors of {source.dim} dimensions; this AMES checkpoint takes "
                f"{network.shape.local_dim}"
            )
    for shortlist in shortlists:
        if shortlist.query_id not in queries:
            raise ArtifactError(f"{queries.path}: no local descriptors of query {shortlist.query_id}")
        for image in shortlist.image_ids:
            if image not in gallery:
                raise ArtifactError(
                    f"{gallery.path}: no local descriptors of image {image}, shortlisted for query "
                    f"{shortlist.query_id}; extract the shortlisted images again"
                )


def _ahead(function: Callable[[T], R], items: Iterable[T], threads: int = 1) -> Iterator[R]:
    """`map(function, items)` in order, by threads that work a few items ahead of the reader and no more."""
    source = iter(items)
    # A new thread would compute its first operation on all cores, in another order of summation.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        running: deque[Future[R]] = deque(
            pool.submit(function, item) for item in itertools.islice(source, threads + AHEAD)
        )
        try:
            while running:
                result = running.popleft().result()
                for item in itertools.islice(source, 1):
                    running.append(pool.submit(function, item))
                yield result
        finally:
            for future in running:
                future.cancel()


@contextlib.contextmanager
def _one_core_each() -> Iterator[int]:
    """Threads to score with, while every operation of PyTorch stays on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield workers()
    finally:
        torch.set_num_threads(before)


def _to(local: NDArray[np.float32], options: PairOptions) -> Tensor:
    return torch.from_numpy(local).to(options.device).to(getattr(torch, options.dtype))


def _block_name(key: str, weights: str, options: PairOptions, shortlist: Shortlist) -> str:
    facts = [key, weights, asdict(options) | {"batch": options.pairs}, asdict(shortlist), torch.__version__]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _read_block(scratch: Cache | None, name: str, shortlist: Shortlist) -> NDArray[np.float32] | None:
    """A finished query's logits; None where there are none or the entry is not what it should be."""
    if not shortlist.image_ids:
        return np.empty(0, np.float32)
    data = scratch.get(name) if scratch is not None else None
    if data is None or len(data) != 4 * len(shortlist.image_ids):
        return None
    return np.frombuffer(data, "<f4").astype(np.float32)


def _write_block(scratch: Cache | None, name: str, logits: NDArray[np.float32]) -> None:
    if scratch is not None:
        scratch.put(name, logits.astype("<f4").tobytes())
