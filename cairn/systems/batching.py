"""Shards through an encoder that wants batches: planned by shape, prepared ahead, described in order.

The plan is a function of the shard alone, never of workers or timing, so that a shard's bytes are.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cairn.errors import CairnError
from cairn.images.decode import crop_pixels
from cairn.parallel import in_thread
from cairn.systems.extraction import Missing, Work, described_batch, in_processes, prepared, whole_size
from cairn.systems.features import View

BATCH = 32
"""Views at once for an encoder that does not say; a batch never spans shards."""
STACKED_AHEAD = 2
"""Batches that wait, stacked, for the device."""


@dataclass
class Described:
    """The descriptors of one shard, floating point [views, dim]; zero for the images in `missing`: id → reason.

    `halved` says that the device had too little memory for a batch: the last bits of such a shard depend on that.
    `device` is the kind of device that computed it.
    """

    array: np.ndarray
    missing: dict[str, str] = field(default_factory=dict)
    halved: bool = False
    device: str = ""


@dataclass
class Clock:
    """Seconds spent waiting for prepared batches and describing them."""

    waiting: float = 0.0
    describing: float = 0.0

    def note(self) -> str:
        """`decode-bound` or `device-bound`; nothing at first."""
        if self.waiting + self.describing < 1.0:
            return ""
        return "(decode-bound)" if self.waiting > self.describing else "(device-bound)"


def batch_size(encoder: Any) -> int:
    """Views that `describe` gets at once."""
    return int(getattr(encoder, "batch", BATCH))


def plan(views: Sequence[View], work: Work) -> list[list[int]]:
    """Positions in `views` of each batch: texts apart from images, images of equal shape together.

    Shapes come in the order of their first view, and within one the views in theirs.
    """
    buckets: dict[Any, list[int]] = {}
    for position, view in enumerate(views):
        buckets.setdefault(_bucket(view, work), []).append(position)
    size = batch_size(work.encoder)
    return [
        positions[start : start + size]
        for positions in buckets.values()
        for start in range(0, len(positions), size)
    ]


def described_shards(
    shards: Sequence[Sequence[View]], work: Work, description: str, clock: Clock | None = None
) -> Iterator[Described]:
    """The descriptors of each shard in order."""
    clock = clock or Clock()
    plans = [plan(views, work) for views in shards]
    batches = [
        [views[position] for position in positions]
        for views, planned in zip(shards, plans, strict=True)
        for positions in planned
    ]
    ordered = list(itertools.chain.from_iterable(batches))
    stream = _stacked(batches, prepared(ordered, work, description, clock.note), work)
    if in_processes(ordered):  # in this process a second thread would only get in the way
        stream = in_thread(stream, STACKED_AHEAD)
    for views, planned in zip(shards, plans, strict=True):
        yield _shard(views, planned, stream, work, clock)


def _bucket(view: View, work: Work) -> Any:
    if view.text is not None:
        return "text"
    encoder: Any = work.of(view)
    if not hasattr(encoder, "shape"):
        return view.query and work.query_encoder is not None
    whole = whole_size(view, work)
    if view.box is None:
        return view.query, encoder.shape(*whole, None)
    x1, y1, x2, y2 = crop_pixels(view.box, whole[1], whole[0], view.name)
    return view.query, encoder.shape(y2 - y1, x2 - x1, whole)


def _stacked(
    batches: Sequence[Sequence[View]], stream: Iterator[Any], work: Work
) -> Iterator[tuple[Any, list[int], dict[str, str]]]:
    """Per batch what `describe` takes, the positions in it of what is there, and what is missing."""
    for views in batches:
        parts = list(itertools.islice(stream, len(views)))
        missing = {
            view.name: part.reason
            for view, part in zip(views, parts, strict=True)
            if isinstance(part, Missing)
        }
        there = [number for number, part in enumerate(parts) if not isinstance(part, Missing)]
        kept = [parts[number] for number in there]
        encoder: Any = work.of(views[0])
        if kept and views[0].text is None and hasattr(encoder, "stack"):
            kept = encoder.stack(kept)
        yield kept, there, missing


def _shard(
    views: Sequence[View], planned: Sequence[Sequence[int]], stream: Iterator[Any], work: Work, clock: Clock
) -> Described:
    rows: dict[int, np.ndarray] = {}
    missing: dict[str, str] = {}
    halved = False
    for positions in planned:
        started = time.perf_counter()
        batch, there, absent = next(stream)
        taken = time.perf_counter()
        missing.update(absent)
        if there:
            members = [positions[number] for number in there]
            encoder: Any = work.of(views[members[0]])
            if hasattr(encoder, "halved"):
                encoder.halved = False
            found = described_batch(batch, [views[position] for position in members], work)
            halved |= bool(getattr(encoder, "halved", False))
            rows.update(zip(members, found, strict=True))
        clock.waiting += taken - started
        clock.describing += time.perf_counter() - taken
    if not rows:
        name, reason = next(iter(missing.items()))
        raise CairnError(
            f"none of the {len(views)} images of a shard can be decoded (first: {name}: {reason})"
        )
    if len({len(row) for row in rows.values()}) != 1:
        sizes = sorted({len(row) for row in rows.values()})
        raise CairnError(
            f"encoder {work.encoder_name}: descriptors of {len(views)} images have {', '.join(map(str, sizes))} "
            "dimensions; vectors of one length are expected"
        )
    dim = len(next(iter(rows.values())))
    array = np.stack([rows.get(position, np.zeros(dim, np.float32)) for position in range(len(views))])
    return Described(array, dict(sorted(missing.items())), halved)
