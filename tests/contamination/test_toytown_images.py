"""The whole image-level audit on a small drawn town whose hidden truth is known."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, read_ground_truth
from cairn.benchmarks.toytown.settings import ToytownSettings
from cairn.benchmarks.toytown.town import draw_town
from cairn.contamination.candidates import (
    calibrate,
    geometric_verifier,
    images_of_queries,
    labels_of_pairs,
    verify_pairs,
)
from cairn.contamination.classes import STRICT, audit_classes
from cairn.contamination.images import against_truth, audit_images, judge_images
from cairn.contamination.landmarks import read_landmarks
from cairn.contamination.training_classes import read_categories, read_training_images
from cairn.encoders.rootsift import RootSift, root
from cairn.encoders.vlad import vlad
from cairn.images.decode import crop, decode_gray
from cairn.rerank import Geometry
from cairn.store.local import LocalFeatures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SETTINGS = ToytownSettings(
    landmarks=8,
    second_queries=0,
    views=4,
    distractors=16,
    distractor_duplicates=0,
    positive_duplicates=0,
    training_classes=18,
    training_views=3,
    contaminated_classes=8,
    decoy_classes=8,
)


@dataclass(frozen=True)
class Town:
    folder: Path
    truth: GroundTruth
    hidden: dict
    queries: dict[str, LocalFeatures]
    images: dict[str, LocalFeatures]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    folder = tmp_path_factory.mktemp("town")
    draw_town(folder, SETTINGS, processes=1)
    extract = RootSift(300, None, 0.03)
    truth = read_ground_truth(folder / "ground_truth")
    images, queries = {}, {}
    with tarfile.open(folder / "images.tar") as archive:
        content = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    for name, data in content.items():
        if not name.startswith("query/"):
            images[name] = extract(decode_gray(data, name))
    for query in truth.queries:
        assert query.image_id is not None and query.box is not None
        pixels = decode_gray(content[query.image_id], query.image_id)
        queries[query.query_id] = extract(crop(pixels, query.box, query.query_id))
    return Town(folder, truth, json.loads((folder / "truth.json").read_text("utf-8")), queries, images)


def test_detector_and_class_rules_against_the_hidden_truth(town: Town) -> None:
    categories = read_categories(town.folder / "train_label_to_category.csv")
    training = read_training_images(town.folder / "training.csv", categories)
    landmarks = read_landmarks(town.folder / "landmarks.json")
    audit = audit_classes(categories, training, [landmarks])

    query_ids = list(town.queries)
    gallery = sorted(name for name in town.images if name.startswith("gallery/"))
    train = sorted(name for name in town.images if name.startswith("train/"))
    generator = np.random.default_rng(0)
    pool = np.concatenate([root(town.images[name].descriptors)[:40] for name in train])
    words = pool[generator.choice(len(pool), 32, replace=False)]
    describe = lambda features: vlad(root(features.descriptors), words)  # noqa: E731
    asked = np.stack([describe(town.queries[name]) for name in query_ids])
    verify = geometric_verifier(town.queries, town.images, Geometry(features=300))

    labelled = images_of_queries(asked, [np.stack([describe(town.images[name]) for name in gallery])], 30)
    labels = labels_of_pairs(labelled, query_ids, gallery, town.truth.relevance)
    calibration = calibrate(verify_pairs(labelled, query_ids, gallery, verify), labels, 0.98)
    assert calibration.precision.value >= 0.98 and calibration.recall.value > 0.7  # type: ignore[operator]

    pairs = images_of_queries(asked, [np.stack([describe(town.images[name]) for name in train])], len(train))
    inliers = verify_pairs(pairs, query_ids, train, verify)
    verdicts = judge_images(pairs, inliers, calibration.threshold, query_ids, train)
    assert len(verdicts) == len(train)  # so small a town is compared completely
    shows = {image for one in town.hidden["classes"].values() for image in one["images_that_show_it"]}
    seen = against_truth(verdicts, shows)
    assert seen["precision"].value > 0.9 and seen["recall"].value > 0.7 and seen["kappa"] > 0.75  # type: ignore

    of_query = {query: one.id for one in landmarks.landmarks for query in one.queries}
    report = audit_images(
        audit.flagged,
        training,
        verdicts,
        calibration.threshold,
        searched=verdicts,
        depth=len(train),
        searched_pairs=len(pairs),
        calibration=calibration,
        landmark_of_query=of_query,
    )
    rules = {one.rule: one for one in report.rules}
    # The confirmed classes of the strict rules are those whose pictures show the landmark.
    truly = {int(one) for one, what in town.hidden["classes"].items() if what["shows"]}
    confirmed = {one for one, share in report.classes.items() if share.part}
    assert len(confirmed & truly) >= 0.8 * len(truly & audit.ids())
    assert len(confirmed - truly) <= 1
    assert rules["all"].classes.whole == len(audit.flagged) and audit.ids(STRICT) <= truly
    assert rules["unique:*"].images.value > 0.6  # type: ignore[operator]
    assert report.recall.whole == sum(one.confirmed for one in verdicts.values())  # type: ignore[union-attr]
    for lines in report.blind_spots:
        assert any(character.isdigit() for character in lines)
