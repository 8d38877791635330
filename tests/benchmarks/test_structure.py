"""The common structure of benchmarks: it survives the disk, and nothing wrong gets into it."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.benchmarks.structure import (
    ALL_GRADES,
    GroundTruth,
    Query,
    check_images,
    read_ground_truth,
    write_ground_truth,
)
from cairn.errors import ArtifactError, CairnError, InputError

QUERIES = (
    Query("q1", "a.jpg", (1.5, 2.0, 30.0, 40.25), None, "val"),
    Query("q0", "b.jpg"),
    Query("words", None, None, "a red door, “quoted”", "test"),
)
TRUTH = GroundTruth(
    QUERIES,
    {"q1": {"x.jpg": "easy", "b.jpg": "junk"}, "words": {"a.jpg": "positive"}},
    {"q1": {"landmark": "tower"}, "words": {"landmark": "door", "colour": "red"}},
)


def test_round_trip(tmp_path: Path) -> None:
    write_ground_truth(tmp_path / "truth", TRUTH)
    assert read_ground_truth(tmp_path / "truth") == TRUTH
    assert sorted(file.name for file in (tmp_path / "truth").iterdir()) == [
        "queries.parquet",
        "relevance.parquet",
    ]


def test_bytes_do_not_depend_on_the_order_of_the_mappings(tmp_path: Path) -> None:
    other = GroundTruth(
        QUERIES,
        {"words": {"a.jpg": "positive"}, "q1": {"b.jpg": "junk", "x.jpg": "easy"}},
        {"words": {"colour": "red", "landmark": "door"}, "q1": {"landmark": "tower"}},
    )
    write_ground_truth(tmp_path / "one", TRUTH)
    write_ground_truth(tmp_path / "two", other)
    for name in ("queries.parquet", "relevance.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_queries_keep_their_order_and_distractors_are_known() -> None:
    assert [query.query_id for query in TRUTH.queries] == ["q1", "q0", "words"]
    assert TRUTH.is_distractor("q0") and not TRUTH.is_distractor("q1")
    assert TRUTH.images("q1", "easy", "hard") == ["x.jpg"]
    assert TRUTH.images("q1") == ["x.jpg", "b.jpg"]
    assert TRUTH.attribute_names() == ("colour", "landmark")


@pytest.mark.parametrize(
    ("queries", "relevance", "attributes", "message"),
    [
        ((Query("q", "a"), Query("q", "b")), {}, {}, "query q occurs 2 times"),
        ((Query("", "a"),), {}, {}, "empty id"),
        ((Query("q"),), {}, {}, "query q has neither an image nor a text"),
        ((Query("q", None, (0, 0, 1, 1), "text"),), {}, {}, "query q has a box but no image"),
        ((Query("q", "a", (5, 0, 5, 1)),), {}, {}, r"query q: box \(5, 0, 5, 1\) must have x1 < x2"),
        ((Query("q", "a", (0, 0, float("nan"), 1)),), {}, {}, "finite"),
        (
            (Query("q", "a"),),
            {"q": {"a": "good"}},
            {},
            "query q: image a has the grade 'good'; allowed: positive",
        ),
        ((Query("q", "a"),), {"p": {"a": "easy"}}, {}, "relevance is given for query p"),
        ((Query("q", "a"),), {}, {"p": {"k": "v"}}, "attributes are given for query p"),
        ((Query("q", "a"),), {}, {"q": {"text": "v"}}, "may not be called text"),
    ],
)
def test_wrong_structures_are_refused(queries, relevance, attributes, message) -> None:
    with pytest.raises(InputError, match=message):
        GroundTruth(queries, relevance, attributes)


def test_images_must_be_known() -> None:
    check_images(TRUTH, ["a.jpg", "b.jpg", "x.jpg"])
    with pytest.raises(InputError, match=r"query q0: image b.jpg is not in the manifest"):
        check_images(GroundTruth((QUERIES[1],), {}), ["a.jpg"])
    with pytest.raises(InputError, match=r"query q1: judged image x.jpg"):
        check_images(TRUTH, ["a.jpg", "b.jpg"])


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"queries\.parquet: no such file"):
        read_ground_truth(tmp_path / "nowhere")
    write_ground_truth(tmp_path / "truth", TRUTH)
    relevance = tmp_path / "truth" / "relevance.parquet"
    whole = relevance.read_bytes()
    relevance.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactError, match=r"relevance\.parquet: not a readable Parquet file"):
        read_ground_truth(tmp_path / "truth")
    pq.write_table(pa.table({"query_id": ["q1"], "image_id": ["a"]}), relevance)
    with pytest.raises(ArtifactError, match="no column grade"):
        read_ground_truth(tmp_path / "truth")
    pq.write_table(
        pa.table({"query_id": ["q1", "q1"], "image_id": ["a", "a"], "grade": ["easy", "hard"]}), relevance
    )
    with pytest.raises(InputError, match="query q1: image a is judged twice"):
        read_ground_truth(tmp_path / "truth")
    pq.write_table(
        pa.table({"query_id": ["q1"], "image_id": ["a"], "grade": pa.array([None], pa.string())}), relevance
    )
    with pytest.raises(ArtifactError, match="column grade has 1 nulls"):
        read_ground_truth(tmp_path / "truth")


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
boxes = st.none() | st.tuples(
    st.floats(0, 10), st.floats(0, 10), st.floats(11, 1e6, width=64), st.floats(11, 1e6, width=64)
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        names,
        st.tuples(
            names, boxes, st.none() | names, st.dictionaries(names, st.sampled_from(ALL_GRADES), max_size=5)
        ),
        max_size=6,
    )
)
def test_any_valid_truth_survives_the_disk(tmp_path_factory, rows) -> None:
    truth = GroundTruth(
        tuple(Query(query, image, box, None, split) for query, (image, box, split, _) in rows.items()),
        {query: judged for query, (*_, judged) in rows.items() if judged},
    )
    path = tmp_path_factory.mktemp("truth") / "truth"
    write_ground_truth(path, truth)
    assert read_ground_truth(path) == truth


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_flipped_bytes_never_end_in_anything_but_a_cairn_error(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("truth") / "truth"
    write_ground_truth(path, TRUTH)
    file = path / data.draw(st.sampled_from(["queries.parquet", "relevance.parquet"]))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content))
    try:
        read_ground_truth(path)
    except CairnError as error:
        assert "\n" not in str(error)


def test_attributes_of_images_come_back_and_are_written_only_where_there_are_any(tmp_path):
    queries = (Query("q", "i"),)
    bare = GroundTruth(queries, {"q": {"p": "positive"}})
    write_ground_truth(tmp_path / "bare", bare)
    assert not (tmp_path / "bare" / "images.parquet").exists()
    images = {"p": {"scale": "0.25", "clutter": "3"}, "a": {"scale": "1.0"}}
    full = GroundTruth(queries, {"q": {"p": "positive"}}, {}, images)
    for name in ("one", "two"):
        write_ground_truth(tmp_path / name, full)
    assert read_ground_truth(tmp_path / "one").image_attributes == images
    assert read_ground_truth(tmp_path / "bare").image_attributes == {}
    same = [(tmp_path / name / "images.parquet").read_bytes() for name in ("one", "two")]
    assert same[0] == same[1]
    with pytest.raises(InputError, match="may not be called image_id"):
        GroundTruth(queries, {}, {}, {"p": {"image_id": "x"}})
