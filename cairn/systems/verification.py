"""The step `verification`: the image-level audit of the flagged training classes, with a page for judges."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache
from cairn.contamination.benchmark import POSITIVES, classes_of
from cairn.contamination.candidates import (
    Pairs,
    calibrate,
    images_of_queries,
    labels_of_pairs,
    merge,
    queries_of_images,
)
from cairn.contamination.classes import FlaggedClass, audit_classes
from cairn.contamination.images import ImageAudit, ImageVerdict, against_truth, audit_images, judge_images
from cairn.contamination.landmarks import LandmarkList, landmarks_of_queries
from cairn.contamination.parameters import VERIFIER, ContaminationParameters
from cairn.contamination.proportions import Share
from cairn.contamination.training_classes import TrainingImages, read_categories
from cairn.encoders import load_encoder
from cairn.errors import InputError
from cairn.files import write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.rerank import Geometry
from cairn.store.descriptors import open_queries, open_shards
from cairn.store.local import LocalFeatures
from cairn.systems.disk import tells_full_disk
from cairn.systems.extraction import Work, features_key, one_thread, prepared, query_views, unpack
from cairn.systems.features import View, local_features, pixels
from cairn.validation import validated

AUDIT_FILE, VERDICTS_FILE = "image_audit.json", "verdicts.parquet"
SAMPLE_FILE, PAGE_FILE = "sample.json", "judging.html"
REMEMBERED = 2048
"""Images whose features a worker keeps: some 150 MB."""


@tells_full_disk
def verify_training(
    training: Manifest,
    manifest: Manifest,
    truth: GroundTruth,
    root: Path,
    categories: Path | None,
    lists: Sequence[LandmarkList],
    training_descriptors: Path,
    descriptors: Path,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    source: str,
    known: Mapping[int, Sequence[str]] | None = None,
    cache: Cache | None,
    features_code: str,
) -> None:
    """Write `image_audit.json`, `verdicts.parquet`, and `sample.json` with `judging.html` into `output`.

    Candidates come from the system's own descriptors (of training images, gallery and queries); pairs are verified
    with RootSIFT, whatever the system is. The threshold is calibrated on each query's most similar gallery images,
    whose label the ground truth knows. `parameters` as in ContaminationParameters, `known` the true overlap
    where it is known. Where no class is flagged the file says so. InputError where no threshold reaches the
    stated precision, or the training images have no named classes.
    """
    checked = validated(ContaminationParameters, parameters, "contamination")
    classes = classes_of(training, source)
    if classes is None or categories is None or not lists:
        note = "the training classes have no names, or the benchmark no landmark list: nothing to verify"
        write_json(output / AUDIT_FILE, {"audited": False, "note": note})
        return
    audit = audit_classes(read_categories(categories), classes, lists)
    flagged = [one for one in audit.flagged if checked.stance in one.stances]
    if not flagged:
        note = "no training class is named after a queried landmark: nothing to verify"
        write_json(output / AUDIT_FILE, {"audited": False, "note": note})
        return
    encoder = load_encoder(VERIFIER, {}, root)
    work = {
        name: Work(ImageSource(which, root), encoder, cache, features_code, encoder_name=VERIFIER)
        for name, which in (("test", manifest), ("training", training))
    }
    wanted = checked.images
    queries, gallery, train = (
        open_queries(descriptors), open_shards(descriptors), open_shards(training_descriptors)
    )  # fmt: skip
    query_ids = [query.query_id for query in truth.queries]
    asked = queries.take(queries.rows_of(query_ids)).astype(np.float32)
    query_view = {view.name: view for view in query_views(manifest, truth, VERIFIER)}

    labelled = images_of_queries(asked, gallery.blocks(), wanted.labelled)
    images = {image: View(manifest.row_of[image], None, image) for image in gallery.ids}
    counted = _count(labelled, query_ids, gallery.ids, query_view, images, work["test"], work["test"])
    labels = labels_of_pairs(labelled, query_ids, gallery.ids, truth.relevance)
    calibration = calibrate(counted, labels, wanted.precision)

    members = {image for one in flagged for image in classes.images_of(one.class_id)}
    rows = np.array([row for row, image in enumerate(train.ids) if image in members], np.int64)
    own = queries_of_images(asked, train.take(rows), wanted.candidates)
    own = Pairs(own.query, rows[own.image], own.similarity)
    searched = images_of_queries(asked, train.blocks(), wanted.depth)
    pairs = merge(own, searched)
    images = {image: View(training.row_of[image], None, image) for image in train.ids}
    inliers = _count(pairs, query_ids, train.ids, query_view, images, work["test"], work["training"])
    every = judge_images(pairs, inliers, calibration.threshold, query_ids, train.ids)
    checked_verdicts = _among(pairs, own, inliers, calibration.threshold, query_ids, train.ids)
    searched_verdicts = _among(pairs, searched, inliers, calibration.threshold, query_ids, train.ids)

    positives = {query: truth.images(query, *POSITIVES) for query in query_ids}
    landmark_of = {
        query: landmark for one in lists for query, landmark in landmarks_of_queries(one, positives).items()
    }
    report = audit_images(
        flagged,
        classes,
        checked_verdicts,
        calibration.threshold,
        searched=searched_verdicts,
        depth=wanted.depth,
        searched_pairs=len(searched),
        calibration=calibration,
        landmark_of_query=landmark_of,
    )
    facts = {"audited": True, "stance": checked.stance, "parameters": wanted.model_dump(), **report.as_json()}
    facts["against_known_overlap"] = _against(report, flagged, known, checked_verdicts, searched_verdicts)
    write_json(output / AUDIT_FILE, facts)
    _write_verdicts(output / VERDICTS_FILE, every, classes, {one.class_id: one.rule for one in flagged})
    if wanted.sample:
        _write_page(
            output, flagged, classes, checked_verdicts, wanted.sample, wanted.seed, query_view, work, images
        )


def _among(
    pairs: Pairs,
    part: Pairs,
    inliers: np.ndarray,
    threshold: int,
    query_ids: Sequence[str],
    image_ids: Sequence[str],
) -> dict[str, ImageVerdict]:
    """Verdicts from the pairs in `part` alone; `inliers` are those of `pairs`, which hold them."""
    number = {
        pair: place for place, pair in enumerate(zip(pairs.query.tolist(), pairs.image.tolist(), strict=True))
    }
    places = [number[pair] for pair in zip(part.query.tolist(), part.image.tolist(), strict=True)]
    return judge_images(part, inliers[places], threshold, query_ids, image_ids)


def _against(
    report: ImageAudit,
    flagged: Sequence[FlaggedClass],
    known: Mapping[int, Sequence[str]] | None,
    checked: Mapping[str, ImageVerdict],
    searched: Mapping[str, ImageVerdict],
) -> dict[str, Any] | None:
    """The detector against the truth, and the classes it confirms."""
    if known is None:
        return None
    shows = {image for members in known.values() for image in members}
    confirmed = {one for one, share in report.classes.items() if share.part}
    flagged_truly = {one.class_id for one in flagged} & set(known)
    result: dict[str, Any] = {
        "confirmed_class_precision": Share(
            len(confirmed & set(known)), len(confirmed), "confirmed classes"
        ).as_json(),
        "confirmed_class_recall": Share(
            len(confirmed & flagged_truly), len(flagged_truly), "flagged classes that show a landmark"
        ).as_json(),
    }
    for name, verdicts in (("flagged_images", checked), ("searched_images", searched)):
        seen = against_truth(verdicts, shows)
        result[name] = {key: one.as_json() if isinstance(one, Share) else one for key, one in seen.items()}
    return result


def _write_verdicts(
    path: Path, verdicts: Mapping[str, ImageVerdict], classes: TrainingImages, rules: Mapping[int, str]
) -> None:
    """One row per training image that was compared with a query."""
    import pyarrow as pa

    from cairn.store.tables import write_table

    class_of = {
        image: one
        for one, text in zip(classes.class_ids, classes.images, strict=True)
        for image in text.split()
        if image in verdicts
    }
    ids = sorted(verdicts)
    found = [verdicts[image] for image in ids]
    columns = {
        "image_id": pa.array(ids, pa.string()),
        "class_id": pa.array([class_of[image] for image in ids], pa.int64()),
        "rule": pa.array([rules.get(class_of[image]) for image in ids], pa.string()),
        "confirmed": pa.array([one.confirmed for one in found], pa.bool_()),
        "query_id": pa.array([one.query_id for one in found], pa.string()),
        "inliers": pa.array([one.inliers for one in found], pa.int32()),
        "similarity": pa.array([one.similarity for one in found], pa.float64()),
    }
    write_table(pa.table(columns), path)


def _write_page(
    output: Path,
    flagged: Sequence[FlaggedClass],
    classes: TrainingImages,
    verdicts: Mapping[str, ImageVerdict],
    size: int,
    seed: int,
    query_view: Mapping[str, View],
    work: Mapping[str, Work],
    images: Mapping[str, View],
) -> None:
    from cairn.contamination.judging_page import page_picture, write_judging_page
    from cairn.contamination.sampling import draw_sample, write_sample

    sample = draw_sample(flagged, classes, verdicts, size, seed)
    write_sample(output / SAMPLE_FILE, sample)
    write_judging_page(
        output / PAGE_FILE,
        sample,
        lambda query: page_picture(pixels(work["test"].source, query_view[query], True)),
        lambda image: page_picture(pixels(work["training"].source, images[image], True)),
        f"Does the picture show the landmark? {len(sample.items)} training images",
    )


def _count(
    pairs: Pairs,
    query_ids: Sequence[str],
    image_ids: Sequence[str],
    query_view: Mapping[str, View],
    image_view: Mapping[str, View],
    query_work: Work,
    image_work: Work,
) -> np.ndarray:
    """Inliers, int32 [n], of each pair; the work is shared by queries among processes."""
    from cairn.parallel import map_processes, workers
    from cairn.progress import track

    order = np.argsort(pairs.query, kind="stable")
    tasks = [
        (
            query_view[query_ids[query]],
            [image_view[image_ids[int(pairs.image[number])]] for number in numbers],
        )
        for query, numbers in (
            (int(query), list(group)) for query, group in itertools.groupby(order, lambda n: pairs.query[n])
        )
    ]
    _fill(query_work, [view for view, _ in tasks])
    _fill(image_work, list({view.name: view for _, views in tasks for view in views}.values()))
    processes = workers() if len(pairs) > 400 else 1
    counted = map_processes(
        _inliers_of_query, tasks, initializer=_start, initargs=(query_work, image_work), processes=processes
    )
    parts = list(track(counted, "Verifying candidate pairs", total=len(tasks), unit="queries"))
    result = np.zeros(len(pairs), np.int32)
    result[order] = np.concatenate([np.array(part, np.int32) for part in parts])
    return result


def _fill(work: Work, views: Sequence[View]) -> None:
    """Make the features that the cache lacks, in all workers; without a cache each is made when it is needed."""
    if work.features_cache is not None:
        for _ in prepared(views, work, "Local features of candidates"):
            pass


@dataclass
class _Worker:
    queries: Work
    images: Work
    remembered: dict[str, LocalFeatures]


_worker: _Worker


def _start(queries: Work, images: Work) -> None:
    global _worker
    _worker = _Worker(queries, images, {})


def _inliers_of_query(task: tuple[View, list[View]]) -> list[int]:
    from cairn.rerank.geometry import inliers

    query, views = task
    with one_thread():
        asked = _features(query, _worker.queries)
        return [inliers(asked, image, Geometry()) for image in _remembered(views)]


def _remembered(views: Sequence[View]) -> Iterator[LocalFeatures]:
    kept = _worker.remembered
    for view in views:
        if view.name not in kept:
            if len(kept) >= REMEMBERED:
                kept.pop(next(iter(kept)))
            kept[view.name] = _features(view, _worker.images)
        yield kept[view.name]


def _features(view: View, work: Work) -> LocalFeatures:
    cache, extractor = work.features_cache, work.encoder.features
    if extractor is None:
        raise InputError(f"{VERIFIER} has no local features to verify pairs with")
    data = cache.get(features_key(view, work)) if cache is not None else None
    return unpack(data) if data is not None else local_features(work.source, view, extractor)
