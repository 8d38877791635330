"""Training sets with and without flagged classes: what each step drops, and counts that close.

- `standard`: every class with at least `minimum` images.
- `decon`: the same without the flagged classes.
- `matched`: as a control, without as many classes that are not flagged, drawn at random among those with at
  least `minimum` images: what a difference between the first two owes to fewer classes alone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.contamination.training_classes import TrainingImages
from cairn.errors import InputError
from cairn.files import write_json

STANDARD, DECON, MATCHED = "standard", "decon", "matched"


@dataclass(frozen=True)
class Step:
    """One step on the way to a training set: what it dropped and what was left after it."""

    name: str
    dropped_classes: int
    dropped_images: int
    classes: int
    images: int


@dataclass(frozen=True)
class TrainingSet:
    """The classes a protocol trains on, in the order of the training file, and how they came about.

    `excluded` are the classes taken out by name, whether or not they would have had enough images.
    """

    protocol: str
    class_ids: tuple[int, ...]
    excluded: tuple[int, ...]
    minimum: int
    steps: tuple[Step, ...]

    @property
    def classes(self) -> int:
        return self.steps[-1].classes

    @property
    def images(self) -> int:
        return self.steps[-1].images

    def as_json(self) -> dict[str, Any]:
        """Counts at each step, and the class ids."""
        return {
            "protocol": self.protocol,
            "minimum_images": self.minimum,
            "classes": self.classes,
            "images": self.images,
            "steps": [
                {
                    "step": step.name,
                    "dropped": {"classes": step.dropped_classes, "images": step.dropped_images},
                    "left": {"classes": step.classes, "images": step.images},
                }
                for step in self.steps
            ],
            "excluded": list(self.excluded),
            "class_ids": list(self.class_ids),
        }


@dataclass(frozen=True)
class Reconciliation:
    """Why two training sets differ by less than what was flagged: some flagged classes were too small anyway."""

    flagged_classes: int
    flagged_images: int
    too_small_classes: int
    too_small_images: int
    difference_classes: int
    difference_images: int

    @property
    def closes(self) -> bool:
        """Whether flagged = too small + difference, in classes and in images."""
        return (
            self.flagged_classes == self.too_small_classes + self.difference_classes
            and self.flagged_images == self.too_small_images + self.difference_images
        )

    def __str__(self) -> str:
        if self.closes and not self.too_small_classes:
            return (
                f"{self.flagged_classes:,} classes with {self.flagged_images:,} images are flagged, and the sets "
                "differ by just these"
            )
        equals = "=" if self.closes else "≠"
        return (
            f"{self.flagged_classes:,} classes with {self.flagged_images:,} images are flagged {equals} "
            f"{self.too_small_classes:,} with {self.too_small_images:,} that have too few images anyway + "
            f"{self.difference_classes:,} with {self.difference_images:,} by which the sets differ"
        )


def training_set(
    training: TrainingImages, protocol: str, minimum: int, excluded: Collection[int] = ()
) -> TrainingSet:
    """Take out the `excluded` classes, then those with fewer than `minimum` images.

    InputError where an excluded class is not in the training set, `minimum` is below 1, or nothing is left.
    """
    if minimum < 1:
        raise InputError(f"minimum images per class {minimum}: expected at least 1")
    counts = training.count_of()
    unknown = sorted(set(excluded) - counts.keys())
    if unknown:
        raise InputError(
            f"{training.path}: {len(unknown)} excluded classes are not in it, such as {unknown[0]}"
        )
    steps = [Step("all classes", 0, 0, len(counts), sum(counts.values()))]
    left = dict(counts)
    for name, dropped in (
        ("excluded classes", set(excluded)),
        (f"fewer than {minimum} images", {one for one, count in counts.items() if count < minimum}),
    ):
        gone = {one: left.pop(one) for one in sorted(dropped) if one in left}
        step = Step(name, len(gone), sum(gone.values()), len(left), sum(left.values()))
        before = steps[-1]
        assert step.classes + step.dropped_classes == before.classes
        assert step.images + step.dropped_images == before.images
        steps.append(step)
    if not left:
        raise InputError(f"{training.path}: no class is left for {protocol}: lower the minimum of {minimum}")
    return TrainingSet(protocol, tuple(left), tuple(sorted(excluded)), minimum, tuple(steps))


def standard_and_decon(
    training: TrainingImages, flagged: Collection[int], minimum: int
) -> tuple[TrainingSet, TrainingSet]:
    """The two sets of the audit; `flagged` are class ids (`ClassAudit.ids`)."""
    return training_set(training, STANDARD, minimum), training_set(training, DECON, minimum, flagged)


def matched_set(training: TrainingImages, flagged: Collection[int], minimum: int, seed: int) -> TrainingSet:
    """The control: as many classes fewer as `decon` has, drawn from those that are not flagged."""
    standard, decon = standard_and_decon(training, flagged, minimum)
    fewer = standard.classes - decon.classes
    innocent = sorted(set(decon.class_ids))
    if fewer > len(innocent):
        raise InputError(f"{fewer} classes are to be drawn from {len(innocent)} that are not flagged")
    drawn = np.random.default_rng([seed, fewer]).choice(len(innocent), fewer, replace=False)
    return training_set(training, MATCHED, minimum, [innocent[number] for number in sorted(drawn.tolist())])


def reconcile(
    training: TrainingImages, standard: TrainingSet, decon: TrainingSet, flagged: Collection[int]
) -> Reconciliation:
    """What was flagged beside what the two sets differ by."""
    counts = training.count_of()
    small = [one for one in flagged if counts.get(one, 0) < standard.minimum]
    return Reconciliation(
        flagged_classes=len(set(flagged)),
        flagged_images=sum(counts.get(one, 0) for one in set(flagged)),
        too_small_classes=len(small),
        too_small_images=sum(counts.get(one, 0) for one in small),
        difference_classes=standard.classes - decon.classes,
        difference_images=standard.images - decon.images,
    )


def write_training_set(path: Path, training: TrainingSet) -> None:
    """Write `as_json`; the same set gives the same bytes."""
    write_json(path, training.as_json())


@dataclass(frozen=True)
class TrainingUse:
    """Something of a system that is learned from images: `images` are their ids, None where unknown.

    `use` is vocabulary, centring, whitening, head, …; `origin` says where the images come from or, where they
    are unknown, what is known (a backbone's pretraining).
    """

    system: str
    use: str
    images: Collection[str] | None
    origin: str


@dataclass(frozen=True)
class AuditedUse:
    """Whether a training use saw flagged images: `saw` of `images`, None where that is unknown."""

    system: str
    use: str
    origin: str
    images: int | None
    saw: int | None

    @property
    def verdict(self) -> str:
        """In words."""
        if self.saw is None:
            return "unknown"
        if self.images == 0:
            return "learns nothing from images"
        return f"saw {self.saw:,} flagged images" if self.saw else "saw no flagged image"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "system": self.system,
            "use": self.use,
            "origin": self.origin,
            "images": self.images,
            "flagged_images_seen": self.saw,
            "verdict": self.verdict,
        }


def audit_uses(uses: Iterable[TrainingUse], flagged_images: Collection[str]) -> list[AuditedUse]:
    """For every training use of every system, how many flagged images it saw; in the order given."""
    flagged = frozenset(flagged_images)
    return [
        AuditedUse(
            one.system,
            one.use,
            one.origin,
            None if one.images is None else len(one.images),
            None if one.images is None else sum(image in flagged for image in one.images),
        )
        for one in uses
    ]


def contaminated_systems(audited: Iterable[AuditedUse]) -> Mapping[str, tuple[str, ...]]:
    """System → the uses through which it saw flagged images or may have; systems without any are left out."""
    result: dict[str, tuple[str, ...]] = {}
    for one in audited:
        if one.saw is None or one.saw:
            what = one.use if one.saw else f"{one.use} (unknown)"
            result[one.system] = (*result.get(one.system, ()), what)
    return result
