"""The step `contamination`: a benchmark's landmarks in its training classes, and the training sets with and without.

What other steps read back: `learning_manifest` (the training images that a system may learn from),
`classes_of_set` (image id → class, for heads), `flagged_images`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.contamination.classes import LEAK_FILE, STANCES, ClassAudit, audit_classes, write_audit
from cairn.contamination.landmarks import LandmarkList, landmarks_of_queries
from cairn.contamination.proportions import Share
from cairn.contamination.training_classes import TrainingImages, read_categories
from cairn.contamination.training_sets import (
    MATCHED,
    STANDARD,
    matched_set,
    reconcile,
    standard_and_decon,
    training_set,
    write_training_set,
)
from cairn.errors import ArtifactError, InputError
from cairn.files import write_json
from cairn.images.manifest import Manifest

FACTS_FILE = "contamination.json"
POSITIVES = ("positive", "easy", "hard")
ALL = "all"


def write_contamination(
    training: Manifest,
    categories: Path | None,
    lists: Sequence[LandmarkList],
    truth: GroundTruth,
    output: Path,
    *,
    stance: str,
    minimum: int,
    source: str,
    known: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Write `contamination.json`, and what there is of `leak_class_ids.json` and the training sets.

    `training` holds the training images, labelled with their class ids; `categories` names the classes (None:
    they have no names); `lists` are the landmarks to look for; `source` says whose images they are; `known` is
    the true overlap where it is known: class id → its images that show a queried landmark. Without names or
    lists nothing is audited, and the file says why; without labels there is no training set either.
    InputError where a label is no class id, or a class has no category.
    """
    classes = classes_of(training, source)
    facts: dict[str, Any] = {
        "training": source,
        "audited": False,
        "stance": stance,
        "minimum_images": minimum,
    }
    if classes is None:
        facts["note"] = f"the training images of {source} have no classes: there is nothing to audit"
        write_json(output / FACTS_FILE, facts)
        return
    if categories is None or not lists:
        what = (
            "no landmark list for this benchmark" if categories else f"the classes of {source} have no names"
        )
        facts["note"] = f"{what}: nothing was audited, and `decon` cannot be made"
        standard = training_set(classes, STANDARD, minimum)
        write_training_set(output / f"{STANDARD}.json", standard)
        facts["sets"] = {STANDARD: {"classes": standard.classes, "images": standard.images}}
        write_json(output / FACTS_FILE, facts)
        return
    audit = audit_classes(read_categories(categories), classes, lists)
    write_audit(output / LEAK_FILE, audit)
    flagged = audit.ids(stance)
    sets = list(standard_and_decon(classes, flagged, minimum))
    if 0 < sets[0].classes - sets[1].classes < sets[1].classes:
        sets.append(matched_set(classes, flagged, minimum, seed=0))
    for one in sets:
        write_training_set(output / f"{one.protocol}.json", one)
    closing = reconcile(classes, sets[0], sets[1], flagged)
    shown = shown_queries(audit, stance, lists, truth)
    facts |= {
        "audited": True,
        "landmarks": [one.benchmark for one in lists],
        "flagged": {
            name: {"classes": len(audit.ids(name)), "images": _images(classes, audit.ids(name))}
            for name in STANCES
        },
        "sets": {
            one.protocol: {"classes": one.classes, "images": one.images, "steps": one.as_json()["steps"]}
            for one in sets
        },
        "counts_close": closing.closes,
        "reconciliation": str(closing),
        "queries_whose_landmark_training_shows": shown,
        "against_known_overlap": None if known is None else against_known(audit, classes, known),
    }
    write_json(output / FACTS_FILE, facts)


def classes_of(training: Manifest, source: str) -> TrainingImages | None:
    """The classes that label training images, by class id; None where they are not labelled.

    InputError, naming the image, where a label is no class id, one image lacks one, or an id holds a blank.
    """
    rows = training.rows(train=True)
    labels = [training.label[row] for row in rows]
    if not any(label is not None for label in labels):
        return None
    members: dict[int, list[str]] = {}
    for row, label in zip(rows.tolist(), labels, strict=True):
        image = training.image_id[row]
        if label is None or not (label.isascii() and label.isdigit() and len(label) < 17):
            raise InputError(
                f"training image {image} of {source}: its class {label!r:.40} is not a whole number, as GLDv2's are"
            )
        if len(image.split()) != 1:
            raise InputError(f"training image {image!r:.60} of {source}: an id with a blank cannot be listed")
        members.setdefault(int(label), []).append(image)
    ids = sorted(members)
    return TrainingImages(
        Path(source),
        tuple(ids),
        tuple(" ".join(members[one]) for one in ids),
        tuple(len(members[one]) for one in ids),
    )


def shown_queries(
    audit: ClassAudit, stance: str, lists: Sequence[LandmarkList], truth: GroundTruth
) -> dict[str, str]:
    """Query id → its landmark, for the queries whose landmark a flagged class is named after."""
    named = {
        (finding.benchmark, finding.landmark)
        for one in audit.flagged
        if stance in one.stances
        for finding in one.findings
        if finding.landmark is not None
    }
    positives = {query.query_id: truth.images(query.query_id, *POSITIVES) for query in truth.queries}
    found: dict[str, str] = {}
    for one in lists:
        for query, landmark in landmarks_of_queries(one, positives).items():
            if landmark is not None and (one.benchmark, landmark) in named:
                found.setdefault(query, landmark)
    return dict(sorted(found.items()))


def against_known(
    audit: ClassAudit, classes: TrainingImages, known: Mapping[int, Sequence[str]]
) -> dict[str, Any]:
    """Precision and recall of both stances over classes and images, with their counts."""
    truly, images = set(known), {image for members in known.values() for image in members}
    report: dict[str, Any] = {}
    for stance in STANCES:
        ids = audit.ids(stance)
        flagged = {
            image
            for one, text in zip(classes.class_ids, classes.images, strict=True)
            if one in ids
            for image in text.split()
        }
        report[stance] = {
            "class_precision": Share(len(ids & truly), len(ids), "flagged classes").as_json(),
            "class_recall": Share(len(ids & truly), len(truly), "classes that show a landmark").as_json(),
            "image_precision": Share(len(flagged & images), len(flagged), "flagged images").as_json(),
            "image_recall": Share(
                len(flagged & images), len(images), "images that show a landmark"
            ).as_json(),
        }
    return report


def read_facts(contamination: Path) -> dict[str, Any]:
    """What `write_contamination` wrote. ArtifactError, naming the file, where it cannot be read."""
    return _json(Path(contamination) / FACTS_FILE)


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
    return frozenset(_json(path)["class_ids"])


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


def flagged_images(training: Manifest, contamination: Path) -> frozenset[str] | None:
    """Images of the classes that the benchmark's stance flags; None where nothing was audited."""
    facts = read_facts(contamination)
    if not facts["audited"]:
        return None
    leak = _json(Path(contamination) / LEAK_FILE)
    ids = {one["id"] for one in leak["classes"] if facts["stance"] in one["stances"]}
    rows = training.rows(train=True).tolist()
    return frozenset(training.image_id[row] for row in rows if int(training.label[row] or -1) in ids)


def _images(classes: TrainingImages, ids: frozenset[int]) -> int:
    return sum(count for one, count in zip(classes.class_ids, classes.counts, strict=True) if one in ids)


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{path}: cannot be read ({type(error).__name__}); run the step that writes it"
        ) from None
