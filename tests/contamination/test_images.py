"""Image-level audit: candidates, calibration, and every ratio with its counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.contamination.candidates import (
    Pairs,
    calibrate,
    images_of_queries,
    labels_of_pairs,
    merge,
    queries_of_images,
    verify_pairs,
)
from cairn.contamination.images import against_truth, audit_images, judge_images
from cairn.errors import ArtifactError, InputError
from tests.contamination.cases import flagged, training, verdict


def descriptors(generator: np.random.Generator, count: int, dim: int = 8) -> np.ndarray:
    values = generator.normal(size=(count, dim)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_images_of_queries_do_not_depend_on_blocks(block: int) -> None:
    generator = np.random.default_rng(0)
    queries, images = descriptors(generator, 5), descriptors(generator, 60)
    images[33] = images[12]  # a tie goes to the smaller row
    pairs = images_of_queries(queries, (images[i : i + block] for i in range(0, 60, block)), 10)
    expected = np.argsort(-(queries @ images.T), axis=1, kind="stable")[:, :10]
    assert np.array_equal(pairs.image.reshape(5, 10), expected)
    assert np.array_equal(pairs.query, np.repeat(np.arange(5), 10))


def test_queries_of_images_and_merged_pairs() -> None:
    generator = np.random.default_rng(1)
    queries, images = descriptors(generator, 4), descriptors(generator, 6)
    mine = queries_of_images(queries, images, 2)
    assert np.array_equal(
        mine.query.reshape(6, 2), np.argsort(-(images @ queries.T), axis=1, kind="stable")[:, :2]
    )
    both = merge(mine, images_of_queries(queries, [images], 3))
    keys = list(zip(both.query.tolist(), both.image.tolist(), strict=True))
    assert keys == sorted(set(keys)) and set(
        zip(mine.query.tolist(), mine.image.tolist(), strict=True)
    ) <= set(keys)
    with pytest.raises(ArtifactError, match="one dimension"):
        queries_of_images(queries, images[:, :3], 2)


def test_more_images_asked_than_there_are() -> None:
    queries = np.eye(2, 4, dtype=np.float32)
    assert len(images_of_queries(queries, [queries], 50)) == 4


def test_verification_asks_by_id_and_refuses_nonsense() -> None:
    pairs = Pairs(np.array([0, 1]), np.array([1, 0]), np.zeros(2, np.float32))
    asked = []

    def verify(query: str, image: str) -> int:
        asked.append((query, image))
        return len(asked)

    assert verify_pairs(pairs, ["qa", "qb"], ["ia", "ib"], verify).tolist() == [1, 2]
    assert asked == [("qa", "ib"), ("qb", "ia")]
    with pytest.raises(ArtifactError, match="query qa, image ib: -1 inliers"):
        verify_pairs(pairs, ["qa", "qb"], ["ia", "ib"], lambda *_: -1)


def test_labels_follow_the_ground_truth() -> None:
    pairs = Pairs(np.zeros(4, int), np.arange(4), np.zeros(4, np.float32))
    relevance = {"q": {"a": "easy", "b": "junk", "c": "positive"}}
    assert labels_of_pairs(pairs, ["q"], ["a", "b", "c", "d"], relevance).tolist() == [1, -1, 1, 0]


def test_calibration_states_what_it_reaches() -> None:
    inliers = np.array([50, 40, 30, 20, 20, 12, 10, 8, 8, 5])
    labels = np.array([1, 1, 1, 1, 0, 1, -1, 0, 1, 0], np.int8)
    perfect = calibrate(inliers, labels, 1.0)
    assert (perfect.threshold, perfect.precision.part, perfect.precision.whole) == (30, 3, 3)
    lenient = calibrate(inliers, labels, 0.8)
    # At 20: 4 of 5; at 12: 5 of 6; at 8: 6 of 8. The junk pair with 10 counts nowhere.
    assert (lenient.threshold, str(lenient.precision)[:5]) == (12, "5 / 6")
    assert (lenient.recall.part, lenient.recall.whole) == (5, 6)
    assert (lenient.false_alarms.part, lenient.false_alarms.whole) == (1, 3)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=2, max_size=60), st.floats(0.5, 1))
def test_calibration_holds_its_promise_above_the_threshold(pairs, precision) -> None:
    inliers = np.array([count for count, _ in pairs])
    labels = np.array([int(match) for _, match in pairs], np.int8)
    try:
        chosen = calibrate(inliers, labels, precision)
    except InputError:
        return
    for threshold in range(chosen.threshold, 41):
        passed = inliers >= threshold
        assert labels[passed].sum() >= precision * passed.sum() - 1e-9


@pytest.mark.parametrize(
    ("labels", "precision", "message"),
    [
        ([1, 1], 0.9, "calibration needs both"),
        ([0, 0], 0.9, "calibration needs both"),
        ([0, 1], 0.9, "no number of inliers reaches precision 0.9"),
        ([1, 0], 0.0, "stated precision is 0"),
        ([1, 0], 1.5, "stated precision is 1.5"),
    ],
)
def test_impossible_calibrations_are_refused(labels, precision, message) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(np.array([9, 4]), np.array(labels, np.int8), precision)


def test_an_images_verdict_is_its_best_pair() -> None:
    pairs = Pairs(np.array([0, 1, 2, 0]), np.array([0, 0, 0, 1]), np.array([0.9, 0.2, 0.3, 0.1], np.float32))
    verdicts = judge_images(pairs, np.array([4, 30, 30, 2]), 10, ["a", "b", "c"], ["x", "y"])
    assert (verdicts["x"].query_id, verdicts["x"].inliers, verdicts["x"].confirmed) == ("c", 30, True)
    assert (verdicts["y"].query_id, verdicts["y"].confirmed) == ("a", False)


def test_every_ratio_keeps_its_counts_and_they_close() -> None:
    images = training({1: 4, 2: 2, 3: 3, 4: 5, 5: 1})
    classes = [flagged(1, "unique:a", 4), flagged(2, "ctx:b", 2), flagged(3, "blanket:town", 3)]
    verdicts = {f"1-{k}": verdict(f"1-{k}", k < 3, "qa" if k else "qb") for k in range(4)}
    verdicts |= {"2-0": verdict("2-0", False), "3-0": verdict("3-0", True), "3-1": verdict("3-1", False)}
    searched = {"1-0": verdict("1-0", True), "4-1": verdict("4-1", True), "4-2": verdict("4-2", True),
                "5-0": verdict("5-0", False)}  # fmt: skip
    result = audit_images(
        classes, images, verdicts, 10, searched=searched, depth=50, landmark_of_query={"qa": "a", "qb": "b"}
    )
    rules = {one.rule: one for one in result.rules}
    assert list(rules) == ["all", "unique:*", "ctx:*", "blanket:*", "blanket:town", "ctx:b", "unique:a"]
    assert (rules["all"].images.part, rules["all"].images.whole, rules["all"].not_checked) == (4, 7, 2)
    assert (rules["all"].classes.part, rules["all"].classes.whole) == (2, 3)
    for part in ("images", "classes"):
        kinds = [getattr(rules[name], part) for name in ("unique:*", "ctx:*", "blanket:*")]
        assert sum(one.whole for one in kinds) == getattr(rules["all"], part).whole
    # Image 1-0 is confirmed by a query of another landmark.
    assert (rules["unique:a"].own_landmark.part, rules["unique:a"].own_landmark.whole) == (2, 4)  # type: ignore[union-attr]
    assert rules["blanket:town"].own_landmark is None
    # Recall: of the three images confirmed anywhere, one is in a flagged class.
    assert (result.recall.part, result.recall.whole) == (1, 3)  # type: ignore[union-attr]
    assert result.missed == ("4-1", "4-2") and result.missed_by_class == {4: 2}
    assert any("11 of 15 training images" in line for line in result.blind_spots)
    assert any("2 flagged images have no candidate" in line for line in result.blind_spots)
    for one in result.as_json()["precision"]:
        for share in (one["image_precision"], one["class_precision"]):
            assert share["denominator"] and share["part"] <= share["whole"]


def test_mistakes_are_named() -> None:
    images = training({1: 2})
    with pytest.raises(InputError, match="no class is flagged"):
        audit_images([], images, {}, 10)
    with pytest.raises(InputError, match="flagged class 9 is not in the training set"):
        audit_images([flagged(9, "unique:a", 1)], images, {}, 10)
    with pytest.raises(InputError, match="image 3-0 was searched and is in no class"):
        audit_images([flagged(1, "unique:a", 2)], images, {}, 10, searched={"3-0": verdict("3-0", True)})


def test_without_a_search_recall_is_unknown_and_said_to_be() -> None:
    result = audit_images([flagged(1, "unique:a", 2)], training({1: 2}), {"1-0": verdict("1-0", True)}, 10)
    assert result.recall is None and any("recall is unknown" in line for line in result.blind_spots)


def test_the_detector_against_the_truth() -> None:
    verdicts = {"a": verdict("a", True), "b": verdict("b", True), "c": verdict("c", False)}
    seen = against_truth(verdicts, {"a", "c", "elsewhere"})
    assert (seen["precision"].part, seen["precision"].whole) == (1, 2)  # type: ignore[union-attr]
    assert (seen["recall"].part, seen["recall"].whole) == (1, 2)  # type: ignore[union-attr]
