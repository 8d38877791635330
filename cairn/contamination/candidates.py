"""Pairs of a query and an image that may show the same thing, verified and calibrated on labelled pairs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.contamination.proportions import Share
from cairn.errors import ArtifactError, InputError

if TYPE_CHECKING:
    from cairn.rerank import Geometry
    from cairn.store.local import LocalFeatures

Verify = Callable[[str, str], int]
"""Inliers of a query and an image, given their ids: `cairn.rerank.geometry` counts them with RootSIFT."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidate pairs: rows of queries and of images (int64 [n]) and their similarity (float32 [n])."""

    query: np.ndarray
    image: np.ndarray
    similarity: np.ndarray

    def __len__(self) -> int:
        return len(self.query)


def queries_of_images(queries: np.ndarray, images: np.ndarray, k: int) -> Pairs:
    """For every image [m, d] its `k` most similar queries [q, d], as pairs by image; ties by query row."""
    _check(queries, images)
    similarity = images.astype(np.float32) @ queries.astype(np.float32).T
    chosen = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    image = np.repeat(np.arange(len(images)), chosen.shape[1])
    query = chosen.ravel().astype(np.int64)
    return Pairs(query, image, similarity[image, query])


def images_of_queries(queries: np.ndarray, blocks: Iterable[np.ndarray], k: int) -> Pairs:
    """For every query [q, d] its `k` most similar images, as pairs by query; ties by image row.

    `blocks` are the images [*, d] in order of their rows, float16 or float32, as `DescriptorStore.blocks`
    gives them: memory is that of one block's similarities.
    """
    best = np.full((len(queries), 0), 0, np.float32)
    rows = np.zeros((len(queries), 0), np.int64)
    start = 0
    asked = queries.astype(np.float32)
    for block in blocks:
        _check(queries, block)
        similarity = asked @ np.asarray(block, np.float32).T
        best = np.concatenate([best, similarity], axis=1)
        here = np.broadcast_to(np.arange(start, start + len(block)), similarity.shape)
        rows = np.concatenate([rows, here], axis=1)
        # Kept rows come first and are smaller, so that a stable sort settles ties by row.
        order = np.argsort(-best, axis=1, kind="stable")[:, :k]
        best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
        start += len(block)
    query = np.repeat(np.arange(len(queries)), rows.shape[1])
    return Pairs(query, rows.ravel(), best.ravel())


def merge(*pairs: Pairs) -> Pairs:
    """Every pair once, by query and image."""
    query = np.concatenate([each.query for each in pairs])
    image = np.concatenate([each.image for each in pairs])
    similarity = np.concatenate([each.similarity for each in pairs])
    order = np.lexsort((image, query))
    query, image, similarity = query[order], image[order], similarity[order]
    first = np.ones(len(query), bool)
    first[1:] = (query[1:] != query[:-1]) | (image[1:] != image[:-1])
    return Pairs(query[first], image[first], similarity[first])


def verify_pairs(
    pairs: Pairs, query_ids: Sequence[str], image_ids: Sequence[str], verify: Verify
) -> np.ndarray:
    """Inliers of every pair, int32 [n]. ArtifactError, naming the pair, where `verify` gives a negative."""
    from cairn.progress import track

    result = np.zeros(len(pairs), np.int32)
    numbers = track(range(len(pairs)), "verifying pairs", total=len(pairs), unit="pair")
    for number in numbers:
        query, image = query_ids[int(pairs.query[number])], image_ids[int(pairs.image[number])]
        inliers = verify(query, image)
        if inliers < 0:
            raise ArtifactError(f"query {query}, image {image}: {inliers} inliers; expected 0 or more")
        result[number] = inliers
    return result


def geometric_verifier(
    queries: "Mapping[str, LocalFeatures]", images: "Mapping[str, LocalFeatures]", parameters: "Geometry"
) -> Verify:
    """Counts RootSIFT inliers of one plane between local features, by id (see `cairn.rerank.geometry`)."""
    from cairn.rerank.geometry import inliers

    return lambda query, image: inliers(queries[query], images[image], parameters)


def labels_of_pairs(
    pairs: Pairs,
    query_ids: Sequence[str],
    image_ids: Sequence[str],
    relevance: Mapping[str, Mapping[str, str]],
) -> np.ndarray:
    """What a benchmark's ground truth says of pairs of its queries and gallery images, int8 [n].

    1: the image is a positive (easy, hard, positive) of the query; 0: it is not judged, so it is none;
    -1: junk, which says neither.
    """
    values = {"junk": -1}
    result = np.zeros(len(pairs), np.int8)
    for number in range(len(pairs)):
        query, image = query_ids[int(pairs.query[number])], image_ids[int(pairs.image[number])]
        grade = relevance.get(query, {}).get(image)
        result[number] = 0 if grade is None else values.get(grade, 1)
    return result


@dataclass(frozen=True)
class Calibration:
    """A threshold on inliers and how it does on the labelled pairs it was chosen on.

    `false_alarms` is the share of pairs that do not match and pass: it carries over to pairs of which few
    match, which the precision does not.
    """

    threshold: int
    stated_precision: float
    precision: Share
    recall: Share
    false_alarms: Share

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "threshold": self.threshold,
            "stated_precision": self.stated_precision,
            "precision": self.precision.as_json(),
            "recall": self.recall.as_json(),
            "false_alarms": self.false_alarms.as_json(),
        }


def calibrate(inliers: np.ndarray, labels: np.ndarray, precision: float) -> Calibration:
    """The smallest threshold at which, and above which, pairs match with at least the stated `precision`.

    `inliers` int [n] and `labels` int8 [n] (1 match, 0 none, -1 left out). A threshold counts only where it
    and every larger one that a pair reaches hold the precision: a lucky value between unlucky ones does not.
    InputError where there is no pair of either kind, `precision` is not in (0, 1], or none reaches it.
    """
    if not 0 < precision <= 1:
        raise InputError(f"the stated precision is {precision:g}; expected a number above 0 and at most 1")
    counts, matches = inliers[labels >= 0], labels[labels >= 0] == 1
    if not matches.any() or matches.all():
        raise InputError(
            f"{matches.sum()} labelled pairs match and {(~matches).sum()} do not; calibration needs both"
        )
    chosen: int | None = None
    for threshold in np.unique(counts[counts > 0])[::-1]:
        passed = counts >= threshold
        if matches[passed].sum() < precision * passed.sum():
            break
        chosen = int(threshold)
    if chosen is None:
        best = int(counts.max(initial=0))
        raise InputError(
            f"no number of inliers reaches precision {precision:g} on the {len(counts)} labelled pairs "
            f"(the best pair has {best}); label more pairs or state a lower one"
        )
    passed = counts >= chosen
    return Calibration(
        threshold=chosen,
        stated_precision=precision,
        precision=Share(int(matches[passed].sum()), int(passed.sum()), "labelled pairs that pass"),
        recall=Share(int(matches[passed].sum()), int(matches.sum()), "labelled pairs that match"),
        false_alarms=Share(
            int((~matches & passed).sum()), int((~matches).sum()), "labelled pairs that do not match"
        ),
    )


def _check(queries: np.ndarray, images: np.ndarray) -> None:
    if queries.ndim != 2 or images.ndim != 2 or queries.shape[1] != images.shape[1]:
        raise ArtifactError(
            f"descriptors of queries {queries.shape} and images {images.shape} do not have one dimension"
        )
