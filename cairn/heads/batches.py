"""Batches of descriptors in an order that follows from seed and epoch, streamed block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.errors import InputError


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Descriptors in blocks [*, dim] (float16 or float32; memory maps are read as they are needed) and labels.

    `labels[i]` int64 numbers the class of row i over all blocks, from 0; -1: not in this training set.
    `class_ids[c]` is the id of class c.
    """

    blocks: Sequence[np.ndarray]
    labels: np.ndarray
    class_ids: tuple[int, ...]

    @property
    def dim(self) -> int:
        return self.blocks[0].shape[1]

    @property
    def n_rows(self) -> int:
        """Rows that are trained on."""
        return int((self.labels >= 0).sum())


def training_rows(
    blocks: Sequence[np.ndarray], image_ids: Sequence[str], class_of: dict[str, int]
) -> TrainingRows:
    """Rows of the images that have a class in `class_of` (image id → class id), others left out.

    InputError where descriptors and ids do not fit, an image of `class_of` has no descriptor, or there are
    fewer than two classes.
    """
    total = sum(len(block) for block in blocks)
    if total != len(image_ids):
        raise InputError(f"{total} descriptors beside {len(image_ids)} image ids")
    if len({block.shape[1] for block in blocks}) != 1:
        raise InputError("the descriptors' blocks differ in dimension, or there are none")
    class_ids = tuple(sorted(set(class_of.values())))
    if len(class_ids) < 2:
        raise InputError(f"{len(class_ids)} training classes; a head needs at least two")
    number = {class_id: place for place, class_id in enumerate(class_ids)}
    labels = np.array([number[class_of[image]] if image in class_of else -1 for image in image_ids], np.int64)
    found = int((labels >= 0).sum())
    if found != len(class_of):
        missing = sorted(set(class_of) - set(image_ids))
        what = f"{len(missing)} training images have no descriptor, such as {missing[0]}"
        raise InputError(what if missing else "an image id stands twice among the descriptors")
    return TrainingRows(tuple(blocks), labels, class_ids)


def steps_per_epoch(rows: TrainingRows, batch: int) -> int:
    """Batches in an epoch: the last is as small as it comes out, but never a single row."""
    whole, rest = divmod(rows.n_rows, batch)
    return whole + (rest > 1) if whole else 1


def epoch_batches(
    rows: TrainingRows, batch: int, buffer: int, seed: int, epoch: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Descriptors float32 [batch, dim] and labels int64 [batch] of one epoch, every row once.

    Blocks come in random order, `buffer` at a time; their rows are shuffled together. A single row that is
    left at the end is dropped: it has nothing to be compared with, and no batch statistics.
    """
    generator = np.random.default_rng([seed, epoch, 1])
    starts = np.concatenate([[0], np.cumsum([len(block) for block in rows.blocks])])
    order = generator.permutation(len(rows.blocks))
    carried = np.zeros((0, rows.dim), np.float32)
    carried_labels = np.zeros(0, np.int64)
    for place in range(0, len(order), buffer):
        chosen = np.sort(order[place : place + buffer])
        parts, labels = [carried], [carried_labels]
        for number in chosen:
            here = rows.labels[starts[number] : starts[number + 1]]
            kept = here >= 0
            parts.append(np.asarray(rows.blocks[number])[kept].astype(np.float32))
            labels.append(here[kept])
        pool, pool_labels = np.concatenate(parts), np.concatenate(labels)
        mixed = generator.permutation(len(pool))
        last = place + buffer >= len(order)
        end = len(pool) if last else len(pool) - len(pool) % batch
        for start in range(0, end, batch):
            taken = mixed[start : min(start + batch, end)]
            if len(taken) > 1:
                yield pool[taken], pool_labels[taken]
        carried, carried_labels = pool[mixed[end:]], pool_labels[mixed[end:]]
