"""Class-level audit: which classes of a training set are named after a benchmark's queried landmarks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.contamination.landmarks import LandmarkList
from cairn.contamination.rules import Finding, Matcher, Rejection
from cairn.contamination.training_classes import TrainingImages
from cairn.contamination.words import category_name
from cairn.errors import InputError, UsageError
from cairn.files import write_json
from cairn.progress import track

INCLUSIVE, STRICT = "inclusive", "strict"
STANCES = {
    INCLUSIVE: "a class is flagged where its name plausibly means a queried landmark or its place",
    STRICT: "a class is flagged where a rule other than a blanket one caught it and nothing leaves a doubt",
}
LEAK_FILE = "leak_class_ids.json"


@dataclass(frozen=True)
class FlaggedClass:
    """A class that at least one rule caught; `findings[0]` is the one it is reported under.

    `images` counts its images in the training set, None where no training images were given.
    """

    class_id: int
    category: str
    findings: tuple[Finding, ...]
    images: int | None

    @property
    def rule(self) -> str:
        """The first rule that caught it, in the order unique, ctx, blanket."""
        return self.findings[0].rule

    @property
    def stances(self) -> tuple[str, ...]:
        """The stances that flag it."""
        return (INCLUSIVE, STRICT) if any(one.strict for one in self.findings) else (INCLUSIVE,)


@dataclass(frozen=True)
class ConsideredClass:
    """A class that no rule caught although its name resembles one; why not."""

    class_id: int
    category: str
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True)
class ClassAudit:
    """What the class-level audit of a training set says.

    `flagged` and `considered` hold classes of the training set alone, by id; `flagged_outside` and
    `considered_outside` count classes that have a category and no image in it. `unused_places` counts
    the classes that name a place whose blanket rule is off and that no rule caught.
    """

    benchmarks: tuple[str, ...]
    categories: int
    classes: int
    images: int | None
    flagged: tuple[FlaggedClass, ...]
    considered: tuple[ConsideredClass, ...]
    flagged_outside: int
    considered_outside: int
    unused_places: Mapping[str, int]
    notes: tuple[str, ...]

    def ids(self, stance: str = INCLUSIVE) -> frozenset[int]:
        """Ids of the classes that a stance flags. UsageError where there is no such stance."""
        if stance not in STANCES:
            raise UsageError(f"stance {stance!r}: expected one of {', '.join(STANCES)}")
        return frozenset(one.class_id for one in self.flagged if stance in one.stances)


def audit_classes(
    categories: Mapping[int, str], training: TrainingImages | None, lists: Sequence[LandmarkList]
) -> ClassAudit:
    """Examine every category (class id → address or name) against the landmark lists.

    Without `training` every category counts as a class of the training set. InputError where no list is
    given, or a class of the training set has no category.
    """
    if not lists:
        raise InputError("no landmark list: give at least one")
    matcher = Matcher(lists)
    counts = training.count_of() if training is not None else None
    if counts is not None and (missing := next((one for one in counts if one not in categories), None)):
        raise InputError(f"class {missing} has images and no category")
    flagged: list[FlaggedClass] = []
    considered: list[ConsideredClass] = []
    outside = Counter()
    unused: Counter[str] = Counter()
    for class_id, category in track(categories.items(), "examining categories", len(categories), "class"):
        seen = matcher.examine(category)
        if not (seen.findings or seen.rejections or seen.unused_places):
            continue
        if counts is not None and class_id not in counts:
            outside["flagged" if seen.findings else "considered"] += bool(seen.findings or seen.rejections)
            continue
        if seen.findings:
            images = counts[class_id] if counts is not None else None
            flagged.append(FlaggedClass(class_id, category, seen.findings, images))
        else:
            unused.update(seen.unused_places)
            if seen.rejections:
                considered.append(ConsideredClass(class_id, category, seen.rejections))
    return ClassAudit(
        benchmarks=tuple(each.benchmark for each in lists),
        categories=len(categories),
        classes=len(counts) if counts is not None else len(categories),
        images=training.n_images if training is not None else None,
        flagged=tuple(sorted(flagged, key=lambda one: one.class_id)),
        considered=tuple(sorted(considered, key=lambda one: one.class_id)),
        flagged_outside=outside["flagged"],
        considered_outside=outside["considered"],
        unused_places=dict(sorted(unused.items())),
        notes=tuple(
            f"blanket rule for {place.name} {'on' if place.blanket else 'off'}: {place.blanket_note}"
            for each in lists
            for place in each.places
            if place.blanket_note
        ),
    )


def rule_counts(flagged: Iterable[FlaggedClass]) -> dict[str, dict[str, int | None]]:
    """Classes and images by the rule each class is reported under, sorted by rule."""
    groups: dict[str, list[FlaggedClass]] = {}
    for one in flagged:
        groups.setdefault(one.rule, []).append(one)
    return {
        rule: {"classes": len(groups[rule]), "images": total_images(groups[rule])} for rule in sorted(groups)
    }


def total_images(flagged: Iterable[FlaggedClass]) -> int | None:
    """Sum of the images, None where they were not counted."""
    total = 0
    for one in flagged:
        if one.images is None:
            return None
        total += one.images
    return total


def as_json(audit: ClassAudit) -> dict[str, Any]:
    """The content of `leak_class_ids.json`: counts, each flagged class with its rule, what was rejected."""
    by_stance = {
        stance: [one for one in audit.flagged if stance in one.stances] for stance in (INCLUSIVE, STRICT)
    }
    return {
        "benchmarks": list(audit.benchmarks),
        "stances": STANCES,
        "notes": list(audit.notes),
        "counts": {
            "categories": audit.categories,
            "classes": audit.classes,
            "images": audit.images,
            "flagged": {
                stance: {
                    "classes": len(members),
                    "images": total_images(members),
                    "by_rule": rule_counts(members),
                }
                for stance, members in by_stance.items()
            },
            "considered": len(audit.considered),
            "flagged_without_images": audit.flagged_outside,
            "considered_without_images": audit.considered_outside,
            "name_a_place_whose_blanket_rule_is_off": dict(audit.unused_places),
        },
        "classes": [_class_json(one) for one in audit.flagged],
        "considered": [
            {
                "id": one.class_id,
                "category": one.category,
                "name": category_name(one.category),
                "rejected": [
                    {"rule": each.rule, "matched": each.matched, "reason": each.reason}
                    for each in one.rejections
                ],
            }
            for one in audit.considered
        ],
    }


def write_audit(path: Path, audit: ClassAudit) -> None:
    """Write `as_json(audit)`; the same audit gives the same bytes."""
    write_json(path, as_json(audit))


def _class_json(one: FlaggedClass) -> dict[str, Any]:
    first = one.findings[0]
    return {
        "id": one.class_id,
        "category": one.category,
        "name": category_name(one.category),
        "images": one.images,
        "stances": list(one.stances),
        "rule": first.rule,
        "matched": first.matched,
        "place": first.place,
        "benchmark": first.benchmark,
        "landmark": first.landmark,
        "doubts": list(first.doubts),
        "also": [
            {
                "rule": each.rule,
                "matched": each.matched,
                "benchmark": each.benchmark,
                "doubts": list(each.doubts),
            }
            for each in one.findings[1:]
        ],
    }
