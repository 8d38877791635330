"""Trains a head: one seed, one protocol; checkpoints after each epoch, and resumes to the same weights."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import ArtifactError, InputError
from cairn.files import atomic
from cairn.heads.arcface import arcface_loss, draw_centres, step_classes
from cairn.heads.batches import TrainingRows, epoch_batches, steps_per_epoch
from cairn.heads.parameters import HeadShape, HeadTraining
from cairn.heads.projection import build_head

if TYPE_CHECKING:
    from torch import nn

Evaluate = Callable[["nn.Module"], float]
"""A head's value on the benchmark and split that epochs are selected on; higher is better."""


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """The head of the selected epoch (from 1), and each epoch's mean loss and value (None: not evaluated)."""

    head: "nn.Module"
    epoch: int
    losses: tuple[float, ...]
    values: tuple[float | None, ...]


def train_head(
    rows: TrainingRows,
    shape: HeadShape,
    training: HeadTraining,
    seed: int,
    *,
    evaluate: Evaluate | None = None,
    checkpoint: Path | None = None,
    identity: str = "",
    device: str = "cpu",
) -> TrainedHead:
    """Train on `rows` with one seed. The same arguments give the same weights on one machine.

    Of the epochs the one with the highest `evaluate` is kept, the first of equal ones; without it the last.
    Where `checkpoint` exists it is gone on with: it must be of the same parameters, seed, classes and
    `identity` (which names the descriptors, by their hash, and what epochs are selected on). `evaluate` gets
    the head on `device`. One thread of the processor is used, so that sums do not depend on how many there are.

    InputError where descriptors do not fit the shape, or the loss is no longer finite; ArtifactError where
    the checkpoint is damaged or of another training.
    """
    import torch

    if rows.dim != shape.input:
        raise InputError(f"the descriptors have {rows.dim} dimensions, the head's input {shape.input}")
    empty = np.setdiff1d(np.arange(len(rows.class_ids)), rows.labels)
    if len(empty):
        raise InputError(f"class {rows.class_ids[empty[0]]} has no image among the descriptors")
    key = _key(rows, shape, training, seed, identity, evaluate is not None)
    steps = steps_per_epoch(rows, training.batch)
    with _reproducible(seed, device):
        head = build_head(shape, training.dropout).to(device)
        centres = draw_centres(len(rows.class_ids), shape.output, training, device)
        optimizer = torch.optim.AdamW(head.parameters(), lr=training.rate, weight_decay=training.decay)
        state = _State(0, [], [], None, 0)
        if checkpoint is not None and checkpoint.exists():
            state = _resume(checkpoint, key, head, centres, optimizer)
        for epoch in range(state.done, training.epochs):
            loss = _train_epoch(rows, training, seed, epoch, steps, head, centres, optimizer)
            state.losses.append(loss)
            head.eval()
            value = None if evaluate is None else float(evaluate(head))
            if value is not None and not math.isfinite(value):
                raise InputError(f"epoch {epoch + 1}: the value that epochs are selected by is {value}")
            known = [one for one in state.values if one is not None]
            if value is None or not known or value > max(known):
                state.best = {name: weight.clone() for name, weight in head.state_dict().items()}
                state.best_epoch = epoch + 1
            state.values.append(value)
            state.done = epoch + 1
            if checkpoint is not None:
                _save(checkpoint, key, state, head, centres, optimizer)
        assert state.best is not None
        head.load_state_dict(state.best)
    return TrainedHead(head.eval().cpu(), state.best_epoch, tuple(state.losses), tuple(state.values))


def rate_factor(step: int, steps: int, warmup: float) -> float:
    """The share of the highest learning rate at `step` of `steps`: a linear rise, then half a cosine to 0."""
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


@dataclass
class _State:
    done: int
    losses: list[float]
    values: list[float | None]
    best: dict[str, Any] | None
    best_epoch: int


def _train_epoch(
    rows: TrainingRows,
    training: HeadTraining,
    seed: int,
    epoch: int,
    steps: int,
    head: "nn.Module",
    centres: Any,
    optimizer: Any,
) -> float:
    import torch

    from cairn.progress import track

    # Everything random in an epoch follows from seed and epoch, so that resuming needs no generator's state.
    torch.manual_seed(int(np.random.SeedSequence([seed, epoch, 2]).generate_state(1)[0]))
    generator = np.random.default_rng([seed, epoch, 3])
    head.train()
    total, count = 0.0, 0
    batches = epoch_batches(rows, training.batch, training.buffer, seed, epoch)
    title = f"epoch {epoch + 1} of {training.epochs}"
    for number, (descriptors, labels) in enumerate(track(batches, title, total=steps, unit="step")):
        factor = rate_factor(epoch * steps + number, training.epochs * steps, training.warmup)
        classes = step_classes(labels, len(rows.class_ids), training.classes_per_step, generator)
        device = centres.weights.device
        targets = torch.from_numpy(np.searchsorted(classes, labels)).to(device)
        chosen = centres.rows(classes)
        outputs = head(torch.from_numpy(descriptors).to(device))
        loss = arcface_loss(outputs, chosen, targets, training.scale, training.margin)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise InputError(f"epoch {epoch + 1}, step {number + 1}: the loss is {value}; lower the rates")
        for group in optimizer.param_groups:
            group["lr"] = training.rate * factor
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        centres.move(classes, chosen.grad, training.centre_rate * factor)
        total, count = total + value * len(labels), count + len(labels)
    return total / count


@contextmanager
def _reproducible(seed: int, device: str) -> Iterator[None]:
    """One thread, deterministic kernels, and a generator of its own; everything is put back afterwards."""
    import torch

    if device.startswith("cuda"):
        # CUDA's matrix products are deterministic only with this, which must be set before the first of them.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng():
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(int(np.random.SeedSequence([seed, 0]).generate_state(1)[0]))
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


def _key(
    rows: TrainingRows, shape: HeadShape, training: HeadTraining, seed: int, identity: str, evaluated: bool
) -> str:
    """What a checkpoint must share with the training that goes on with it."""
    import hashlib

    digest = hashlib.sha256(np.ascontiguousarray(rows.labels).tobytes())
    digest.update(np.asarray(rows.class_ids, np.int64).tobytes())
    sizes = [len(block) for block in rows.blocks]
    text = json.dumps(
        [shape.model_dump(), training.model_dump(), seed, identity, evaluated, sizes], sort_keys=True
    )
    digest.update(text.encode())
    return digest.hexdigest()


def _save(path: Path, key: str, state: _State, head: Any, centres: Any, optimizer: Any) -> None:
    import torch

    content = {
        "key": key,
        "done": state.done,
        "losses": state.losses,
        "values": state.values,
        "best": state.best,
        "best_epoch": state.best_epoch,
        "head": head.state_dict(),
        "centres": centres.weights,
        "momentum": centres.momentum,
        "optimizer": optimizer.state_dict(),
    }
    # To an open file: given a path, torch would write the temporary file's name into it.
    with atomic(path) as temporary, temporary.open("wb") as stream:
        torch.save(content, stream)


def _resume(path: Path, key: str, head: Any, centres: Any, optimizer: Any) -> _State:
    import torch

    try:
        content = torch.load(path, map_location=centres.weights.device, weights_only=True)
        if content["key"] != key:
            raise ArtifactError(
                f"{path}: a checkpoint of another training (parameters, seed or data differ); remove it to start anew"
            )
        head.load_state_dict(content["head"])
        optimizer.load_state_dict(content["optimizer"])
        centres.weights.copy_(content["centres"])
        centres.momentum.copy_(content["momentum"])
        return _State(
            content["done"], content["losses"], content["values"], content["best"], content["best_epoch"]
        )
    except ArtifactError:
        raise
    except Exception as error:  # damaged bytes make torch raise nearly anything
        kind = type(error).__name__
        raise ArtifactError(f"{path}: a damaged checkpoint ({kind}); remove it to start anew") from None
