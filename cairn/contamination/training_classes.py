"""Reads a training set's classes in Google Landmarks v2's formats: category of each, images of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cairn.errors import InputError
from cairn.scoring.files import Table, read_table

MAX_ID = 2**53
"""Largest class id: what JSON readers still keep exact."""


@dataclass(frozen=True)
class TrainingImages:
    """The classes of a training set and their images, in the order of the file.

    `images[i]` holds the ids of class `class_ids[i]` with blanks between: millions of ids as one object each
    would take ten times the memory.
    """

    path: Path
    class_ids: tuple[int, ...]
    images: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def n_images(self) -> int:
        return sum(self.counts)

    def count_of(self) -> dict[int, int]:
        """Images of each class."""
        return dict(zip(self.class_ids, self.counts, strict=True))

    def images_of(self, class_id: int) -> list[str]:
        """Ids of the images of a class; InputError where there is no such class."""
        try:
            return self.images[self.class_ids.index(class_id)].split()
        except ValueError:
            raise InputError(f"{self.path}: there is no class {class_id}") from None


def read_categories(path: Path) -> dict[int, str]:
    """Class id → category address, from `train_label_to_category.csv` (landmark_id,category).

    InputError, naming file and line, where an id is no whole number or stands twice, or a category is empty.
    """
    table = read_table(Path(path), ("landmark_id", "category"), more_columns=True)
    ids = _class_ids(table)
    categories = table.columns["category"]
    empty = next((row for row, text in enumerate(categories) if not text.strip()), None)
    if empty is not None:
        table.fail(empty, f"class {ids[empty]} has no category")
    _refuse_repeats(table, ids)
    return dict(zip(ids, categories, strict=True))


def read_training_images(path: Path, categories: Iterable[int] | None = None) -> TrainingImages:
    """Classes and images from `train_clean.csv` (landmark_id,images; blanks between images).

    A CSV with one image a line (image_id or id, landmark_id; GLDv2's `train.csv`) is read too. InputError,
    naming file and line, where an id is no whole number or, where `categories` is given, not one of these;
    where a class has no image; where an image stands twice.
    """
    path = Path(path)
    table = _read_images_table(path)
    if "images" in table.columns:
        ids = _class_ids(table)
        _refuse_repeats(table, ids)
        images = table.columns["images"]
        counts = [len(text.split()) for text in images]
        empty = next((row for row, count in enumerate(counts) if not count), None)
        if empty is not None:
            table.fail(empty, f"class {ids[empty]} has no image; leave the class out, or name its images")
        result = TrainingImages(path, tuple(ids), tuple(images), tuple(counts))
        _refuse_repeated_images(table, result)
    else:
        result = _group(table)
    if categories is not None:
        known = set(categories)
        unknown = next((each for each in result.class_ids if each not in known), None)
        if unknown is not None:
            row = next(row for row, text in enumerate(table.columns["landmark_id"]) if int(text) == unknown)
            table.fail(row, f"class {unknown} has no category in the category file")
    return result


def _read_images_table(path: Path) -> Table:
    table = read_table(path, ("landmark_id",), more_columns=True)
    for name in ("images", "image_id", "id"):
        if name in table.columns:
            return table
    raise InputError(f"{path}:1: no column of images; expected landmark_id,images or image_id,landmark_id")


def _group(table: Table) -> TrainingImages:
    """One image a line → one class a row, classes in order of appearance."""
    name = "image_id" if "image_id" in table.columns else "id"
    ids, images = _class_ids(table), table.columns[name]
    seen: dict[str, int] = {}
    groups: dict[int, list[str]] = {}
    for row, (class_id, image) in enumerate(zip(ids, images, strict=True)):
        if not image or len(image.split()) != 1:
            table.fail(row, f"{image!r:.60} is not an image id: expected one word")
        if image in seen:
            table.fail(row, f"image {image} stood on line {table.lines[seen[image]]} already")
        seen[image] = row
        groups.setdefault(class_id, []).append(image)
    return TrainingImages(
        table.path,
        tuple(groups),
        tuple(" ".join(members) for members in groups.values()),
        tuple(len(members) for members in groups.values()),
    )


def _class_ids(table: Table) -> list[int]:
    texts = table.columns["landmark_id"]
    for row, text in enumerate(texts):
        if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= MAX_ID):
            table.fail(row, f"landmark_id {text!r:.60} is not a whole number of at least 0")
    return [int(text) for text in texts]


def _refuse_repeats(table: Table, ids: list[int]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[int, int] = {}
    for row, class_id in enumerate(ids):
        if class_id in seen:
            table.fail(row, f"class {class_id} stood on line {table.lines[seen[class_id]]} already")
        seen[class_id] = row


def _refuse_repeated_images(table: Table, training: TrainingImages) -> None:
    """Compare hashes first: a set of millions of ids would take most of the memory that is allowed."""
    hashes = np.empty(training.n_images, np.int64)
    start = 0
    for text, count in zip(training.images, training.counts, strict=True):
        hashes[start : start + count] = [hash(image) for image in text.split()]
        start += count
    ordered = np.sort(hashes)
    suspects = set(ordered[1:][np.diff(ordered) == 0].tolist())
    if not suspects:
        return
    seen: dict[str, int] = {}
    for row, text in enumerate(training.images):
        for image in text.split():
            if hash(image) not in suspects:
                continue
            if image in seen:
                table.fail(row, f"image {image} stood on line {table.lines[seen[image]]} already")
            seen[image] = row
