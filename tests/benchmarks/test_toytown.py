"""The drawn town as a whole: same bytes from any number of processes, labels that follow from geometry."""

import csv
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import unquote

import cv2
import numpy as np
import pytest

from cairn.benchmarks.structure import check_images, read_ground_truth
from cairn.benchmarks.toytown import ToytownSettings, draw_town, image_roles
from cairn.benchmarks.toytown.camera import IMAGE_SIZE
from cairn.errors import ArtifactError, ParameterError

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = ToytownSettings(
    landmarks=5,
    second_queries=1,
    views=5,
    distractors=14,
    distractor_duplicates=2,
    positive_duplicates=1,
    training_classes=10,
    training_views=3,
    contaminated_classes=3,
    decoy_classes=3,
)


def draw(folder: Path, settings: ToytownSettings = TINY, processes: int = 1) -> Path:
    folder.mkdir()
    draw_town(folder, settings, processes=processes)
    return folder


@pytest.fixture(scope="module")
def town(tmp_path_factory) -> Path:
    return draw(tmp_path_factory.mktemp("toytown") / "town")


@pytest.fixture(scope="module")
def truth(town) -> dict:
    return json.loads((town / "truth.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def images(town) -> dict[str, bytes]:
    with tarfile.open(town / "images.tar") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def content(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_bytes_follow_from_the_settings_whatever_the_processes(town, tmp_path):
    again = content(draw(tmp_path / "two", processes=2))
    assert again == content(town)


def test_another_seed_is_another_town(images, tmp_path):
    small = ToytownSettings(
        seed=1, landmarks=1, second_queries=0, views=2, distractors=2, distractor_duplicates=0,
        positive_duplicates=0, training_classes=0, contaminated_classes=0, decoy_classes=0,
    )  # fmt: skip
    other = draw(tmp_path / "other", small)
    with tarfile.open(other / "images.tar") as archive:
        drawn = {archive.extractfile(member).read() for member in archive}
    assert len(drawn) == 5
    assert not drawn & set(images.values())


def test_drawing_leaves_global_random_numbers_and_threads_alone(tmp_path):
    small = ToytownSettings(
        landmarks=1, second_queries=0, views=1, distractors=0, distractor_duplicates=0,
        positive_duplicates=0, training_classes=0, contaminated_classes=0, decoy_classes=0,
    )  # fmt: skip
    before, threads = np.random.get_state(), cv2.getNumThreads()  # noqa: NPY002
    draw(tmp_path / "town", small)
    after = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0] and (before[1] == after[1]).all() and before[2:] == after[2:]
    assert cv2.getNumThreads() == threads


def test_archive_says_nothing_but_names_and_bytes(town, images):
    with tarfile.open(town / "images.tar") as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.mtime, member.uid, member.gid, member.uname, member.mode) for member in members} == {
        (0, 0, 0, "", 0o644)
    }
    raw = (town / "images.tar").read_bytes()
    for member in members:  # plain tar: members are read by offset
        assert raw[member.offset_data : member.offset_data + member.size] == images[member.name]


def test_every_image_is_a_jpeg_of_the_stated_size(images):
    for name, encoded in images.items():
        decoded = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
        assert decoded is not None and decoded.shape == (IMAGE_SIZE[1], IMAGE_SIZE[0], 3), name
        assert decoded.std() > 5, f"{name} shows nothing"


def test_roles_count_up_and_carry_the_training_labels(town, images):
    roles = image_roles(town)
    assert [role.image_id for role in roles] == sorted(images)
    assert sum(role.gallery for role in roles) == TINY.landmarks * TINY.views + TINY.distractors
    assert sum(role.query for role in roles) == TINY.landmarks + TINY.second_queries
    assert sum(role.train for role in roles) == TINY.training_classes * TINY.training_views
    assert all(role.gallery + role.query + role.train == 1 for role in roles)
    assert all((role.label is not None) == role.train for role in roles)
    with (town / "train_label_to_category.csv").open(encoding="utf-8") as stream:
        categories = {row["landmark_id"]: row["category"] for row in csv.DictReader(stream)}
    assert {role.label for role in roles if role.train} == set(categories)
    assert len(set(categories.values())) == TINY.training_classes


def test_roles_of_a_folder_without_a_town_is_one_clear_error(tmp_path):
    with pytest.raises(ArtifactError, match="does not hold a drawn town"):
        image_roles(tmp_path)


def test_ground_truth_judges_exactly_the_gallery_images_of_the_landmark(town, truth, images):
    ground_truth = read_ground_truth(town / "ground_truth")
    check_images(ground_truth, images)
    assert len(ground_truth.queries) == TINY.landmarks + TINY.second_queries
    for query in ground_truth.queries:
        landmark = truth["images"][query.image_id]["landmark"]
        same = {
            image
            for image, facts in truth["images"].items()
            if image.startswith("gallery/") and facts["landmark"] == landmark
        }
        assert len(same) == TINY.views
        assert set(ground_truth.relevance[query.query_id]) == same


def test_query_boxes_lie_inside_the_image(town):
    for query in read_ground_truth(town / "ground_truth").queries:
        x1, y1, x2, y2 = query.box
        assert 0 <= x1 < x2 <= IMAGE_SIZE[0] and 0 <= y1 < y2 <= IMAGE_SIZE[1]
        assert (x2 - x1) * (y2 - y1) > 0.05 * IMAGE_SIZE[0] * IMAGE_SIZE[1], "a query shows its landmark"


def test_grades_follow_from_share_scale_and_obliquity(town, truth):
    seen = set()
    for query_id, graded in read_ground_truth(town / "ground_truth").relevance.items():
        for image, grade in graded.items():
            facts, share = truth["images"][image], truth["shared_share"][query_id][image]
            unrecognisable = share < 0.25 or facts["scale"] < 0.28 or facts["obliquity"] > 60
            assert (grade == "junk") == unrecognisable
            if grade == "easy":
                assert share > 0.6 and facts["obliquity"] < 38
            seen.add(grade)
    assert {"easy", "hard"} <= seen


def test_exact_duplicates_have_two_names_and_the_same_grade(town, truth, images):
    pairs = truth["duplicates"]
    assert len(pairs) == TINY.distractor_duplicates + TINY.positive_duplicates
    positives = 0
    relevance = read_ground_truth(town / "ground_truth").relevance
    for copy, original in pairs:
        assert copy != original and images[copy] == images[original]
        assert truth["images"][copy] == truth["images"][original]
        for graded in relevance.values():
            assert graded.get(copy) == graded.get(original)
        positives += truth["images"][copy]["landmark"] is not None
    assert positives == TINY.positive_duplicates
    distinct = len(images) - len(set(images.values()))
    assert distinct == len(pairs), "nothing else is drawn twice"


def test_contaminated_classes_show_landmarks_and_nothing_else_does(town, truth):
    with (town / "training.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    members: dict[str, set[str]] = {}
    for row in rows:
        members.setdefault(row["landmark_id"], set()).add(row["image_id"])
    assert set(members) == set(truth["classes"])
    shown = [facts for facts in truth["classes"].values() if facts["shows"]]
    assert len(shown) == TINY.contaminated_classes
    assert len({facts["shows"] for facts in shown}) == len(shown), "one class to a landmark"
    for number, facts in truth["classes"].items():
        images = set(facts["images_that_show_it"])
        assert images <= members[number]
        assert bool(images) == (facts["shows"] is not None)
        for image in members[number]:
            assert truth["images"][image]["landmark"] == (facts["shows"] if image in images else None)
    assert any(len(facts["images_that_show_it"]) < TINY.training_views for facts in shown), "some are mixed"


def test_what_an_audit_may_know_names_the_queries_but_no_training_image(town):
    text = (town / "landmarks.json").read_text("utf-8")
    assert "train" not in text and "Category:" not in text
    known = json.loads(text)
    queries = [query for landmark in known["landmarks"] for query in landmark["queries"]]
    assert sorted(queries) == sorted(
        query.query_id for query in read_ground_truth(town / "ground_truth").queries
    )
    with (town / "train_label_to_category.csv").open(encoding="utf-8") as stream:
        names = {unquote(row["category"].split("Category:")[1]) for row in csv.DictReader(stream)}
    landmarks = {landmark["name"].replace(" ", "_") for landmark in known["landmarks"]}
    assert any(name.startswith(tuple(landmarks)) for name in names)


def test_sources_say_that_it_is_drawn(town, images):
    [source] = json.loads((town / "sources.json").read_text("utf-8"))["sources"]
    assert source["synthetic"] is True and source["licence"] == "Apache-2.0"
    assert source["seed"] == TINY.seed and source["generator"]["settings"]["landmarks"] == TINY.landmarks
    assert source["size"] == (town / "images.tar").stat().st_size


def test_a_town_is_drawn_into_an_empty_folder_only(town, tmp_path):
    for folder in (town, tmp_path / "missing"):
        with pytest.raises(ArtifactError, match="empty directory"):
            draw_town(folder, TINY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"landmarks": 0}, "landmarks must be at least 1"),
        ({"views": -1}, "views must be a number of at least 0"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"second_queries": 41}, "second_queries exceeds landmarks"),
        ({"distractors": 3}, "distractor_duplicates exceeds half"),
        ({"training_classes": 5}, "exceeds training_classes"),
        ({"look_alike_share": 1.2}, "look_alike_share must be at most 1"),
    ],
)
def test_impossible_settings_are_named(changes, message):
    with pytest.raises(ParameterError, match=message):
        ToytownSettings(**changes)


def test_settings_are_checked_without_heavy_imports():
    """`cairn --help` must not wait for numpy or OpenCV because toytown's settings are looked at."""
    code = "import sys, cairn.benchmarks.toytown; print({'numpy', 'cv2', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert done.stdout.strip() == "set()"
