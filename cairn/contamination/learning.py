"""Reads back what the step `contamination` found: who may learn from which training images, and which are flagged."""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import ArtifactError, InputError
from cairn.images.manifest import Manifest

FACTS_FILE = "contamination.json"
LEAK_FILE = "leak_class_ids.json"
ALL, MATCHED = "all", "matched"


def read_facts(contamination: Path) -> dict[str, Any]:
    """What `write_contamination` wrote. ArtifactError, naming the file, where it cannot be read."""
    return read_json(Path(contamination) / FACTS_FILE)


def read_set(contamination: Path, protocol: str) -> frozenset[int]:
    """Class ids of a training set. InputError, saying why, where there is no such set."""
    path = Path(contamination) / f"{protocol}.json"
    if not path.is_file():
        facts = read_facts(contamination)
        if facts["audited"] and protocol == MATCHED:
            why = "it takes as many innocent classes out as are flagged, and there are none or too few"
        else:
            why = facts.get("note", f"{path} is missing")
        raise InputError(f"there is no training set {protocol!r}: {why}")
    return frozenset(read_json(path)["class_ids"])


def learning_manifest(training: Manifest, contamination: Path, training_set: str) -> Manifest:
    """`training` with those of its rows marked for training that a system with this `training_set` learns from.

    InputError where there is no such set.
    """
    if training_set == ALL:
        return training
    chosen = read_set(contamination, training_set)
    kept = np.array([label is not None and int(label) in chosen for label in training.label], bool)
    return replace(training, train=training.train & kept)


def classes_of_set(training: Manifest, contamination: Path, protocol: str) -> dict[str, int]:
    """Image id → class id of the images in a training set."""
    learning = learning_manifest(training, contamination, protocol)
    return {
        training.image_id[row]: int(training.label[row] or 0) for row in learning.rows(train=True).tolist()
    }


@dataclass(frozen=True)
class Described:
    """What of a training set has descriptors: `classes` image id → class id; the counts are of what was left out.

    `missing` images could not be decoded; `small_classes` have too few others, `small_images`, for the set's rule.
    """

    classes: dict[str, int]
    missing: int = 0
    small_classes: int = 0
    small_images: int = 0


def described_of_set(
    training: Manifest, contamination: Path, protocol: str, missing: Collection[str]
) -> Described:
    """`classes_of_set` without the images `missing`, then without the classes of fewer than the set's minimum.

    InputError where no class is left.
    """
    classes = classes_of_set(training, contamination, protocol)
    left = {image: one for image, one in classes.items() if image not in missing}
    gone = len(classes) - len(left)
    if not gone:
        return Described(classes)
    path = Path(contamination) / f"{protocol}.json"
    minimum = 1 if protocol == ALL else int(read_json(path)["minimum_images"])
    count = Counter(left.values())
    kept = {image: one for image, one in left.items() if count[one] >= minimum}
    if not kept:
        raise InputError(
            f"training set {protocol!r}: {gone:,} images could not be decoded, and no class has {minimum:,} others; "
            "repair these images, or lower contamination.minimum"
        )
    small = len(set(classes.values()) - set(kept.values()))
    return Described(kept, gone, small, len(left) - len(kept))


def flagged_images(training: Manifest, contamination: Path) -> frozenset[str] | None:
    """Images of the classes that the benchmark's stance flags; None where nothing was audited."""
    facts = read_facts(contamination)
    if not facts["audited"]:
        return None
    leak = read_json(Path(contamination) / LEAK_FILE)
    ids = {one["id"] for one in leak["classes"] if facts["stance"] in one["stances"]}
    rows = training.rows(train=True).tolist()
    return frozenset(training.image_id[row] for row in rows if int(training.label[row] or -1) in ids)


def read_json(path: Path) -> dict[str, Any]:
    """What a step wrote. ArtifactError, naming the file, where it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path}: cannot be read ({type(error).__name__}); run the step that writes it"
        ) from None
