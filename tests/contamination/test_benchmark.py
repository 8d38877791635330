"""The step `contamination`: counts that close, what other steps read back, and what cannot be audited."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.benchmarks.toytown.adapter import known_overlap, landmarks
from cairn.contamination.benchmark import (
    classes_of,
    classes_of_set,
    flagged_images,
    learning_manifest,
    read_facts,
    read_set,
    write_contamination,
)
from cairn.contamination.landmarks import LandmarkList
from cairn.errors import InputError
from cairn.images.manifest import Manifest

SIZES = {1: 4, 2: 3, 3: 2, 4: 5, 5: 2}
NAMES = {1: "Old Mill", 2: "Blue Tower (Smalltown)", 3: "Old Mill, Smalltown", 4: "A lake", 5: "Town hall"}
LIST = LandmarkList.model_validate(
    {
        "benchmark": "small",
        "places": [{"name": "Smalltown", "blanket": False}],
        "landmarks": [
            {"id": "mill", "name": "Old Mill", "place": "Smalltown", "queries": ["q0"]},
            {"id": "tower", "name": "Blue Tower", "place": "Smalltown", "queries": ["q1"]},
            {"id": "gate", "name": "Iron Gate", "place": "Smalltown", "queries": ["q2"]},
        ],
    }
)
TRUTH = GroundTruth(tuple(Query(f"q{n}", f"i{n}") for n in range(3)), {})


def manifest(labels: list[str | None]) -> Manifest:
    ids = [f"t{number:02d}" for number in range(len(labels))]
    n = len(ids)
    none, ones = np.zeros(n, bool), np.ones(n, np.int64)
    small = ones.astype(np.int32)
    return Manifest(
        ids, ["a"] * n, ids, ones, ones, small, small, ["0" * 64] * n, none, none, ~none, list(labels)
    )


TRAINING = manifest([str(one) for one, size in SIZES.items() for _ in range(size)])


def audited(tmp_path: Path, **change) -> Path:
    categories = tmp_path / "categories.csv"
    lines = [f'{one},"{name}"' for one, name in NAMES.items()]
    categories.write_text("\n".join(["landmark_id,category", *lines]) + "\n", "utf-8")
    output = tmp_path / "contamination"
    output.mkdir()
    options = {
        "stance": "inclusive",
        "minimum": 3,
        "source": "small",
        "known": {1: ["t00", "t01"], 4: ["t09"]},
    }
    given = {"training": TRAINING, "categories": categories, "lists": [LIST]} | change
    write_contamination(given["training"], given["categories"], given["lists"], TRUTH, output, **options)
    return output


def test_counts_close_and_small_flagged_classes_explain_the_rest(tmp_path: Path) -> None:
    output = audited(tmp_path)
    facts = read_facts(output)
    assert facts["flagged"]["inclusive"] == {"classes": 3, "images": 9}
    sets = {name: (one["classes"], one["images"]) for name, one in facts["sets"].items()}
    # Of three flagged classes one has two images, which the minimum of three drops from both sets.
    assert sets == {"standard": (3, 12), "decon": (1, 5)}
    assert facts["counts_close"]
    assert facts["reconciliation"] == (
        "3 classes with 9 images are flagged = 1 with 2 that have too few images anyway + 2 with 7 by which the "
        "sets differ"
    )
    assert facts["queries_whose_landmark_training_shows"] == {"q0": "mill", "q1": "tower"}
    against = facts["against_known_overlap"]["inclusive"]
    assert (against["class_precision"]["part"], against["class_precision"]["whole"]) == (1, 3)
    assert (against["class_recall"]["part"], against["class_recall"]["whole"]) == (1, 2)
    assert (against["image_precision"]["part"], against["image_precision"]["whole"]) == (2, 9)
    assert (against["image_recall"]["part"], against["image_recall"]["whole"]) == (2, 3)


def test_no_use_of_the_decontaminated_set_sees_a_flagged_image(tmp_path: Path) -> None:
    output = audited(tmp_path)
    flagged = flagged_images(TRAINING, output)
    assert flagged is not None and len(flagged) == 9
    learning = learning_manifest(TRAINING, output, "decon")
    learned = {learning.image_id[row] for row in learning.rows(train=True)}
    assert len(learned) == 5 and not learned & flagged
    assert set(classes_of_set(TRAINING, output, "decon")) == learned
    assert classes_of_set(TRAINING, output, "standard").keys() & flagged
    assert learning_manifest(TRAINING, output, "all") is TRAINING


def test_what_cannot_be_audited_says_why(tmp_path: Path) -> None:
    for number, (change, why) in enumerate(
        (
            ({"lists": []}, "no landmark list for this benchmark"),
            ({"categories": None}, "the classes of small have no names"),
            ({"training": manifest([None] * 4)}, "have no classes"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        output = audited(folder, **change)
        assert why in read_facts(output)["note"]
        assert flagged_images(TRAINING, output) is None
        with pytest.raises(InputError, match=f"no training set 'decon': .*{why}"):
            read_set(output, "decon")
    assert read_set(tmp_path / "0" / "contamination", "standard") == {1, 2, 4}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["7", "oxford"], r"t01 of x: its class 'oxford' is not a whole number"),
        (["7", None], r"t01 of x: its class None is not a whole number"),
    ],
)
def test_labels_that_are_no_class_ids_are_refused(labels, message) -> None:
    with pytest.raises(InputError, match=message):
        classes_of(manifest(labels), "x")
    blank = replace(manifest(["7"]), image_id=["a b"])
    with pytest.raises(InputError, match="'a b' of x: an id with a blank"):
        classes_of(blank, "x")


def test_a_class_without_a_category_and_sets_without_a_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="class 9 has images and no category"):
        audited(tmp_path, training=manifest(["9", "9", "9"]))
    (tmp_path / "again").mkdir()
    with pytest.raises(InputError, match="no class is left for standard: lower the minimum of 3"):
        audited(tmp_path / "again", training=manifest(["1", "2"]))


def test_toytowns_adapter_gives_names_and_truth(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    hidden = {"classes": {"3": {"shows": "a", "images_that_show_it": ["t"]}, "4": {"shows": None}}}
    (sources / "truth.json").write_text(json.dumps(hidden), "utf-8")
    assert known_overlap({}, tmp_path, Path("sources")) == {3: ["t"]}
    assert landmarks({}, tmp_path, Path("sources")) == [str(sources / "landmarks.json")]
