"""A hand-made training set with flagged classes, for tests of what comes after the class audit."""

from pathlib import Path

from cairn.contamination.classes import FlaggedClass
from cairn.contamination.images import ImageVerdict
from cairn.contamination.rules import Finding
from cairn.contamination.training_classes import TrainingImages


def training(counts: dict[int, int]) -> TrainingImages:
    """Classes with so many images; image 2 of class 7 is `7-2`."""
    images = tuple(" ".join(f"{one}-{k}" for k in range(count)) for one, count in counts.items())
    return TrainingImages(Path("clean.csv"), tuple(counts), images, tuple(counts.values()))


def flagged(class_id: int, rule: str, images: int, *doubts: str) -> FlaggedClass:
    kind, _, subject = rule.partition(":")
    landmark = None if kind == "blanket" else subject
    finding = Finding(rule, "town", landmark, subject, None, doubts)
    return FlaggedClass(class_id, f"Category {class_id}", (finding,), images)


def verdict(image: str, confirmed: bool, query: str | None = "q1") -> ImageVerdict:
    return ImageVerdict(image, confirmed, query, 40 if confirmed else 3, 0.5)
