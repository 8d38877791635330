"""The step `tail` keeps the curve that its estimate is one point of, and the scores carry it on."""

import json
from pathlib import Path

import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.errors import InputError
from cairn.results.scoring import tail_curve
from cairn.store.descriptors import MISSING, QUERIES_FILE, write_shard
from cairn.store.shards import assign_shards, shard_name
from cairn.systems.tail import estimate_run


def test_the_curve_passes_through_the_estimate(tmp_path: Path):
    generator = np.random.default_rng(3)
    queries = generator.normal(size=(12, 16))
    near = queries.repeat(2, 0) + 0.7 * generator.normal(size=(24, 16))
    rows = np.concatenate([near, generator.normal(size=(600, 16))])
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    asked = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float16)
    ids = [f"i{number:03}" for number in range(len(rows))]
    folder = tmp_path / "descriptors"
    folder.mkdir()
    for number, members in enumerate(assign_shards(ids)):
        write_shard(folder / shard_name(number), [ids[each] for each in members], rows[members], {})
    names = [f"q{number}" for number in range(12)]
    write_shard(folder / QUERIES_FILE, names, asked, {}, id_column="query_id")
    relevance = {
        name: {f"i{2 * n:03}": "positive", f"i{2 * n + 1:03}": "positive"} for n, name in enumerate(names)
    }
    truth = GroundTruth(tuple(Query(name, None, None, name) for name in names), relevance)
    parameters = {"gallery": 5000, "metric": "map@100", "sample": 0.5, "keep": 100, "seed": 0}
    output = tmp_path / "tail"
    output.mkdir()
    estimate_run(folder, truth, parameters, output)
    facts = json.loads((output / "tail.json").read_text("utf-8"))
    curve = tail_curve(output)
    interval = next(point for point in curve if point["stage"] == "tail-interval")
    assert interval["x"] == 5000 and interval["y"] == facts["estimates"]["default"]
    assert [interval["low"], interval["high"]] == facts["ci95"]["fixed_queries"]
    default = [(point["x"], point["y"]) for point in curve if point["stage"] == "tail-default"]
    assert default[0][0] == facts["sample"] and default[-1][0] > 5000
    values = [value for _, value in default]
    assert values == sorted(values, reverse=True)  # more distractors never help
    assert {point["metric"] for point in curve} == {"map@100"}
    for change, message in (
        ({"sample": 0.1}, "tail.sample = 0.1 of the 600 images that no query judges is 60: too few"),
        ({"gallery": 200}, "is 300: more than tail.gallery = 200"),
    ):
        with pytest.raises(InputError, match=message):
            estimate_run(folder, truth, parameters | change, output)
    estimate_run(folder, truth, None, output)
    assert tail_curve(output) == []


def test_images_that_could_not_be_decoded_are_no_distractors(tmp_path: Path):
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(300, 8))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    ids = [f"i{number:03}" for number in range(len(rows))]
    truth = GroundTruth((Query("q", None, None, "q"),), {"q": {"i000": "positive", "i001": "positive"}})
    write_shard(tmp_path / QUERIES_FILE, ["q"], -rows[1:2], {}, id_column="query_id")
    parameters = {"gallery": 5000, "metric": "map@5000", "sample": 1.0, "keep": 200, "seed": 0}
    rows[[0, *range(100, 150)]] = 0
    found = {}
    for name, gone in (("features", []), ("missing", [0, *range(100, 150)])):
        about = {MISSING: json.dumps({ids[row]: "truncated" for row in gone})}
        write_shard(tmp_path / shard_name(0), ids, rows, about)
        estimate_run(tmp_path, truth, parameters, tmp_path)
        found[name] = json.loads((tmp_path / "tail.json").read_text("utf-8"))
    assert (found["features"]["pool"], found["missing"]["pool"]) == (298, 248)
    # Its positive i000 is as good as half of all images where zero counts, and as bad as i001 where it is missing.
    assert found["missing"]["estimates"]["default"] < found["features"]["estimates"]["default"]
