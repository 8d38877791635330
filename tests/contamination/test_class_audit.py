"""The class audit as a whole: its files, toytown's hidden truth, exclusion lists, hostile input."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairn.benchmarks.toytown import town
from cairn.benchmarks.toytown.plan import plan_town
from cairn.benchmarks.toytown.settings import ToytownSettings
from cairn.contamination.classes import INCLUSIVE, STRICT, ClassAudit, as_json, audit_classes, write_audit
from cairn.contamination.exclusion_lists import compare, comparison_json, read_exclusion_list
from cairn.contamination.landmarks import LandmarkList, landmarks_of_queries, load_landmarks
from cairn.contamination.training_classes import read_categories, read_training_images
from cairn.errors import CairnError, InputError, UsageError

CATEGORIES = """landmark_id,category
7,http://commons.wikimedia.org/wiki/Category:Louvre
3,http://commons.wikimedia.org/wiki/Category:Louvre-Lens
9,"http://commons.wikimedia.org/wiki/Category:Christ_Church,_Oxford"
4,http://commons.wikimedia.org/wiki/Category:Interior_of_Keble_College
5,http://commons.wikimedia.org/wiki/Category:Pubs_in_Oxford
6,http://commons.wikimedia.org/wiki/Category:Happy_Valley
8,http://commons.wikimedia.org/wiki/Category:Eiffel_Tower
2,http://commons.wikimedia.org/wiki/Category:Streets_in_Paris
"""
IMAGES = """landmark_id,images
7,aa ab ac
3,ba
9,ca cb
4,da
5,ea eb ec ed
6,fa
2,ga
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "categories.csv").write_text(CATEGORIES, "utf-8")
    (tmp_path / "clean.csv").write_text(IMAGES, "utf-8")
    return tmp_path


def audit(folder: Path) -> ClassAudit:
    categories = read_categories(folder / "categories.csv")
    training = read_training_images(folder / "clean.csv", categories)
    return audit_classes(categories, training, [load_landmarks("roxford5k"), load_landmarks("rparis6k")])


def test_audit_reports_rule_text_count_and_stance(folder: Path) -> None:
    result = audit(folder)
    assert [(one.class_id, one.rule, one.images, one.stances) for one in result.flagged] == [
        (4, "unique:keble", 1, (INCLUSIVE,)),
        (5, "blanket:oxford", 4, (INCLUSIVE,)),
        (7, "unique:louvre", 3, (INCLUSIVE, STRICT)),
        (9, "ctx:christ-church", 2, (INCLUSIVE, STRICT)),
    ]
    assert result.ids() == {4, 5, 7, 9} and result.ids(STRICT) == {7, 9}
    assert [one.class_id for one in result.considered] == [3]
    # Class 8 is named after the tower and has no image in the training set.
    assert (result.classes, result.images, result.flagged_outside) == (7, 13, 1)
    assert result.unused_places == {"paris": 1}
    with pytest.raises(UsageError, match="expected one of inclusive, strict"):
        result.ids("lenient")


def test_counts_of_the_file_close(folder: Path) -> None:
    write_audit(folder / "leak.json", audit(folder))
    first = (folder / "leak.json").read_bytes()
    value = json.loads(first)
    for stance, counts in value["counts"]["flagged"].items():
        members = [one for one in value["classes"] if stance in one["stances"]]
        assert counts["classes"] == len(members) == sum(one["classes"] for one in counts["by_rule"].values())
        assert counts["images"] == sum(one["images"] for one in members)
        assert counts["images"] == sum(one["images"] for one in counts["by_rule"].values())
    write_audit(folder / "leak.json", audit(folder))
    assert (folder / "leak.json").read_bytes() == first


def test_without_training_images_nothing_is_counted(folder: Path) -> None:
    result = audit_classes(read_categories(folder / "categories.csv"), None, [load_landmarks("rparis6k")])
    assert [(one.class_id, one.images) for one in result.flagged] == [(7, None), (8, None)]
    assert as_json(result)["counts"]["flagged"][STRICT]["images"] is None


def test_toytown_is_audited_against_its_hidden_truth() -> None:
    plan = plan_town(ToytownSettings())
    known = LandmarkList.model_validate(town._known(plan))
    categories = {one.landmark_id: one.category.address for one in plan.training}
    result = audit_classes(categories, None, [known])
    truth = {one.landmark_id for one in plan.training if one.category.landmark is not None}
    naming = {one.landmark_id: one.category.naming for one in plan.training}
    shows = {one.landmark_id: one.category.landmark for one in plan.training}

    strict, inclusive = result.ids(STRICT), result.ids(INCLUSIVE)
    assert len(truth) == 12
    assert strict <= truth  # nothing that the strict stance flags is innocent
    # What no rule on names can find, and what only the blanket rule finds.
    assert {naming[one] for one in truth - inclusive} == {"unnamed"}
    assert {naming[one] for one in truth - strict} == {"unnamed", "view of the place"}
    # Innocent classes that the inclusive stance flags: it says so of them itself.
    assert {naming[one] for one in inclusive - truth} == {"interior", "another building in the place"}
    # The rule names the landmark that is really shown.
    for one in result.flagged:
        if STRICT in one.stances:
            assert one.findings[0].landmark == shows[one.class_id]
    # Decoys that resemble a name are among what was considered, with a reason.
    decoys = {"same name elsewhere", "place that contains the place", "hyphenated branch",
              "name inside a longer word", "ambiguous name, no place"}  # fmt: skip
    assert decoys <= {naming[one.class_id] for one in result.considered}
    assert all(each.reason for one in result.considered for each in one.rejections)


def test_queries_belong_to_landmarks_by_their_positives() -> None:
    oxford = load_landmarks("roxford5k")
    positives = {
        "q1": ["all_souls_000013", "all_souls_000026", "oxford_000001"],
        "q2": ["jpg/christ_church_000179.jpg"],
        "q3": ["oxford_000001", "keble_000028"],
    }
    assert landmarks_of_queries(oxford, positives) == {"q1": "all-souls", "q2": "christ-church", "q3": None}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", "# ours\n7\n9 # shown\n\n11"),
        ("ids.csv", "landmark_id,note\n7,a\n9,b\n11,c\n"),
        ("ids.json", "[7, 9, 11]"),
        ("objects.json", '[{"landmark_id": 7}, {"landmark_id": "9"}, {"landmark_id": 11}]'),
        ("leak.json", '{"classes": [{"id": 7, "stances": ["inclusive"]}, {"id": 9}, {"id": 11}]}'),
        ("keys.json", '{"leak_classes": {"7": "a", "9": "b", "11": "c"}}'),
        ("plain.json", '{"7": "unique", "9": "ctx", "11": "blanket"}'),
    ],
)
def test_exclusion_lists_of_many_forms(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    assert read_exclusion_list(tmp_path / name) == {7, 9, 11}


def test_an_own_list_is_read_by_stance(folder: Path) -> None:
    write_audit(folder / "leak.json", audit(folder))
    assert read_exclusion_list(folder / "leak.json") == {4, 5, 7, 9}
    assert read_exclusion_list(folder / "leak.json", STRICT) == {7, 9}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.txt", "7\nseven\n", r"ids.txt:2: 'seven' is not a class id"),
        ("ids.txt", "7\n7\n", r"ids.txt:2: class 7 is listed twice"),
        ("ids.txt", "\n# none\n", r"ids.txt: no class id"),
        ("ids.csv", "landmark_id\n-3\n", r"ids.csv:2: '-3' is not a class id"),
        ("ids.json", '{"title": "x"}', r"ids.json: no list of classes"),
        ("ids.json", '[{"name": "x"}]', r"entry 0 has no id"),
        ("ids.json", "[true]", r"True is not a class id"),
        ("ids.json", "[1.5]", r"1.5 is not a class id"),
        ("ids.json", "nonsense", r"not JSON"),
    ],
)
def test_damaged_exclusion_lists_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(InputError, match=message):
        read_exclusion_list(tmp_path / name)


def test_comparison_counts_classes_and_images() -> None:
    images = {1: 10, 2: 5, 3: 1, 4: 7}
    result = compare([1, 2, 3], [2, 3, 4, 99], images)
    assert (result.only_a, result.both, result.only_b) == ((1,), (2, 3), (4, 99))
    assert (result.images_of_a.part, result.images_of_a.whole) == (6, 16)  # type: ignore[union-attr]
    assert (result.images_of_b.part, result.images_of_b.whole) == (6, 13)  # type: ignore[union-attr]
    assert result.missing_b == (99,) and result.relation == "neither contains the other"
    assert comparison_json(result)["of_a_also_in_b"]["classes"] == {"part": 2, "whole": 3, "ratio": 2 / 3}


@given(st.frozensets(st.integers(0, 20)), st.frozensets(st.integers(0, 20)))
def test_comparison_is_symmetric_and_says_who_contains_whom(a: frozenset, b: frozenset) -> None:
    result, back = compare(a, b), compare(b, a)
    assert (result.only_a, result.both) == (back.only_b, back.both)
    expected = (
        "A and B are equal" if a == b
        else "A and B have no class in common" if not a & b
        else "B contains A" if a < b
        else "A contains B" if a > b
        else "neither contains the other"
    )  # fmt: skip
    assert result.relation == expected
    assert len(result.only_a) + len(result.both) == len(a)


@pytest.mark.parametrize(
    ("categories", "images", "message"),
    [
        ("landmark_id,category\n1,a\n1,b\n", IMAGES, r"categories.csv:3: class 1 stood on line 2 already"),
        ("landmark_id,category\nx,a\n", IMAGES, r"categories.csv:2: landmark_id 'x' is not a whole number"),
        ("landmark_id,category\n1,\n", IMAGES, r"categories.csv:2: class 1 has no category"),
        ("id,category\n1,a\n", IMAGES, r"categories.csv:1: the column landmark_id is missing"),
        (CATEGORIES, "landmark_id,images\n7,\n", r"clean.csv:2: class 7 has no image"),
        (CATEGORIES, "landmark_id,images\n7,a\n7,b\n", r"clean.csv:3: class 7 stood on line 2 already"),
        (CATEGORIES, "landmark_id,images\n7,a b\n9,c a\n", r"clean.csv:3: image a stood on line 2 already"),
        (CATEGORIES, "landmark_id,images\n7,a\n77,b\n", r"clean.csv:3: class 77 has no category"),
        (CATEGORIES, "landmark_id,pictures\n7,a\n", r"clean.csv:1: no column of images"),
        (CATEGORIES, "image_id,landmark_id\na,7\na,9\n", r"clean.csv:3: image a stood on line 2 already"),
        (CATEGORIES, "image_id,landmark_id\n,7\n", r"clean.csv:2: '' is not an image id"),
    ],
)
def test_damaged_files_are_refused_with_their_line(
    folder: Path, categories: str, images: str, message: str
) -> None:
    (folder / "categories.csv").write_text(categories, "utf-8")
    (folder / "clean.csv").write_text(images, "utf-8")
    with pytest.raises(InputError, match=message):
        audit(folder)


def test_one_image_a_line_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image_id,landmark_id\na/1.jpg,5\nb/2.jpg,4\nc/3.jpg,5\n", "utf-8")
    training = read_training_images(tmp_path / "t.csv")
    assert training.count_of() == {5: 2, 4: 1}
    assert training.images_of(5) == ["a/1.jpg", "c/3.jpg"]
    with pytest.raises(InputError, match="there is no class 6"):
        training.images_of(6)


_FRAGMENTS = st.sampled_from(
    [
        "landmark_id",
        "category",
        "images",
        ",",
        "\n",
        '"',
        "7",
        "Louvre",
        "%C3%A9",
        "%",
        "\r",
        "\0",
        " ",
        "é",
        "-1",
    ]
    + ["9" * 30]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.lists(_FRAGMENTS, max_size=25), st.binary(max_size=40))
def test_hostile_files_give_one_clear_line(tmp_path: Path, fragments: list[str], tail: bytes) -> None:
    path = tmp_path / "hostile.csv"
    for start in (b"", b"landmark_id,category\n", b"landmark_id,images\n"):
        path.write_bytes(start + "".join(fragments).encode() + tail)
        for read in (read_categories, read_training_images, read_exclusion_list):
            try:
                read(path)
            except CairnError as error:
                assert "hostile.csv" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("benchmark: x\nplaces: []\nlandmarks: []\n", "it has no landmark"),
        ("benchmark: x\nplaces: [{name: P}]\nlandmarks: [{id: a, name: A, place: Q}]\n", "its place 'Q'"),
        ("benchmark: x\nplaces: [{name: P}]\nlandmarks: [{id: a, name: '()', place: P}]\n", "matches nothing"),
        ("benchmark: x\nplaces: [{name: P, nmae: Q}]\nlandmarks: [{id: a, name: A, place: P}]\n", "places.0.nmae"),
        ("[1, 2", "not YAML"),
        ("just text", "a mapping with benchmark"),
    ],
)  # fmt: skip
def test_damaged_landmark_lists_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "list.yaml").write_text(content, "utf-8")
    with pytest.raises(InputError, match=message):
        load_landmarks(str(tmp_path / "list.yaml"))


def test_an_unknown_list_names_those_that_exist() -> None:
    with pytest.raises(InputError, match="one of: roxford5k, rparis6k"):
        load_landmarks("roxford")
