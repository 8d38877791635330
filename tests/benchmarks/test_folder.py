"""A user's folder and CSV file: what is searched, what is relevant, and one clear line for every mistake."""

import csv
import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.benchmarks.folder import folder_notes, read_folder_benchmark
from cairn.benchmarks.structure import GroundTruth, Query, check_images, read_ground_truth, write_ground_truth
from cairn.errors import CairnError, ImageError, InputError, SourceError
from cairn.images.manifest import Entry, build_manifest, manifest_of
from tests.images.pictures import draw, encode

NAMES = ["database/a.jpg", "database/b.jpg", "database/c, d.jpg", "query/ä.jpg", "query/b.jpg"]


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("folder") / "images"
    for seed, name in enumerate(NAMES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encode(draw(seed, 48, 32)))
    return folder


def read(images: Path, text: str | bytes) -> tuple[list[Entry], GroundTruth]:
    truth = images.parent / "truth.csv"
    truth.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_folder_benchmark(images, truth)


def flags(entries: list[Entry]) -> dict[str, str]:
    return {entry.image_id: "g" * entry.gallery + "q" * entry.query for entry in entries}


def test_queries_are_not_searched_and_unnamed_images_are(images: Path) -> None:
    entries, truth = read(images, "query,image,relevance\nquery/b.jpg,database/b.jpg,positive\n")
    assert flags(entries) == {
        "database/a.jpg": "g",
        "database/b.jpg": "g",
        "database/c, d.jpg": "g",
        "query/b.jpg": "q",
        "query/ä.jpg": "g",
    }
    assert truth == GroundTruth(
        (Query("query/b.jpg", "query/b.jpg"),), {"query/b.jpg": {"database/b.jpg": "positive"}}
    )
    assert {entry.archive for entry in entries} == {str(images)}
    manifest = manifest_of(build_manifest(entries, Path()))
    check_images(truth, manifest.image_id)
    assert manifest.gallery_size == 4 and manifest.image_id[4] == "query/b.jpg"


def test_an_image_can_be_query_and_target(images: Path) -> None:
    entries, truth = read(
        images,
        "query,image,relevance\nquery/b.jpg,query/b.jpg,junk\nquery/b.jpg,query/ä.jpg,hard\nquery/ä.jpg,query/b.jpg,easy\n",
    )
    assert flags(entries)["query/b.jpg"] == flags(entries)["query/ä.jpg"] == "gq"
    assert truth.relevance == {
        "query/b.jpg": {"query/b.jpg": "junk", "query/ä.jpg": "hard"},
        "query/ä.jpg": {"query/b.jpg": "easy"},
    }
    assert folder_notes(entries, truth) == [
        "1 of 2 queries are in the gallery and not judged for themselves: each will find itself and count it "
        "as wrong; a line `query,query,junk` takes it out"
    ]


def test_boxes_splits_and_distractor_queries(images: Path) -> None:
    _, truth = read(
        images,
        "split,relevance,query,image,x1,y1,x2,y2\n"
        "val,easy,query/b.jpg,database/a.jpg,,,,\n"
        ",hard,query/b.jpg,database/b.jpg,1.5,2,30,31.5\n"
        "test,,query/ä.jpg,,,,,\n"
        ',easy,database/a.jpg,"database/c, d.jpg",0,0,10,10\n'
        ',easy,database/a.jpg,"database/c, d.jpg",10,0,48,32\n',
    )
    assert truth.queries == (
        Query("query/b.jpg", "query/b.jpg", (1.5, 2, 30, 31.5), None, "val"),
        Query("query/ä.jpg", "query/ä.jpg", None, None, "test"),
        Query("database/a.jpg#0,0,10,10", "database/a.jpg", (0, 0, 10, 10)),
        Query("database/a.jpg#10,0,48,32", "database/a.jpg", (10, 0, 48, 32)),
    )
    assert truth.is_distractor("query/ä.jpg")
    assert truth.relevance["query/b.jpg"] == {"database/a.jpg": "easy", "database/b.jpg": "hard"}


def test_text_queries(images: Path, tmp_path: Path) -> None:
    entries, truth = read(
        images,
        "query,image,relevance,text\n"
        'q1,database/a.jpg,positive,"a red door, ""ajar"""\n'
        "q1,database/b.jpg,positive,\n"
        "query/b.jpg,database/b.jpg,positive,\n"
        "q2,,,a bird\n",
    )
    assert truth.queries == (
        Query("q1", None, None, 'a red door, "ajar"'),
        Query("query/b.jpg", "query/b.jpg"),
        Query("q2", None, None, "a bird"),
    )
    assert flags(entries)["query/b.jpg"] == "q" and set(flags(entries).values()) == {"g", "q"}
    write_ground_truth(tmp_path / "truth", truth)
    assert read_ground_truth(tmp_path / "truth") == truth


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfquery,image,relevance\r\nquery/b.jpg,database/b.jpg,positive\r\n",
        b"Query , IMAGE,relevance\n\nquery/b.jpg , database/b.jpg, positive\n\n",
        b'"query","image","relevance"\n"./query/b.jpg","database/b.jpg","positive"',
        b"query,image,relevance,text,split\rquery/b.jpg,database/b.jpg,positive,,\r",
    ],
)
def test_the_ways_spreadsheets_write_csv(images: Path, text: bytes) -> None:
    _, truth = read(images, text)
    assert truth.relevance == {"query/b.jpg": {"database/b.jpg": "positive"}}


def test_an_archive_serves_as_a_folder(images: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name in NAMES:
            archive.write(images / name, name)
    (tmp_path / "truth.csv").write_text(
        "query,image,relevance,x1,y1,x2,y2\nquery/b.jpg,database/b.jpg,easy,0,0,4,4\n"
    )
    entries, truth = read_folder_benchmark(Path("images.zip"), Path("truth.csv"), tmp_path)
    assert (
        truth.queries[0].box == (0, 0, 4, 4) and entries[0].archive == "images.zip" and entries[0].offset > 0
    )


HEADER = "query,image,relevance"
GOOD = "query/b.jpg,database/b.jpg,positive"
BOXES = f"{HEADER},x1,y1,x2,y2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: no column query; columns are query,image,relevance"),
        (f"{HEADER}\n", ": no query; at least one line"),
        (f"{HEADER}\n\n  \n", ": no query"),
        ("query,image\na,b\n", ":1: no column relevance"),
        ("query,image,relevance,grade\n", ":1: unknown column 'grade'"),
        (f"{HEADER},image\n", ":1: column image occurs twice"),
        (f"{HEADER},x1,y1\n", ":1: a box needs all four columns x1,y1,x2,y2"),
        ("query;image;relevance\n", ":1: fields are separated by semicolons"),
        ("query\timage\trelevance\n", ":1: fields are separated by tabs"),
        (f"{HEADER}\n{GOOD}\n{GOOD},x\n", ":3: 4 fields; the header has 3"),
        (f"{HEADER}\n{GOOD}\nquery/b.jpg\n", ":3: 1 fields; the header has 3"),
        (
            f"{HEADER}\nquery/bb.jpg,database/b.jpg,easy\n",
            r":2: no image 'query/bb.jpg'; did you mean 'query/b.jpg'\?",
        ),
        (
            f"{HEADER}\n{GOOD}\nquery/b.jpg,a.jpg,easy\n",
            r":3: no image 'a.jpg'; did you mean 'database/a.jpg'\?",
        ),
        (f"{HEADER}\nquery\\Ä.JPG,database/b.jpg,easy\n", "did you mean 'query/ä.jpg'"),
        (f"{HEADER}\nzzzzzzzzzzzz,database/b.jpg,easy\n", ":2: no image 'zzzzzzzzzzzz' in the folder"),
        (
            f"{HEADER}\nquery/b.jpg,database/b.jpg,good\n",
            ":2: relevance is 'good'; allowed: positive, easy, hard, junk",
        ),
        (f"{HEADER}\nquery/b.jpg,database/b.jpg,\n", ":2: relevance is ''; allowed"),
        (f"{HEADER}\nquery/b.jpg,,easy\n", ":2: relevance is 'easy' but image is empty"),
        (f"{HEADER}\n,database/b.jpg,easy\n", ":2: query is empty"),
        (f"{HEADER}\n{GOOD}\n\n{GOOD}\n", "query/b.jpg' and image 'database/b.jpg' are judged on line 2 too"),
        (f"{HEADER}\n{GOOD}\nquery/b.jpg,database/b.jpg,junk\n", ":3: .* line 2 as positive, here as junk"),
        (
            f"{HEADER}\nquery/b.jpg,,\nquery/b.jpg,,\n",
            ":3: query 'query/b.jpg' without match stands on line 2",
        ),
        (f"{HEADER}\nquery/b.jpg,,\n{GOOD}\n", ":3: query 'query/b.jpg' has lines with and without an image"),
        (f"{BOXES}\n{GOOD},1,2,3,\n", ":2: box '1,2,3,' is not four numbers"),
        (f"{BOXES}\n{GOOD},1,2,3,x\n", ":2: box '1,2,3,x' is not four numbers"),
        (f"{BOXES}\n{GOOD},1,2,nan,4\n", ":2: box .* must be four finite numbers"),
        (f"{BOXES}\n{GOOD},5,2,5,4\n", ":2: box .* must have x1 < x2"),
        (f"{BOXES}\n{GOOD},0,0,49,32\n", r":2: query query/b.jpg: box .* leaves its image of 48 × 32 pixels"),
        (f"{BOXES}\n{GOOD},1.1,0,1.2,32\n", ":2: query query/b.jpg: box .* holds no pixel"),
        (
            f"{BOXES}\n{GOOD},0,0,4,4\nquery/b.jpg,database/a.jpg,easy,0,0,5,5\nquery/b.jpg,query/ä.jpg,easy,,,,\n",
            ":4: query 'query/b.jpg' is asked with 2 boxes; this line needs one",
        ),
        (
            f"{HEADER},split\n{GOOD},a\nquery/b.jpg,database/a.jpg,easy,b\n",
            ":3: .* in split 'b', before it was in 'a'",
        ),
        (
            f"{HEADER},text\n{GOOD},a\nquery/b.jpg,database/a.jpg,easy,b\n",
            ":3: query 'query/b.jpg' has another text",
        ),
        (f"{BOXES},text\n{GOOD},0,0,4,4,door\n", ":2: query 'query/b.jpg' is a text and cannot have a box"),
        (f'{HEADER}\n"query/b.jpg"x,database/b.jpg,easy\n', ":2: not CSV"),
        (f'{HEADER}\n{GOOD}\n"query/b.jpg\n', ":3: not CSV"),
        (f'{HEADER}\n"query/\nb.jpg",database/b.jpg,easy\n', ":2: query .* holds a control character"),
        (f"{HEADER}\n{'x' * 200_000},a,easy\n", ":2: not CSV"),
        (f"{HEADER}\n{GOOD}\nquery/ä.jpg,database/b.jpg,easy\n".encode("latin-1"), ":3: not UTF-8"),
        (f"{HEADER}\n{GOOD}\n".encode("utf-16"), ":1: not UTF-8"),
    ],
)
def test_mistakes_are_named_with_file_and_line(images: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(images, text)
    assert str(caught.value).startswith(str(images.parent / "truth.csv")) and "\n" not in str(caught.value)


def test_wrong_folders(images: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text(f"{HEADER}\n{GOOD}\n")
    with pytest.raises(SourceError, match="nowhere: no such folder"):
        read_folder_benchmark(tmp_path / "nowhere", truth)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: no images; files with the endings \.bmp"):
        read_folder_benchmark(tmp_path / "empty", truth)
    with pytest.raises(InputError, match=r"missing\.csv: cannot be read \(No such file"):
        read_folder_benchmark(images, tmp_path / "missing.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_folder_benchmark(images, tmp_path / "empty")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/out.jpg").symlink_to(images / NAMES[0])
    with pytest.raises(InputError, match="a symbolic link that leaves"):
        read_folder_benchmark(tmp_path / "links", truth)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/a.jpg").write_bytes(encode(draw(0)))
    truth.write_text(f"{HEADER}\na.jpg,,\n")
    with pytest.raises(InputError, match="nothing to search"):
        read_folder_benchmark(tmp_path / "one", truth)
    (tmp_path / "one/b.jpg").write_bytes(encode(draw(0))[:-9])
    truth.write_text(f"{BOXES}\nb.jpg,a.jpg,easy,0,0,4,4\n")
    with pytest.raises(ImageError, match=r"b\.jpg in .*one: truncated JPEG"):
        read_folder_benchmark(tmp_path / "one", truth)


def test_notes_on_junk_and_mixed_grades(images: Path) -> None:
    entries, truth = read(
        images, f"{HEADER}\n{GOOD}\nquery/b.jpg,database/a.jpg,hard\nquery/ä.jpg,database/a.jpg,junk\n"
    )
    assert folder_notes(entries, truth) == [
        "1 queries have junk only and nothing to find",
        "relevance mixes positive with easy and hard",
    ]
    assert folder_notes(*read(images, f"{HEADER}\n{GOOD}\n")) == []


def test_notes_on_texts_and_on_nothing_to_score(images: Path) -> None:
    rows = f"{HEADER},text\n{GOOD},\nq1,database/a.jpg,positive,a door\nq2,,,a bird\n"
    assert folder_notes(*read(images, rows)) == [
        "2 of 3 queries are texts: they need a system whose encoder has a text tower"
    ]
    nothing = "every query is one without match: there is nothing to score"
    assert folder_notes(*read(images, f"{HEADER}\nquery/b.jpg,,\n")) == [nothing]
    assert folder_notes(*read(images, f"{HEADER}\nquery/b.jpg,database/a.jpg,junk\n")) == [nothing]


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x07", "\t", "\n", "\x85"])
@pytest.mark.parametrize("column", ["query", "image", "split", "text", "grade"])
def test_control_characters_are_refused(images: Path, column: str, character: str) -> None:
    row = {"query": "q1", "image": "database/a.jpg", "relevance": "easy", "text": "a door", "split": "val"}
    for name in row:
        if name == column or (column, name) == ("grade", "relevance"):
            row[name] = f"x{character}y"
    text = io.StringIO()
    csv.writer(text).writerows([row, row.values()])
    with pytest.raises(InputError, match=r"truth\.csv:2: ") as caught:
        read(images, text.getvalue())
    assert character not in str(caught.value)


def test_long_names_and_odd_paths_in_errors(images: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no image 'x{119}…'") as caught:
        read(images, f"{HEADER}\n{'x' * 9999},database/a.jpg,easy\n")
    assert len(str(caught.value)) < 400
    odd = tmp_path / "tr\x1b[31m\nuth.csv"
    odd.write_text("nothing\n")
    with pytest.raises(InputError, match=r"tr\\x1b\[31m\\nuth\.csv:1: no column query"):
        read_folder_benchmark(images, odd)


def test_a_fifo_in_place_of_the_table_is_not_opened(images: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "truth.csv")
    with pytest.raises(InputError, match=r"truth\.csv: cannot be read \(not a file\)"):
        read_folder_benchmark(images, tmp_path / "truth.csv")


field = st.sampled_from(
    [*NAMES, "", "q1", "positive", "easy", "junk", "0", "4", "40", "nan", "-1e400", "a door"]
) | (st.text(max_size=6))
header = st.permutations([*HEADER.split(","), "x1", "y1", "x2", "y2", "text", "split"]) | st.lists(
    field, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(header, st.lists(st.lists(field, max_size=10), max_size=6))
def test_tables_of_anything(images: Path, columns, rows) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    check(images, text.getvalue().encode(errors="replace"))


@st.composite
def plausible(draw_):
    names = st.sampled_from(NAMES)
    rows = draw_(
        st.lists(
            st.tuples(
                names,
                names | st.just(""),
                st.sampled_from(["positive", "easy", "hard", "junk", ""]),
                st.sampled_from(
                    [("", "", "", ""), ("0", "0", "8", "8"), ("1", "1", "48.4", "32"), ("9", "9", "90", "90")]
                ),
                st.sampled_from(["", "", "a door"]),
            ),
            min_size=1,
            max_size=5,
        )
    )
    return [[query, image, grade, *box, text] for query, image, grade, box, text in rows]


@settings(max_examples=150, deadline=None)
@given(plausible())
def test_plausible_tables(images: Path, rows) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([[*HEADER.split(","), "x1", "y1", "x2", "y2", "text"], *rows])
    check(images, text.getvalue().encode())


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 80))
def test_bytes_of_anything(images: Path, noise: bytes, place: int) -> None:
    text = f"{BOXES}\n{GOOD},0,0,4,4\n".encode()
    check(images, text[:place] + noise + text[place:])


def check(images: Path, text: bytes) -> None:
    """Either one clear line, or a benchmark that holds together."""
    try:
        entries, truth = read(images, text)
    except CairnError as error:
        assert "\n" not in str(error) and str(error)
        str(error).encode()
        return
    assert truth.queries and any(entry.gallery for entry in entries)
    check_images(truth, [entry.image_id for entry in entries])
    gallery = {entry.image_id for entry in entries if entry.gallery}
    assert all(judged.keys() <= gallery for judged in truth.relevance.values())
    folder_notes(entries, truth)
