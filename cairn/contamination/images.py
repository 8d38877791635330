"""Image-level audit: do the flagged classes' pictures show what is queried, and what did the names miss?

A training image is **confirmed** when at least one candidate pair of it and a query has as many inliers as the
calibrated threshold. Every ratio keeps its numerator, its denominator, and what the denominator counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.contamination.candidates import Calibration, Pairs
from cairn.contamination.classes import FlaggedClass
from cairn.contamination.proportions import Share, cluster_interval
from cairn.contamination.training_classes import TrainingImages
from cairn.errors import InputError


@dataclass(frozen=True)
class ImageVerdict:
    """What the detector says of one training image: its best query (None without candidates), and how good."""

    image_id: str
    confirmed: bool
    query_id: str | None
    inliers: int
    similarity: float


def judge_images(
    pairs: Pairs,
    inliers: np.ndarray,
    threshold: int,
    query_ids: Sequence[str],
    image_ids: Sequence[str],
) -> dict[str, ImageVerdict]:
    """Verdict on every image that is in a pair, by image id: the pair with most inliers, then most similar.

    Ties go to the query that stands first.
    """
    order = np.lexsort((pairs.query, -pairs.similarity, -inliers, pairs.image))
    images = pairs.image[order]
    first = np.ones(len(order), bool)
    first[1:] = images[1:] != images[:-1]
    verdicts = {}
    for number in order[first].tolist():
        image, count = image_ids[int(pairs.image[number])], int(inliers[number])
        query, similarity = query_ids[int(pairs.query[number])], float(pairs.similarity[number])
        verdicts[image] = ImageVerdict(image, count >= threshold, query, count, round(similarity, 6))
    return verdicts


@dataclass(frozen=True)
class RulePrecision:
    """How right a rule is: of its images that were checked, those confirmed; of its classes, those with any."""

    rule: str
    images: Share
    images_by_class: tuple[float, float] | None  # interval when whole classes are drawn, not images
    own_landmark: Share | None  # confirmed by a query of the landmark that the rule names
    classes: Share
    not_checked: int

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "rule": self.rule,
            "image_precision": self.images.as_json(),
            "image_precision_interval95_over_classes": (
                list(self.images_by_class) if self.images_by_class else None
            ),
            "image_precision_own_landmark": self.own_landmark.as_json() if self.own_landmark else None,
            "class_precision": self.classes.as_json(),
            "flagged_images_not_checked": self.not_checked,
        }


@dataclass(frozen=True)
class ImageAudit:
    """The image-level audit of a set of flagged classes.

    `rules` has `all` first, then each kind of rule, then each rule. `recall` is over the whole training set
    with the same candidates for flagged and other images; None where the queries were not searched in it.
    """

    threshold: int
    calibration: Calibration | None
    rules: tuple[RulePrecision, ...]
    classes: Mapping[int, Share]  # per flagged class: confirmed of checked images
    recall: Share | None
    missed: tuple[str, ...]  # confirmed images outside the flagged classes
    missed_by_class: Mapping[int, int]
    blind_spots: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "threshold_inliers": self.threshold,
            "calibration": self.calibration.as_json() if self.calibration else None,
            "precision": [one.as_json() for one in self.rules],
            "classes": [
                {"id": one, "confirmed": share.part, "checked": share.whole}
                for one, share in sorted(self.classes.items())
            ],
            "recall": self.recall.as_json() if self.recall else None,
            "missed_images": list(self.missed),
            "missed_images_by_class": [
                {"id": one, "images": count} for one, count in sorted(self.missed_by_class.items())
            ],
            "what_the_detector_cannot_see": list(self.blind_spots),
        }


def audit_images(
    flagged: Sequence[FlaggedClass],
    training: TrainingImages,
    verdicts: Mapping[str, ImageVerdict],
    threshold: int,
    *,
    searched: Mapping[str, ImageVerdict] | None = None,
    depth: int | None = None,
    searched_pairs: int | None = None,
    calibration: Calibration | None = None,
    landmark_of_query: Mapping[str, str | None] | None = None,
) -> ImageAudit:
    """Precision of the flagged classes from `verdicts` on their images, recall from `searched`.

    `verdicts`: of flagged images, each compared with its most similar queries. `searched`: of the images
    that are among the `depth` most similar ones of any query, in the whole training set; recall uses them
    alone, because more candidates for flagged images than for others would flatter it. `landmark_of_query`
    allows "confirmed by a query of the rule's own landmark". InputError where nothing is flagged, or a
    flagged class is not in the training set.
    """
    if not flagged:
        raise InputError("no class is flagged: there is nothing to verify")
    known = set(training.class_ids)
    absent = next((one for one in flagged if one.class_id not in known), None)
    if absent is not None:
        raise InputError(f"{training.path}: flagged class {absent.class_id} is not in the training set")
    chosen = {one.class_id for one in flagged}
    images = {
        class_id: text.split()
        for class_id, text in zip(training.class_ids, training.images, strict=True)
        if class_id in chosen
    }
    per_class = {
        one.class_id: _confirmed(images[one.class_id], verdicts, f"checked images of class {one.class_id}")
        for one in flagged
    }
    groups: dict[str, list[FlaggedClass]] = {"all": list(flagged)}
    for kind in ("unique", "ctx", "blanket"):
        groups[f"{kind}:*"] = [one for one in flagged if one.rule.startswith(f"{kind}:")]
    for one in sorted(flagged, key=lambda one: one.rule):
        groups.setdefault(one.rule, []).append(one)
    rules = tuple(
        _rule_precision(rule, members, images, verdicts, landmark_of_query)
        for rule, members in groups.items()
        if members
    )
    recall, missed, by_class = _recall(training, chosen, searched)
    return ImageAudit(
        threshold=threshold,
        calibration=calibration,
        rules=rules,
        classes=per_class,
        recall=recall,
        missed=missed,
        missed_by_class=by_class,
        blind_spots=tuple(
            _blind_spots(training, images, verdicts, searched, depth, searched_pairs, calibration)
        ),
    )


def against_truth(
    verdicts: Mapping[str, ImageVerdict], shows_landmark: Iterable[str]
) -> dict[str, Share | float | None]:
    """The detector itself, where it is known which training images show a queried landmark (toytown).

    Precision and recall over the images in `verdicts`, and Cohen's kappa.
    """
    from cairn.contamination.proportions import cohens_kappa

    truth = set(shows_landmark)
    confirmed = {image for image, verdict in verdicts.items() if verdict.confirmed}
    shown = truth & set(verdicts)
    agreement = cohens_kappa(
        [image in confirmed for image in verdicts], [image in truth for image in verdicts]
    )
    return {
        "precision": Share(len(confirmed & truth), len(confirmed), "confirmed images"),
        "recall": Share(len(confirmed & truth), len(shown), "checked images that show a landmark"),
        "kappa": agreement.kappa,
    }


def _confirmed(images: Iterable[str], verdicts: Mapping[str, ImageVerdict], of: str) -> Share:
    checked = [verdicts[image] for image in images if image in verdicts]
    return Share(sum(one.confirmed for one in checked), len(checked), of)


def _rule_precision(
    rule: str,
    members: Sequence[FlaggedClass],
    images: Mapping[int, list[str]],
    verdicts: Mapping[str, ImageVerdict],
    landmark_of_query: Mapping[str, str | None] | None,
) -> RulePrecision:
    name = "flagged images" if rule == "all" else f"images flagged by {rule}"
    shares = [_confirmed(images[one.class_id], verdicts, "") for one in members]
    parts, wholes = [share.part for share in shares], [share.whole for share in shares]
    checked = [share for share in shares if share.whole]
    own: Share | None = None
    named = [one for one in members if one.findings[0].landmark is not None]
    if landmark_of_query is not None and named:
        found = total = 0
        for one in named:
            for image in images[one.class_id]:
                verdict = verdicts.get(image)
                if verdict is None:
                    continue
                total += 1
                shown = landmark_of_query.get(verdict.query_id) if verdict.query_id else None
                found += verdict.confirmed and shown == one.findings[0].landmark
        own = Share(found, total, f"{name} that were checked and whose rule names a landmark")
    return RulePrecision(
        rule=rule,
        images=Share(sum(parts), sum(wholes), f"{name} that were checked"),
        images_by_class=cluster_interval(parts, wholes),
        own_landmark=own,
        classes=Share(
            sum(share.part > 0 for share in checked), len(checked), "their classes with a checked image"
        ),
        not_checked=sum(len(images[one.class_id]) for one in members) - sum(wholes),
    )


def _recall(
    training: TrainingImages, chosen: set[int], searched: Mapping[str, ImageVerdict] | None
) -> tuple[Share | None, tuple[str, ...], dict[int, int]]:
    if searched is None:
        return None, (), {}
    confirmed = {image for image, verdict in searched.items() if verdict.confirmed}
    inside, missed, by_class, seen = 0, [], {}, 0
    for class_id, text in zip(training.class_ids, training.images, strict=True):
        here = confirmed.intersection(text.split())
        seen += len(here)
        if class_id in chosen:
            inside += len(here)
        elif here:
            missed += here
            by_class[class_id] = len(here)
    if seen != len(confirmed):
        unknown = next(
            image for image in sorted(confirmed) if not any(image in text.split() for text in training.images)
        )
        raise InputError(f"{training.path}: image {unknown} was searched and is in no class")
    of = "images of the training set that the detector confirms"
    return Share(inside, seen, of), tuple(sorted(missed)), by_class


def _blind_spots(
    training: TrainingImages,
    images: Mapping[int, list[str]],
    verdicts: Mapping[str, ImageVerdict],
    searched: Mapping[str, ImageVerdict] | None,
    depth: int | None,
    searched_pairs: int | None,
    calibration: Calibration | None,
) -> list[str]:
    """What the detector cannot see, with the numbers that say how much that may be."""
    lines = []
    unchecked = sum(image not in verdicts for members in images.values() for image in members)
    if unchecked:
        lines.append(f"{unchecked:,} flagged images have no candidate pair and were not checked")
    if searched is None:
        lines.append("the queries were not searched in the whole training set: recall is unknown")
    else:
        rest = training.n_images - len(searched)
        among = f"among the {depth:,} most similar ones of any query" if depth else "in a candidate pair"
        lines.append(f"{rest:,} of {training.n_images:,} training images are not {among}: never verified")
    if calibration is not None:
        recall, alarms = calibration.recall, calibration.false_alarms
        lines.append(
            f"at {calibration.threshold} inliers it misses {recall.whole - recall.part:,} of "
            f"{recall.whole:,} labelled pairs that match (other sides, interiors, other light, few features)"
        )
        line = (
            f"{alarms.part:,} of {alarms.whole:,} labelled pairs that do not match pass: where matches are "
            "rare, the stated precision does not carry over"
        )
        if searched_pairs is not None and alarms.value is not None:
            expected = alarms.value * searched_pairs
            line += f"; of {searched_pairs:,} pairs searched about {expected:,.1f} would pass by mistake"
        lines.append(line)
    return lines
