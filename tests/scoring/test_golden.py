"""`cairn score` on the golden cases, in the official file formats: the authors' figures to 1e-9."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.commands.score import app
from tests.scoring import cases


@pytest.fixture
def golden(shared):
    return lambda name: json.loads((shared / "golden" / f"{name}.json").read_text())


def score(*arguments):
    """The JSON object and its values by (slice, metric); nothing else on standard output."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert all(row.keys() == {"slice", "metric", "value", "n_queries"} for row in data["rows"])
    return data, {(row["slice"], row["metric"]): row["value"] for row in data["rows"]}


def close(value, expected):
    assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("case", ["plain", "edge"])
def test_revisitop(golden, shared, tmp_path, case):
    expected = golden(f"revisitop_{case}")
    scores = np.load(shared / "golden" / f"revisitop_{case}.npz")["scores"]
    gnd_pickle, gnd_json = cases.gnd_files(tmp_path, expected["gnd"], scores.shape[1])
    np.save(tmp_path / "scores.npy", scores)
    np.savez(tmp_path / "scores.npz", scores)
    np.save(tmp_path / "ranks.npy", np.argsort(-scores, axis=1).T)
    runs = [
        score("revisitop", "--gnd", gnd, option, tmp_path / file)[1]
        for gnd in (gnd_pickle, gnd_json)
        for option, file in (("--scores", "scores.npy"), ("--scores", "scores.npz"), ("--ranks", "ranks.npy"))
    ]
    assert all(run == runs[0] for run in runs)
    for letter, setup in zip("EMH", ("easy", "medium", "hard"), strict=True):
        close(runs[0][setup, "map"], expected["expected"][letter]["map"])
        for kappa, value in zip((1, 5, 10), expected["expected"][letter]["mpr"], strict=True):
            close(runs[0][setup, f"mp@{kappa}"], value)
    data, _ = score("revisitop", "--gnd", gnd_json, "--scores", tmp_path / "scores.npy", "--per-query")
    hard = data["per_query"]["hard"]["map"]
    assert len(hard) == len(expected["gnd"])
    for value, theirs in zip(hard.values(), expected["expected"]["H"]["aps"], strict=True):
        assert value == (None if theirs is None else pytest.approx(theirs, abs=1e-9))
    # With one grade of positives the protocol of INSTRE is that of Medium.
    _, instre = score("instre", "--gnd", gnd_pickle, "--scores", tmp_path / "scores.npy")
    assert instre == {("all", "map"): runs[0]["medium", "map"]}


def test_gldv2(golden, tmp_path):
    case = golden("gldv2")
    submission, solution = cases.gldv2_files(tmp_path, case)
    _, values = score("gldv2", "--submission", submission, "--solution", solution)
    assert values == {(part, "map@100"): pytest.approx(v, abs=1e-9) for part, v in case["expected"].items()}


def test_forb(golden, tmp_path):
    case = golden("forb")
    metadata, results = cases.forb_files(tmp_path, case)
    objects = ",".join(dict.fromkeys(case["category"]))
    data, values = score("forb", "--metadata", metadata, "--results", results, "--objects", objects)
    for part, expected in case["expected"].items():
        for metric, value in expected.items():
            close(values[part, metric.replace("mAP", "map")], value)
    assert {part for part, _ in values} == {"overall", "easy", "medium", "hard", *objects.split(",")}
    assert "3 of 8 object types" in data["warnings"][0]


def test_disc21(golden, shared, tmp_path):
    expected = golden("disc21_expected")
    predictions = shared / "golden" / "disc21_predictions.csv"
    truth = shared / "golden" / "disc21_ground_truth.csv"
    bare = tmp_path / "bare.csv"
    bare.write_text(truth.read_text().split("\n", 1)[1])
    for ground_truth in (truth, bare):
        _, values = score("disc21", "--predictions", predictions, "--ground-truth", ground_truth)
        close(values["all", "micro-ap"], expected["micro_ap"])
        close(values["all", "recall@p90"], expected["recall_at_p90"])
        close(values["all", "threshold@p90"], expected["threshold_at_p90"])
        close(values["all", "recall@1"], expected["recall_at_rank1"])
        close(values["all", "recall@10"], expected["recall_at_rank10"])


@pytest.mark.parametrize("name", ["inquire", "inquire_ties"])
def test_inquire(golden, tmp_path, name):
    everything = golden(name)
    for k in sorted({case["k"] for case in everything}):
        of_depth = [case for case in everything if case["k"] == k]
        folder = tmp_path / str(k)
        folder.mkdir()
        queries, annotations, run = cases.inquire_files(folder, of_depth)
        _, values = score(
            "inquire", "--queries", queries, "--annotations", annotations, "--run", run, "--k", k
        )
        names = {"ap": f"map@{k}", "ndcg": f"ndcg@{k}", "mrr": "mrr", "precision": f"precision@{k}"}
        names["recall"] = f"recall@{k}"
        for field in of_depth[0]["expected"]:
            figures = np.array([case["expected"][field] for case in of_depth])
            close(values["all", names[field]], figures.mean())
            close(values["supercategory:S1", names[field]], figures[1::2].mean())
            close(values["category:C2", names[field]], figures[2::3].mean())
            close(values["iconic-group:G0", names[field]], figures[::4].mean())


def test_ilias(golden, shared, tmp_path):
    case = golden("ilias")
    arrays = np.load(shared / "golden" / "ilias.npz")
    folder = cases.ilias_files(tmp_path, case, arrays["sims"], arrays["ranks"])
    expected = case["expected"]
    for file in ("sims.pkl", "sims.json"):
        _, values = score(
            "ilias", "--dataset-dir", folder, "--similarities", folder / file,
            "--taxonomy", folder / "taxonomy.json",
        )  # fmt: skip
        close(values["all", "map@1000"] * 100, expected["map"])
        close(values["all", "oracle@1000"] * 100, expected["oracle"])
        titles = {"scale": "scale", "clutter": "clutter", "categories": "category"}
        for key, title in {**titles, "subcategories": "subcategory"}.items():
            for name, value in expected[key].items():
                close(values[f"{title}:{name}", "map@1000"] * 100, value)
    assert len(values) == 2 + 4 + 4 + len(expected["categories"]) + len(expected["subcategories"])


def test_ilias_ties(golden, tmp_path):
    case = golden("ilias_ties")
    info = {name: tuple(value) for name, value in case["positive_info"].items()}
    sims = np.array(case["sims"], np.float32)
    folder = cases.ilias_files(tmp_path, case | {"positive_info": info}, sims, np.array(case["ranks"]))
    for file in ("sims.pkl", "sims.json"):
        data, values = score("ilias", "--dataset-dir", folder, "--similarities", folder / file, "--per-query")
        close(values["all", "map@1000"] * 100, case["expected"]["map"])
        per_query = data["per_query"]["all"]["map@1000"]
        close([per_query[query] * 100 for query in case["query_ids"]], case["expected"]["aps"])
