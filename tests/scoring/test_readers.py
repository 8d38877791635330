"""Files that are truncated, re-encoded, mislabelled or hostile: one line with file, line and what was expected."""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cairn.errors import CairnError, InputError, UsageError
from cairn.scoring import disc21, files, forb, gldv2, ilias, inquire, instre, revisitop
from pipelines.commands.score import app

GND = {
    "imlist": [f"image_{i}" for i in range(6)],
    "qimlist": ["query_0", "query_1"],
    "gnd": [
        {"bbx": [0.0, 0, 9, 9], "easy": [1], "hard": [3], "junk": [0]},
        {"bbx": [0.0, 0, 9, 9], "easy": [2, 4], "hard": [], "junk": []},
    ],
}
QUERY = "query_id,query_text,supercategory,category,iconic_group\n"
VALID = {
    "revisitop": {
        "gnd.json": json.dumps(GND),
        "gnd.pkl": pickle.dumps(GND | {"gnd": [{k: np.array(v) for k, v in e.items()} for e in GND["gnd"]]}),
        "scores.npy": np.arange(12, dtype=np.float32).reshape(2, 6) % 5,
        "ranks.npy": np.stack([np.arange(6), np.arange(6)[::-1]], axis=1),
    },
    "gldv2": {
        "submission.csv": "id,images\na,x y\nb,z\n",
        "solution.csv": "id,images,Usage\na,y,Public\nb,z x,Private\nc,None,Ignored\n",
    },
    "forb": {
        "logos_gt.ndjson": '{"query_id": 1, "groundtruth_ids": [1], "difficulty": "easy"}\n'
        '{"query_id": 2, "groundtruth_ids": [], "difficulty": "hard"}\n',
        "logos_all.ndjson": '{"query_id": 1, "candidate_db_ids": [27371, 4], "global_scores": [0.5, 0.25]}\n'
        '{"query_id": 2, "candidate_db_ids": [], "global_scores": []}\n',
        "logos_oods.ndjson": '{"query_id": 1, "candidate_db_ids": [5], "global_scores": [0.1]}\n',
    },
    "disc21": {
        "predictions.csv": "query_id,reference_id,score\nQ1,R1,0.9\nQ1,R2,0.5\nQ2,R1,0.4\n",
        "truth.csv": "query_id,reference_id\nQ1,R1\nQ2,\n",
    },
    "inquire": {
        "queries.csv": QUERY + '1,"a bird, flying",S,C,G\n2,a fish,S,D,G\n',
        "annotations.csv": "query_id,image_path\n1,a.jpg\n2,b.jpg\n9,c.jpg\n",
        "run.csv": "query_id,image_path,score\n1,a.jpg,0.5\n1,b.jpg,0.5\n2,c.jpg,1e-3\n",
    },
    "inquire-rerank": {
        "rerank.csv": "query_id,image_path,relevant\n1,a.jpg,1\n1,b.jpg,0\n",
        "run.csv": "query_id,image_path,score\n1,a.jpg,0.5\n1,b.jpg,0.5\n",
    },
    "ilias": {
        "image_ids/image_query_ids.txt": "a/q,1,2,3,4\nb/q,1,2,3,4\n",
        "image_ids/text_query_ids.txt": "a/t\nb/t\n",
        "image_ids/positive_ids.txt": "a/p0,0.05,10\na/p1,0.5,60\nb/p0,0.1,20\n",
        "s.json": '{"a/q": {"y/0": 0.5, "a/p0": 0.5},\n "b/q": {"y/1": 0.25, "b/p0": 0.125}}\n',
        "s.pkl": pickle.dumps(
            {
                "query_ids": ["a/q"],
                "db_ids": ["a/p0", "a/p1", "b/p0", "y/0"],
                "similarities": np.array([[0.5, 0.25]], np.float32),
                "ranks": np.array([[3, 0]]),
            }
        ),
        "taxonomy.json": '{"toy": {"car": {"x": ["a"], "y": ["b"]}}}\n',
    },
}
RUNS = {
    "revisitop": [
        lambda f: revisitop.score(f / "gnd.json", scores=f / "scores.npy"),
        lambda f: revisitop.score(f / "gnd.pkl", ranks=f / "ranks.npy"),
    ],
    "gldv2": [lambda f: gldv2.score(f / "submission.csv", f / "solution.csv")],
    "forb": [lambda f: forb.score(f, f, ["logos"])],
    "disc21": [lambda f: disc21.score(f / "predictions.csv", f / "truth.csv")],
    "inquire": [lambda f: inquire.score(f / "queries.csv", f / "annotations.csv", f / "run.csv", 2)],
    "inquire-rerank": [lambda f: inquire.score_rerank(f / "rerank.csv", f / "run.csv")],
    "ilias": [
        lambda f: ilias.score(f, f / "s.json", 2, f / "taxonomy.json"),
        lambda f: ilias.score(f, f / "s.pkl", 2, f / "taxonomy.json"),
    ],
}


def write(folder: Path, protocol: str, changes=None) -> Path:
    for name, content in {**VALID[protocol], **(changes or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def outcome(protocol: str, folder: Path):
    return [run(folder).rows for run in RUNS[protocol]]


@pytest.mark.parametrize("protocol", RUNS)
def test_the_valid_files_score(tmp_path, protocol):
    for rows in outcome(protocol, write(tmp_path, protocol)):
        assert rows and any(row.value for row in rows)


def refused(tmp_path, protocol, changes, message):
    folder = write(tmp_path, protocol, changes)
    with pytest.raises(CairnError, match=message) as caught:
        outcome(protocol, folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


TABLES = {
    "gldv2": ("submission.csv", "solution.csv"),
    "disc21": ("predictions.csv", "truth.csv"),
    "inquire": ("queries.csv", "annotations.csv", "run.csv"),
    "inquire-rerank": ("rerank.csv", "run.csv"),
}
EACH_TABLE = [(protocol, name) for protocol, names in TABLES.items() for name in names]


@pytest.mark.parametrize(("protocol", "name"), EACH_TABLE)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.encode("utf-16"), r":1: not UTF-8 text"),
        (lambda t: t.encode("utf-16-le"), r":1: holds a NUL character"),
        (lambda t: t.replace("\n", "\né,", 2).encode("latin-1"), r":2: not UTF-8 text \(byte 0xe9\)"),
        (lambda t: t.replace("\n", "\n\0", 3), r":2: holds a NUL character"),
        (lambda t: t.replace("\n", '\n"', 1), r":\d: (not a CSV record|a quoted field|\d fields)"),
        (lambda t: t.replace("\n", "\r"), r":1: not a CSV record"),
        (lambda t: t.replace(",", ";"), r":1: "),
        (lambda t: t.replace(",", "\t"), r":1: "),
        (lambda t: t.split("\n", 1)[0] + "\nonly\n", r":2: 1 fields; expected"),
        (lambda t: t + "a,b,c,d,e,f,g,h\n", r":\d: 8 fields; expected"),
        (lambda t: "", r": empty; expected"),
        (lambda t: "\n\n", r": empty; expected"),
        (
            lambda t: t.replace("_id", "", 1).replace("images", "pictures").replace("relevant", "good"),
            r":1: ",
        ),
        (lambda t: t.replace(",", ",score,", 1), r":[12]: "),
    ],
)
def test_tables(tmp_path, protocol, name, change, message):
    refused(tmp_path, protocol, {name: change(VALID[protocol][name])}, re.escape(name) + message)


@pytest.mark.parametrize(("protocol", "name"), EACH_TABLE)
def test_tables_of_other_systems_mean_the_same(tmp_path, protocol, name):
    expected = outcome(protocol, write(tmp_path, protocol))
    text = VALID[protocol][name]
    for same in ("\ufeff" + text, text.replace("\n", "\r\n"), text.replace("\n", "\n\n"), text.rstrip("\n")):
        assert outcome(protocol, write(tmp_path, protocol, {name: same})) == expected


LINES = [
    ("gldv2", "submission.csv", "id,images\na,x\na,y\n", "submission.csv:3: test image a occurs twice"),
    ("gldv2", "submission.csv", "id,images\nq,x\n", "submission.csv:2: test image 'q' is not in the solution"),
    ("gldv2", "submission.csv", "id,images\n,x\n", "submission.csv:2: the id is empty"),
    ("gldv2", "solution.csv", "id,images,Usage\na,x,public\n", "solution.csv:2: test image a: Usage is 'public'"),
    ("gldv2", "solution.csv", "id,images,Usage\na,x x,Public\n", "solution.csv:2: test image a: an image is listed"),
    ("gldv2", "solution.csv", "id,images,Usage\n", "solution.csv: no test image"),
    ("disc21", "predictions.csv", "Q1,R1,nan\n", "predictions.csv:1: query Q1, reference R1: score 'nan' is not"),
    ("disc21", "predictions.csv", "Q1,R1,0\nQ1,R2,-inf\n", "csv:2: query Q1, reference R2: score '-inf' is not"),
    ("disc21", "predictions.csv", "Q1,R1,1e999\n", "score '1e999' is not a finite number"),
    ("disc21", "predictions.csv", "Q1,R1,1_0\n", "score '1_0' is not a finite number"),
    ("disc21", "predictions.csv", "Q1,R1,٣\n", "score '٣' is not a finite number"),
    ("disc21", "predictions.csv", "Q1,R1,\n", "score '' is not a finite number"),
    ("disc21", "predictions.csv", "Q1,R1,0\n\nQ1,R1,1\n", "csv:3: query Q1, reference R1 is predicted twice"),
    ("disc21", "predictions.csv", "R1,Q1,0.5\n", "csv:1: query 'R1' is not in the ground truth"),
    ("disc21", "predictions.csv", "reference_id,query_id,score\n", "csv:1: the header is reference_id,query_id"),
    ("disc21", "truth.csv", "Q1,R1\nQ1,\n", "truth.csv:2: query Q1, reference (none): contradicts"),
    ("disc21", "truth.csv", "Q1,R1\nQ1,R1\n", "truth.csv:2: query Q1, reference R1: contradicts or repeats"),
    ("disc21", "truth.csv", "Q1,\nQ1,R1\n", "truth.csv:2: query Q1, reference R1: contradicts"),
    ("disc21", "truth.csv", ",R1\n", "truth.csv:1: the query id is empty"),
    ("inquire", "queries.csv", QUERY + "1,x,S,C,G\n1,y,S,C,G\n", "queries.csv:3: query 1 occurs twice"),
    ("inquire", "queries.csv", QUERY, "queries.csv: no query"),
    ("inquire", "queries.csv", "query_id,query_text\n1,x\n", "csv:1: the column supercategory is missing"),
    ("inquire", "queries.csv", "query_id," + QUERY, "csv:1: the column 'query_id' occurs twice"),
    ("inquire", "run.csv", "query_id,image_path,score\n3,a,0\n", "csv:2: query '3', image a: the query does not"),
    ("inquire", "run.csv", "query_id,image_path,score\n1,a,0\n1,a,1\n", "csv:3: query 1, image a: occurs twice"),
    ("inquire", "run.csv", "query_id,image_path,score\n1,a,NaN\n", "csv:2: query 1, image_path a: score 'NaN'"),
    ("inquire-rerank", "run.csv", "query_id,image_path,score\n1,a.jpg,0\n", "query 1: image b.jpg has no score"),
    ("inquire-rerank", "run.csv", "query_id,image_path,score\n1,c,0\n", "csv:2: query 1: image c is not among"),
    ("inquire-rerank", "rerank.csv", "query_id,image_path,relevant\n1,a,2\n", "csv:2: relevant is '2'; expected 0"),
    ("inquire-rerank", "rerank.csv", "query_id,image_path,relevant\n1,a,1\n1,a,1\n", "csv:3: query 1, image a: occ"),
    ("inquire-rerank", "rerank.csv", "query_id,relevant\n1,1\n", "none of the columns image_path, inat24"),
    ("ilias", "image_ids/positive_ids.txt", "a/p0,0.05\n", "positive_ids.txt:1: 'a/p0,0.05'; expected id,scale"),
    ("ilias", "image_ids/positive_ids.txt", "a/p0,nan,1\n", "expected id,scale,clutter"),
    ("ilias", "image_ids/positive_ids.txt", "a/p,0,1\na/p,0,1\n", "txt:2: positive a/p occurs twice"),
    ("ilias", "image_ids/positive_ids.txt", "c/p,0,1\n", "txt:1: positive c/p: its instance has no text query"),
    ("ilias", "image_ids/image_query_ids.txt", "c/q,0\n", "query c/q: its instance has no text query"),
    ("ilias", "image_ids/text_query_ids.txt", "a/t\na/t\n", "txt:2: a/t occurs twice (line 1 too)"),
    ("ilias", "image_ids/text_query_ids.txt", "hello\n", "txt:1: 'hello'; expected an id like"),
    ("ilias", "s.json", '{"a/x": {}}', "s.json: query 'a/x' does not exist"),
    ("ilias", "s.json", '{"a/q": {"a/p9": 1}}', "query a/q: image a/p9 is neither a positive nor a distractor"),
    ("ilias", "s.json", '{"a/q": {"y/0": NaN}}', "s.json: query a/q, image y/0: the similarity nan is not finite"),
    ("ilias", "s.json", '{"a/q": {"y/0": 1%s}}' % ("0" * 400), "query a/q, image y/0: the similarity inf"),
    ("ilias", "s.json", '{"a/q": {"y/0": "1"}}', "s.json: query a/q, image y/0: '1' is not a number"),
    ("ilias", "s.json", '{"a/q": {"y/0": 1, "y/0": 2}}', "s.json: the key 'y/0' is given twice"),
    ("ilias", "s.json", '{"a/q": {}, "a/q": {}}', "s.json: the key 'a/q' is given twice"),
    ("ilias", "s.json", '{"a/q": [1]}', "s.json: query a/q: expected {image: similarity}"),
    ("ilias", "s.json", "[]", "s.json: expected {query: {image: similarity}}"),
    ("ilias", "s.json", "{}", "s.json: no query of the dataset is in it"),
    ("ilias", "s.json", '{"a/q":\n {"y/0": 0.5', "s.json:2: not JSON"),
    ("ilias", "s.json", "[" * 100_000, "s.json: JSON nested too deeply"),
    ("ilias", "s.json", "1" * 5000, "s.json: not JSON that can be read"),
    ("ilias", "taxonomy.json", '{"toy": ["a"]}', "taxonomy.json: expected {category: {subcategory"),
    ("ilias", "taxonomy.json", '{"toy": {"car": {"x": "ab"}}}', "taxonomy.json: expected {category: {subcategory"),
    ("ilias", "taxonomy.json", '{"toy": {"car": {"x": ["a"]}}}', "the instance of query b/q is not in it"),
    ("revisitop", "gnd.json", "[]", "gnd.json: a list was found; expected imlist, qimlist and gnd"),
    ("revisitop", "gnd.json", "{}", "gnd.json: the list 'imlist' is missing"),
    ("revisitop", "gnd.pkl", b"cos\nsystem\n(S'true'\ntR.", "gnd.pkl: refused pickle: it names os.system"),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "name", "content", "message"), LINES)
def test_lines(tmp_path, protocol, name, content, message):
    refused(tmp_path, protocol, {name: content}, re.escape(message))


def record(**changes):
    return (
        json.dumps({"query_id": 1, "candidate_db_ids": [1, 2], "global_scores": [0.5, 0.4], **changes}) + "\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("logos_all.ndjson", record(), "logos_all.ndjson: query 2 has no record"),
        ("logos_all.ndjson", record() + record(), "logos_all.ndjson:2: query 1 occurs twice"),
        ("logos_all.ndjson", record(query_id=7), "logos_all.ndjson:1: query 7 is not in logos_gt.ndjson"),
        ("logos_all.ndjson", record(query_id="1"), "logos_all.ndjson:1: query_id is '1'; expected a whole"),
        ("logos_all.ndjson", record(query_id=True), "logos_all.ndjson:1: query_id is True; expected a whole"),
        (
            "logos_all.ndjson",
            record(global_scores=[0.5]),
            "logos_all.ndjson:1: query 1: global_scores must be",
        ),
        (
            "logos_all.ndjson",
            record(global_scores=[0.5, float("nan")]),
            "query 1, image 2: the score nan is not",
        ),
        ("logos_all.ndjson", record(global_scores=[10**400, 0]), "query 1, image 1: the score 1000"),
        (
            "logos_all.ndjson",
            record(global_scores=[None, 0]),
            "query 1, image 1: the score None is not finite",
        ),
        ("logos_all.ndjson", record(candidate_db_ids=[1, 1]), "query 1: image 1 is a candidate twice"),
        ("logos_all.ndjson", record(candidate_db_ids=[-1, 1]), "candidate_db_ids holds -1; ids start at 0"),
        (
            "logos_all.ndjson",
            record(candidate_db_ids="12"),
            "candidate_db_ids must be a list of whole numbers",
        ),
        ("logos_all.ndjson", record()[:-9], "logos_all.ndjson:1: not JSON"),
        ("logos_all.ndjson", "[1]\n", "logos_all.ndjson:1: a JSON object was expected, not a list"),
        (
            "logos_all.ndjson",
            '{"query_id": 1, "query_id": 2}\n',
            "ndjson:1: the key 'query_id' is given twice",
        ),
        ("logos_all.ndjson", b"\xff\xfe{\0", "logos_all.ndjson:1: not UTF-8 text"),
        (
            "logos_oods.ndjson",
            record(global_scores=[float("inf"), 0]),
            "logos_oods.ndjson:1: query 1, image 1",
        ),
        ("logos_gt.ndjson", "", "logos_gt.ndjson: no query"),
        (
            "logos_gt.ndjson",
            '{"query_id": 1, "groundtruth_ids": [0]}',
            "groundtruth_ids holds 0; ids start at 1",
        ),
        ("logos_gt.ndjson", '{"query_id": 1, "groundtruth_ids": [], "difficulty": "x"}', "difficulty 'x'"),
        ("logos_gt.ndjson", '{"query_id": 1}', "logos_gt.ndjson:1: query 1: groundtruth_ids must be a list"),
        ("all_database_images.txt", "x\n" * 9, "logos_all.ndjson:1: query 1: image 27371 does not exist"),
    ],
)
def test_forb_records(tmp_path, name, content, message):
    refused(tmp_path, "forb", {name: content}, re.escape(message))


def changed_gnd(**changes):
    data = json.loads(json.dumps(GND))
    entry = data["gnd"][1]
    for key, value in changes.items():
        if value is None:
            (entry if key in entry else data).pop(key)
        elif key in entry:
            entry[key] = value
        else:
            data[key] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"easy": None}, "query query_1 (gnd[1]): easy is missing; expected a list of image numbers"),
        ({"easy": [6]}, "query query_1 (gnd[1]): easy holds image 6; imlist has 0 to 5"),
        ({"easy": [-1]}, "query query_1 (gnd[1]): easy holds image -1; imlist has 0 to 5"),
        ({"easy": [1.5]}, "query query_1 (gnd[1]): easy holds 1.5; expected image numbers"),
        ({"easy": [True]}, "easy holds True; expected image numbers"),
        ({"easy": ["image_1"]}, "easy holds 'image_1'; expected image numbers"),
        ({"easy": 5}, "easy is a int; expected a list of image numbers"),
        ({"bbx": [1, 2, 3]}, "query query_1 (gnd[1]): bbx is [1, 2, 3]; expected four numbers"),
        ({"qimlist": ["query_0"]}, "gnd has 2 entries for 1 queries in qimlist"),
        ({"qimlist": [0, 1]}, "qimlist[0] is 0; expected an image name"),
        ({"imlist": None}, "the list 'imlist' is missing; expected imlist, qimlist and gnd"),
        ({"imlist": "abc"}, "the list 'imlist' is missing"),
        ({"gnd": [1, 2]}, "query query_0 (gnd[0]): expected easy, hard, junk, found a int"),
    ],
)
def test_revisitop_ground_truths(tmp_path, changes, message):
    refused(tmp_path, "revisitop", {"gnd.json": changed_gnd(**changes)}, re.escape(message))


def altered(array, place, value):
    array = array.astype(np.float32) if isinstance(value, float) else array.copy()
    array[place] = value
    return array


SCORES, RANKS = VALID["revisitop"]["scores.npy"], VALID["revisitop"]["ranks.npy"]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("scores.npy", altered(SCORES, (1, 4), np.nan), "query query_1, image image_4: the score is nan"),
        ("scores.npy", altered(SCORES, (0, 0), -np.inf), "query query_0, image image_0: the score is -inf"),
        ("scores.npy", np.pad(SCORES, ((0, 0), (0, 1)), constant_values=np.inf), "query query_0, image distractor 6"),
        ("scores.npy", SCORES.T, "shape (6, 2); expected scores [query, gallery] = (2, 6 or more with dist"),
        ("scores.npy", SCORES[:, :5], "shape (2, 5); expected scores"),
        ("scores.npy", SCORES[0], "with shape (6,); expected scores"),
        ("scores.npy", SCORES.astype(str), "expected scores [query, gallery]"),
        ("ranks.npy", RANKS.T, "expected image numbers [gallery, query] = (6 or more with distractors, 2)"),
        ("ranks.npy", RANKS.astype(float), "expected image numbers [gallery, query]"),
        ("ranks.npy", altered(RANKS, (2, 1), 6), "query query_1, rank 2: image 6 does not exist; expected 0 to 5"),
        ("ranks.npy", altered(RANKS, (2, 1), -1), "query query_1, rank 2: image -1 does not exist"),
        ("ranks.npy", altered(RANKS, (2, 1), 0), "query query_1: image image_0 (0) is ranked twice"),
    ],
)  # fmt: skip
def test_revisitop_matrices(tmp_path, name, array, message):
    refused(tmp_path, "revisitop", {name: array}, re.escape(message))


def ilias_pickle(**changes):
    data = pickle.loads(VALID["ilias"]["s.pkl"]) | changes
    return {"s.pkl": pickle.dumps({key: value for key, value in data.items() if value is not None})}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": None}, "expected a dict with query_ids, db_ids, similarities, ranks"),
        ({"query_ids": ["c/q"]}, "query 'c/q' does not exist"),
        ({"query_ids": "a/q"}, "query_ids must be a list of ids"),
        ({"query_ids": ["a/q", "a/q"]}, "a query occurs twice in query_ids"),
        ({"query_ids": ["a/q", "b/q"]}, "similarities must have one row for each of the 2 queries"),
        ({"db_ids": ["a/p0", "a/p1", "a/p0", "y"]}, "an image occurs twice in db_ids"),
        ({"db_ids": ["a/p0", "a/p9", "b/p0", "y"]}, "image a/p9 is neither a positive nor a distractor"),
        ({"ranks": np.array([[3, 4]])}, "query a/q: image 4 does not exist in db_ids"),
        ({"ranks": np.array([[3, -1]])}, "query a/q: image -1 does not exist in db_ids"),
        ({"ranks": np.array([[3, 3]])}, "query a/q: an image is ranked twice"),
        ({"ranks": np.array([[3]])}, "query a/q: similarities and ranks must be numbers, as many of each"),
        ({"ranks": [["x", "y"]]}, "query a/q: ranks must be a list of numbers"),
        ({"ranks": [[[3, 0]]]}, "query a/q: ranks must be a list of numbers"),
        ({"similarities": np.array([[0.5, np.nan]])}, "query a/q, image a/p0: the similarity is nan"),
        ({"similarities": [0.5]}, "query a/q: similarities must be a list of numbers"),
    ],
)
def test_ilias_pickles(tmp_path, changes, message):
    refused(tmp_path, "ilias", ilias_pickle(**changes), re.escape(message))


@pytest.mark.parametrize("protocol", RUNS)
def test_missing_and_unreadable_files(tmp_path, protocol):
    for number, name in enumerate(VALID[protocol]):
        folder = write(tmp_path / f"missing{number}", protocol)
        (folder / name).unlink()
        if name == "logos_oods.ndjson":
            assert "no query in any {object}_oods.ndjson" in RUNS["forb"][0](folder).warnings[0]
            continue
        with pytest.raises(InputError, match=rf"{re.escape(Path(name).name)}: (no such file|cannot be read)"):
            outcome(protocol, folder)
        (folder / name).mkdir()
        with pytest.raises(InputError, match=rf"{re.escape(Path(name).name)}: not a file"):
            outcome(protocol, folder)


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 1000)
    refused(tmp_path, "disc21", {"truth.csv": "Q" * (2 << 20)}, "truth.csv:1: a line of more than")
    refused(
        tmp_path,
        "disc21",
        {"truth.csv": "Q" * 2000 + ",R\n"},
        r"truth\.csv:1: not a CSV record \(field larger",
    )


def test_lines_are_counted_over_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 16)
    rows = "".join(f"Q1,R{i},0.5\n" for i in range(100))
    refused(tmp_path, "disc21", {"predictions.csv": rows + "Q1,R3,1\n"}, r"predictions\.csv:101: query Q1")
    refused(tmp_path, "disc21", {"predictions.csv": rows.encode() + b"Q1,\xe9,"}, r":101: not UTF-8 text")
    rows = rows.replace("R50,", "R50;", 1)
    refused(tmp_path, "disc21", {"predictions.csv": rows}, r"predictions\.csv:51: 2 fields; expected 3")


def test_too_many_predictions(tmp_path, monkeypatch):
    monkeypatch.setattr(disc21.micro_ap, "LIMIT", 2)
    refused(tmp_path, "disc21", {}, "predictions.csv: 3 predictions; the challenge admits 2")


@st.composite
def damage(draw):
    """A protocol, one of its files, and that file's bytes damaged."""
    protocol = draw(st.sampled_from(sorted(RUNS)))
    name = draw(st.sampled_from(sorted(VALID[protocol])))
    content = VALID[protocol][name]
    if isinstance(content, np.ndarray):
        content = content.tobytes()
    data = bytearray(content if isinstance(content, bytes) else content.encode())
    kind = draw(st.sampled_from(["cut", "bytes", "insert", "word", "double"]))
    place = draw(st.integers(0, len(data) - 1))
    if kind == "cut":
        del data[place:]
    elif kind == "bytes":
        for at in draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=4)):
            data[at] = draw(st.integers(0, 255))
    elif kind == "insert":
        data[place:place] = draw(st.binary(min_size=1, max_size=4))
    elif kind == "word":
        words = (
            b"NaN",
            b"inf",
            b"-1",
            b"1e999",
            b"null",
            b'"',
            b"\n",
            b",",
            b"{}",
            b"[]",
            b"9" * 40,
            b"\xc3\xa9",
        )
        data[place : place + draw(st.integers(0, 4))] = draw(st.sampled_from(words))
    else:
        data += data[place:]
    return protocol, name, bytes(data)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damage())
def test_damaged_files_give_one_line_or_a_number(tmp_path_factory, case):
    protocol, name, data = case
    folder = write(tmp_path_factory.mktemp("damaged"), protocol, {name: data})
    for run in RUNS[protocol]:
        try:
            rows = run(folder).rows
        except CairnError as error:
            assert "\n" not in str(error) and str(error)
            continue
        for row in rows:
            bounded = row.metric.startswith("threshold") or row.metric.startswith("oracle")
            assert row.value is None or (bounded or 0 <= row.value <= 1 + 1e-12), (row, name, data)


def test_the_command_prints_one_line_and_exits(tmp_path):
    folder = write(tmp_path, "disc21", {"predictions.csv": "Q1,R1,nan\n"})
    runner = CliRunner()
    arguments = [
        "disc21",
        "--predictions",
        folder / "predictions.csv",
        "--ground-truth",
        folder / "truth.csv",
    ]
    result = runner.invoke(app, list(map(str, arguments)))
    assert isinstance(result.exception, InputError) and result.exception.exit_code == 1
    assert result.stdout == ""
    write(tmp_path, "disc21")
    result = runner.invoke(app, [*map(str, arguments), "--per-query"])
    assert isinstance(result.exception, UsageError) and result.exception.exit_code == 2
    result = runner.invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0 and "micro-ap" in result.stdout and "100.00" in result.stdout
    result = runner.invoke(app, ["revisitop", "--gnd", "x.pkl"])
    assert isinstance(result.exception, InputError | UsageError)


def test_progress_goes_to_standard_error(tmp_path, monkeypatch, capsys):
    folder = write(tmp_path, "disc21")
    rows = "".join(f"Q1,R{i},0.5\n" for i in range(200_000))
    (folder / "predictions.csv").write_text("query_id,reference_id,score\n" + rows)
    monkeypatch.setenv("CAIRN_PROGRESS", "1")
    monkeypatch.setattr("cairn.scoring.files.LARGE", 1 << 20)
    arguments = [
        "disc21",
        "--predictions",
        folder / "predictions.csv",
        "--ground-truth",
        folder / "truth.csv",
    ]
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["protocol"] == "disc21"
    assert "reading predictions.csv" in result.stderr
    # Where nobody watches a bar, a large file is still not read in silence; a small one is.
    monkeypatch.setenv("CAIRN_PROGRESS", "0")
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert json.loads(result.stdout)["protocol"] == "disc21"
    said = [line for line in result.stderr.splitlines() if line.startswith("reading")]
    assert said[0] == "reading predictions.csv: 0 of 2 MiB" and len(said) > 1


@pytest.mark.parametrize(
    "header", ["query,reference", "Query_ID,Reference_ID", "Query ID,Reference ID", "QUERY,ref"]
)
def test_another_header_is_no_record(tmp_path, header):
    """Taken for a pair it would count as one that nobody finds."""
    changes = {"truth.csv": f"{header}\nQ1,R1\nQ2,\n"}
    refused(tmp_path, "disc21", changes, r"truth.csv:1: the header is .*; expected query_id,reference_id")


@pytest.mark.parametrize("clutter", ["1" + "0" * 30, "-1", "1_0", "١", "1.5", "nan", "9" * 5000])
def test_clutter_is_a_count(tmp_path, clutter):
    ids = f"a/p0,0.05,{clutter}\na/p1,0.5,60\nb/p0,0.1,20\n"
    refused(
        tmp_path,
        "ilias",
        {"image_ids/positive_ids.txt": ids},
        "positive_ids.txt:1: .*expected id,scale,clutter",
    )


def test_control_characters_in_names_stay_on_one_line(tmp_path):
    changes = {"s.json": json.dumps({"a/q": {"a/z\n\x1b[31m": 0.5}})}
    refused(tmp_path, "ilias", changes, r"image a/z\\n\\x1b\[31m is neither")


@pytest.mark.parametrize("k", [0, -1, 10**10, 10**30])
def test_depths_out_of_bounds(tmp_path, k):
    ranked, listed = write(tmp_path / "a", "inquire"), write(tmp_path / "b", "ilias")
    gnd = write(tmp_path / "c", "revisitop")
    for run in (
        lambda: inquire.score(ranked / "queries.csv", ranked / "annotations.csv", ranked / "run.csv", k),
        lambda: ilias.score(listed, listed / "s.json", k),
        lambda: instre.score(gnd / "gnd.json", gnd / "scores.npy", None, k),
    ):
        with pytest.raises(UsageError, match=f"--k is {k}; expected 1 to 1,000,000,000"):
            run()


def test_a_depth_far_beyond_the_lists_takes_no_memory(tmp_path):
    folder = write(tmp_path, "inquire")
    paths = [folder / name for name in ("queries.csv", "annotations.csv", "run.csv")]
    assert inquire.score(*paths, k=10**9).value("all", "ndcg@1000000000") == pytest.approx(
        inquire.score(*paths, k=9).value("all", "ndcg@9")
    )


def test_forb_says_where_thresholds_lack_queries(tmp_path):
    folder = write(tmp_path, "forb")
    warnings = forb.score(folder, folder, ["logos"]).warnings
    assert (
        "logos_oods.ndjson has 1 queries where logos_gt.ndjson has 2: the thresholds come from" in warnings[0]
    )


def test_names_that_are_no_text_are_still_json(tmp_path):
    folder = write(tmp_path, "revisitop", {"gnd.json": json.dumps(GND | {"qimlist": ["a\ud800", "b\u00e9"]})})
    arguments = [
        "revisitop",
        "--gnd",
        folder / "gnd.json",
        "--scores",
        folder / "scores.npy",
        "--json",
        "--per-query",
    ]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)["per_query"]["easy"]["map"]) == ["a\ud800", "b\u00e9"]
