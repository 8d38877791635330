"""Each protocol on a case small enough to work out by hand, ties included, and what it warns of."""

import json
import pickle

import numpy as np
import pytest

from cairn.errors import InputError, UsageError
from cairn.scoring import disc21, forb, gldv2, ilias, inquire, instre, revisitop
from tests.scoring.cases import write_csv, write_ndjson


def gnd(tmp_path, entries, n_images=6):
    path = tmp_path / "gnd.json"
    data = {
        "imlist": [f"image_{i}" for i in range(n_images)],
        "qimlist": [f"query_{i}" for i in range(len(entries))],
        "gnd": entries,
    }
    path.write_text(json.dumps(data))
    return path


ENTRY = {"bbx": [0, 0, 9, 9], "easy": [1], "hard": [3], "junk": [0]}


def test_revisitop_ties_go_to_the_lower_number(tmp_path):
    np.save(tmp_path / "s.npy", np.array([[9, 5, 5, 5, 1, 0]], np.float32))
    run = revisitop.score(gnd(tmp_path, [ENTRY]), scores=tmp_path / "s.npy")
    # Without junk: 1, 2, 3: Medium AP = (1 + (1/2 + 2/3) / 2) / 2; mP@5 = 2 of the first 3.
    assert run.value("medium", "map") == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)
    assert run.value("medium", "mp@5") == pytest.approx(2 / 3)
    np.save(tmp_path / "r.npy", np.array([[0, 1, 2, 3, 4, 5]]).T)
    assert revisitop.score(tmp_path / "gnd.json", ranks=tmp_path / "r.npy").rows == run.rows


def test_revisitop_with_distractors_and_a_shortened_ranking(tmp_path):
    path = gnd(tmp_path, [ENTRY])
    np.save(tmp_path / "s.npy", np.array([[9, 5, 5, 5, 1, 0, 7, 7]], np.float16))
    run = revisitop.score(path, scores=tmp_path / "s.npy")
    assert run.value("easy", "mp@1") == 0
    # Two distractors first: the easy positive is third of the list without junk and hard.
    assert run.value("easy", "map") == pytest.approx((0 / 2 + 1 / 3) / 2)
    np.save(tmp_path / "r.npy", np.array([[0, 7, 6, 1]]).T)
    short = revisitop.score(path, ranks=tmp_path / "r.npy")
    assert short.value("easy", "map") == run.value("easy", "map")
    assert short.value("hard", "map") == 0
    assert "4 of at least 6 gallery images are ranked" in short.warnings[0]


def test_revisitop_counts_what_is_listed_twice_as_the_official_code_does(tmp_path):
    entry = {"bbx": [0, 0, 9, 9], "easy": [1, 1], "hard": [2], "junk": [2]}
    np.save(tmp_path / "s.npy", np.array([[0, 9, 8, 7, 6, 5]], np.float32))
    run = revisitop.score(gnd(tmp_path, [entry]), scores=tmp_path / "s.npy")
    assert run.value("easy", "map") == pytest.approx(1 / 2)
    # Positive and junk at once: found at its own place, of three.
    assert run.value("medium", "map") == pytest.approx((1 + 1) / 3)
    assert "list an image twice" in run.warnings[0]


def test_revisitop_without_positives(tmp_path):
    entries = [ENTRY, {"bbx": [0, 0, 9, 9], "easy": [], "hard": [], "junk": [0, 1, 2, 3, 4, 5]}]
    np.save(tmp_path / "s.npy", np.arange(12.0).reshape(2, 6))
    run = revisitop.score(gnd(tmp_path, entries), scores=tmp_path / "s.npy")
    assert [row.n_queries for row in run.rows] == [1] * 12
    only = revisitop.score(gnd(tmp_path, entries[1:]), scores=_saved(tmp_path, np.arange(6.0)[None]))
    assert all(row.value is None and row.n_queries == 0 for row in only.rows)


def _saved(tmp_path, array):
    np.save(tmp_path / "array.npy", array)
    return tmp_path / "array.npy"


def test_instre_in_both_layouts(tmp_path):
    scores = _saved(tmp_path, np.array([[9, 5, 5, 5, 1, 0]], np.float32))
    ok = instre.score(gnd(tmp_path, [{"ok": [1, 3], "bbx": [0, 0, 9, 9]}]), scores)
    assert ok.value("all", "map") == pytest.approx(((0 + 1 / 2) / 2 + (1 / 3 + 2 / 4) / 2) / 2)
    revisited = instre.score(gnd(tmp_path, [ENTRY]), scores)
    assert revisited.value("all", "map") == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)


def test_instre_at_k_is_ilias_s_definition(tmp_path):
    path = gnd(tmp_path, [{"ok": [1, 3], "junk": [0]}], 4)
    scores = _saved(tmp_path, np.array([[9, 5, 6, 5, 7, 5]], np.float16))
    run = instre.score(path, scores, k=3)
    # Without junk 4, 2, 1 (3 and 5 tie with it, and lie behind): one of three found, at place 3.
    assert run.value("all", "map@3") == pytest.approx(1 / 3 / 2)
    assert run.value("all", "oracle@3") == pytest.approx(1 / 3 * 3 / 2)
    whole = instre.score(path, scores, k=1000)
    assert whole.value("all", "map@1000") == pytest.approx(2 / 5)  # the tie of three is one threshold
    np.save(tmp_path / "r.npy", np.array([[0, 4, 2, 1, 3, 5]]).T)
    ranks = instre.score(path, ranks=tmp_path / "r.npy", k=3)
    assert ranks.value("all", "map@3") == run.value("all", "map@3")
    whole_numbers = _saved(tmp_path, np.array([[9, 5, 6, 5, 7, 5]], np.uint8))
    assert instre.score(path, whole_numbers, k=3).rows == run.rows
    with pytest.raises(UsageError, match="--k is 0"):
        instre.score(path, scores, k=0)


def test_gldv2(tmp_path):
    solution = write_csv(
        tmp_path / "solution.csv",
        ["id", "images", "Usage"],
        [
            ("a", "x y", "Public"),
            ("b", "x", "Private"),
            ("c", "None", "Ignored"),
            ("d", "y", "Private"),
            ("e", "None", "Public"),
        ],
    )
    submission = write_csv(
        tmp_path / "submission.csv", ["id", "images"], [("a", "x x y"), ("b", ""), ("c", "x"), ("e", "x")]
    )
    run = gldv2.score(submission, solution)
    assert run.value("public", "map@100") == pytest.approx((1 + 2 / 3) / 2)
    assert run.value("private", "map@100") == 0
    assert run.value("all", "map@100") == pytest.approx((1 + 2 / 3) / 2 / 3)
    assert [row.n_queries for row in run.rows] == [1, 2, 3]
    assert run.warnings == (
        "1 test images have no row in the submission and score 0",
        "1 test images repeat a prediction; a repeat takes up its place and is never correct",
    )


def test_gldv2_counts_the_first_hundred(tmp_path):
    solution = write_csv(tmp_path / "solution.csv", ["id", "images", "Usage"], [("a", "x", "Public")])
    images = " ".join([*(f"n{i}" for i in range(100)), "x"])
    run = gldv2.score(write_csv(tmp_path / "s.csv", ["id", "images"], [("a", images)]), solution)
    assert run.value("all", "map@100") == 0
    assert run.value("private", "map@100") is None
    assert "more than 100 predictions" in run.warnings[0]


def forb_folder(tmp_path, truth, found, oods, name="animated_cards"):
    for folder in ("metadata", "results"):
        (tmp_path / folder).mkdir(exist_ok=True)
    write_ndjson(
        tmp_path / "metadata" / f"{name}_gt.ndjson",
        [
            {"query_id": i, "groundtruth_ids": ids, "difficulty": level}
            for i, (ids, level) in enumerate(truth, 1)
        ],
    )
    for suffix, lists in (("all", found), ("oods", oods)):
        write_ndjson(
            tmp_path / "results" / f"{name}_{suffix}.ndjson",
            [
                {"query_id": i, "candidate_db_ids": ids, "global_scores": scores}
                for i, (ids, scores) in enumerate(lists, 1)
            ],
        )
    return tmp_path / "metadata", tmp_path / "results"


def test_forb(tmp_path):
    truth = [([1, 2], "easy"), ([3], "hard"), ([], "hard")]
    # Ids of the ground truth count from 1, of candidates from 0. Two candidates of one query tie.
    found = [([0, 5, 1], [0.9, 0.5, 0.5]), ([7, 2], [0.4, 0.2]), ([], [])]
    folders = forb_folder(tmp_path, truth, found, [([9], [0.5]), ([], []), ([8, 9], [0.1, 0.3])])
    run = forb.score(*folders, ["animated_cards"])
    first, second = (1 + 2 / 3) / 2, 1 / 2
    assert run.value("overall", "map@5") == pytest.approx((first + second + 1) / 3)
    assert run.value("overall", "map@1") == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert run.value("easy", "map@5") == pytest.approx(first)
    assert run.value("animated_cards", "map@5") == run.value("overall", "map@5")
    # Top scores -1, 0.3, 0.5: thresholds 0.5 at rates 0 to 0.3, 0.3 at 0.4 to 0.6, -1 from 0.7 on.
    levels = [0.5] * 4 + [0.3] * 3 + [-1] * 4
    kept = [second if level <= 0.2 else 0 for level in levels]
    assert run.value("hard", "t-map@5") == pytest.approx((np.mean(kept) + 1) / 2)
    assert run.value("easy", "t-map@5") == pytest.approx(first)
    assert "thresholds from 1 of 8 object types (animated_cards)" in run.warnings[0]


def test_forb_before_reranking(tmp_path):
    folders = forb_folder(tmp_path, [([1], "easy")], [([1, 0], [0.9, 0.8])], [([5], [0.85])])
    first = {"candidate_db_ids_before_reranking": [0, 1], "global_scores_before_reranking": [0.7, 0.2]}
    for kind in ("all", "oods"):
        path = folders[1] / f"animated_cards_{kind}.ndjson"
        write_ndjson(path, [{**json.loads(line), **first} for line in path.read_text().splitlines()])
    after = forb.score(*folders, ["animated_cards"])
    assert after.value("overall", "map@1") == 0 and after.value("overall", "map@5") == 1 / 2
    before = forb.score(*folders, ["animated_cards"], before_reranking=True)
    # All thresholds are 0.7, the first stage's own top score, or -1.
    assert before.value("overall", "map@1") == before.value("overall", "t-map@1") == 1


def test_forb_offsets_follow_the_files(tmp_path):
    folders = forb_folder(tmp_path, [([1], "easy")], [([3], [0.9])], [([0], [0.1])], "photorealistic_cards")
    for name, size in (("animated_cards", 3), ("photorealistic_cards", 2)):
        records = [{"image_id": i} for i in range(size)]
        write_ndjson(tmp_path / "metadata" / f"{name}_database.ndjson", records)
    run = forb.score(*folders, ["photorealistic_cards"])
    assert run.value("overall", "map@1") == 1
    assert "animated_cards_database.ndjson has 3 images where FORB has 12,529" in run.warnings[0]


@pytest.mark.parametrize(("subset", "first"), [(False, 12529), (True, 9588)])
def test_forb_offsets_as_published(tmp_path, subset, first):
    name = "photorealistic_cards"
    folders = forb_folder(tmp_path, [([1], "easy")], [([first], [0.9])], [([0], [0.1])], name)
    assert forb.score(*folders, [name], subset).value("overall", "map@1") == 1
    assert forb.score(*folders, [name], not subset).value("overall", "map@1") == 0


def test_forb_without_thresholds(tmp_path):
    metadata, results = forb_folder(tmp_path, [([1], "easy")], [([0], [0.9])], [([0], [0.1])])
    (results / "animated_cards_oods.ndjson").unlink()
    run = forb.score(metadata, results, ["animated_cards"])
    assert run.value("overall", "t-map@1") is None and run.value("overall", "map@1") == 1
    with pytest.raises(UsageError, match="unknown object type 'logo'; known: animated_cards"):
        forb.score(metadata, results, ["logo"])
    with pytest.raises(InputError, match=r"photorealistic_cards_gt\.ndjson: no such file"):
        forb.score(metadata, results)


def test_disc21(tmp_path):
    truth = write_csv(
        tmp_path / "truth.csv",
        ["query_id", "reference_id"],
        [("a", "x"), ("a", "y"), ("b", "x"), ("c", ""), ("d", "z")],
    )
    predictions = write_csv(
        tmp_path / "predictions.csv",
        ["query_id", "reference_id", "score"],
        [("a", "x", 0.9), ("a", "z", 0.5), ("a", "y", 0.5), ("c", "x", 0.7), ("b", "x", 0.5)],
    )
    run = disc21.score(predictions, truth)
    # Order: a-x (true), c-x, then at 0.5 the false a-z first, then two true ones; four pairs exist.
    assert run.value("all", "micro-ap") == pytest.approx((1 + 2 / 4 + 3 / 5) / 4)
    assert run.value("all", "recall@p90") == pytest.approx(1 / 4)
    assert run.value("all", "threshold@p90") == 0.9
    # a-y ties with a false match: not first. b-x is.
    assert run.value("all", "recall@1") == pytest.approx(2 / 4)
    assert run.value("all", "recall@10") == pytest.approx(3 / 4)
    by_metric = {each.metric: dict(zip(each.query_ids, each.values, strict=True)) for each in run.per_query}
    assert by_metric["recall@1"]["a"] == 0.5 and np.isnan(by_metric["recall@1"]["c"])
    assert {row.metric: row.n_queries for row in run.rows} == {
        "micro-ap": 4, "recall@p90": 4, "threshold@p90": 4, "recall@1": 3, "recall@10": 3,
    }  # fmt: skip


def test_disc21_without_distractors_in_the_ground_truth(tmp_path):
    (tmp_path / "truth.csv").write_text("a,x\n")
    (tmp_path / "predictions.csv").write_text("other,x,0.9\na,x,0.5\n")
    run = disc21.score(tmp_path / "predictions.csv", tmp_path / "truth.csv")
    assert run.value("all", "micro-ap") == pytest.approx(1 / 2)
    assert "1 queries with predictions are not in the ground truth" in run.warnings[0]


def test_disc21_with_nothing_to_find(tmp_path):
    (tmp_path / "truth.csv").write_text("a,\n")
    (tmp_path / "predictions.csv").write_text("query_id,reference_id,score\n")
    run = disc21.score(tmp_path / "predictions.csv", tmp_path / "truth.csv")
    assert all(row.value is None for row in run.rows)


def inquire_files(tmp_path, run, annotations):
    header = ["query_id", "query_text", "supercategory", "category", "iconic_group"]
    queries = [(1, "a bird, flying", "Behavior", "Motion", "Birds"), (2, "a fish", "Species", "ID", "Fish")]
    return (
        write_csv(tmp_path / "queries.csv", header, queries),
        write_csv(tmp_path / "annotations.csv", ["query_id", "image_path"], annotations),
        write_csv(tmp_path / "run.csv", ["query_id", "image_path", "score"], run),
    )


def test_inquire_ties_are_one_threshold(tmp_path):
    run = [(1, "a", 0.9), (1, "b", 0.5), (1, "c", 0.5), (1, "d", 0.1)]
    files = inquire_files(tmp_path, run, [(1, "b"), (1, "d"), (2, "z")])
    result = inquire.score(*files, k=4)
    assert "iconic-group:" not in {row.slice for row in result.rows}
    assert result.value("iconic-group:Birds", "map@4") == pytest.approx((1 / 3 + 2 / 4) / 2)
    shared = (1 / np.log2(3) + 1 / np.log2(4)) / 2
    best = 1 + 1 / np.log2(3)
    assert result.value("category:Motion", "ndcg@4") == pytest.approx((shared + 1 / np.log2(5)) / best)
    # The negative that ties goes first.
    assert result.value("supercategory:Behavior", "mrr") == pytest.approx(1 / 3)
    assert result.value("supercategory:Behavior", "precision@4") == 0.5
    assert result.value("all", "recall@4") == pytest.approx((1 + 0) / 2)
    assert "1 queries have no row in the run and score 0" in result.warnings


def test_inquire_says_what_the_official_function_would_make_of_short_lists_and_low_scores(tmp_path):
    files = inquire_files(tmp_path, [(1, "a", -100), (2, "z", 3)], [(1, "a"), (1, "b"), (2, "z")])
    result = inquire.score(*files)
    assert result.value("all", "precision@50") == pytest.approx(1 / 50)
    short, low = result.warnings[-2:]
    assert "2 queries have fewer than 50 images" in short
    assert "gives mAP 100.00, nDCG 100.00, precision 100.00, which are not values at 50" in short
    assert low.startswith("1 queries have scores of -100 or less")
    full = inquire.score(*inquire_files(tmp_path, [(1, "a", 1), (2, "z", 3)], [(1, "a")]), k=1)
    assert full.warnings == ("1 queries have no relevant image and are left out",)


def test_inquire_rerank(tmp_path):
    header = ["query_id", "query", "inat24_file_name", "relevant", "iconic_group"]
    rows = [
        (7, "q", "a", 0, "Birds"),
        (7, "q", "b", 1, "Birds"),
        (7, "q", "c", "1.0", "Birds"),
        (8, "r", "a", "False", "Fish"),
    ]
    rerank = write_csv(tmp_path / "rerank.csv", header, rows)
    run = [(8, "a", 0.1), (7, "b", 0.5), (7, "a", 0.5), (7, "c", 0.4)]
    result = inquire.score_rerank(rerank, write_csv(tmp_path / "run.csv", list(inquire.RUN), run))
    assert result.value("all", "map") == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert result.value("all", "mrr") == pytest.approx(1 / 2)
    assert result.value("iconic-group:Fish", "map") is None
    assert [row.n_queries for row in result.rows] == [1] * 6 + [0] * 3


def ilias_folder(tmp_path):
    ids = tmp_path / "image_ids"
    ids.mkdir(exist_ok=True)
    (ids / "image_query_ids.txt").write_text("b/q,1,2,3,4\na/q,1,2,3,4\n")
    (ids / "text_query_ids.txt").write_text("a/t\nb/t\n")
    (ids / "positive_ids.txt").write_text("a/p0,0.05,10\na/p1,0.5,60\nb/p0,0.1,20\n")
    return tmp_path


def test_ilias(tmp_path):
    folder = ilias_folder(tmp_path)
    sims = {"a/q": {"y/0": 0.5, "a/p0": 0.5, "a/p1": 0.2}, "b/t": {"y/0": 0.9, "y/1": 0.8}}
    (tmp_path / "s.json").write_text(json.dumps(sims))
    run = ilias.score(folder, tmp_path / "s.json", k=3)
    of_a = (1 / 2 + 2 / 3) / 2
    assert run.value("all", "map@3") == pytest.approx(of_a / 2)
    assert run.value("all", "oracle@3") == pytest.approx((2 / 3 * 3 / 2) / 2)
    # The small positive alone: still tied with a distractor. The large one alone: third.
    assert run.value("scale:0-0.06880213760855043", "map@3") == pytest.approx(1 / 2)
    assert run.value("scale:0.2729876723163842-inf", "map@3") == pytest.approx(1 / 2)
    assert run.value("clutter:18-33", "map@3") == 0
    assert run.value("clutter:33-53", "map@3") is None
    assert "1 of 2 image queries are not in the run" in run.warnings[0]
    (tmp_path / "t.json").write_text(json.dumps({"toy": {"car": {"x": ["a"], "y": ["b"]}}}))
    run = ilias.score(folder, tmp_path / "s.json", 3, tmp_path / "t.json")
    assert run.value("subcategory:toy-car", "map@3") == pytest.approx(of_a / 2)


def test_ilias_pickle_of_either_kind(tmp_path):
    folder = ilias_folder(tmp_path)
    data = {
        "query_ids": ["a/q"],
        "db_ids": np.array(["a/p0", "a/p1", "b/p0", "y/0"]),
        "similarities": [[0.5, 0.5]],
        "ranks": np.array([[3, 0]]),
    }
    (tmp_path / "s.pkl").write_bytes(pickle.dumps(data))
    run = ilias.score(folder, tmp_path / "s.pkl", 2)
    assert run.value("all", "map@2") == pytest.approx(1 / 4)
    (tmp_path / "t.pkl").write_bytes(pickle.dumps({"all_similarities": {"a/q": {"y/0": 0.5, "a/p0": 0.5}}}))
    assert ilias.score(folder, tmp_path / "t.pkl", 2).rows == run.rows


def test_a_file_without_a_last_line_end_is_mentioned(tmp_path):
    (tmp_path / "truth.csv").write_text("a,x\n")
    (tmp_path / "predictions.csv").write_text("a,x,0.5")
    run = disc21.score(tmp_path / "predictions.csv", tmp_path / "truth.csv")
    assert run.warnings == (
        "predictions.csv does not end with a line end; if it was cut off, so is its last row",
    )
