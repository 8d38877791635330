"""Second stages in the graph: AMES trained there, chains, mixes without the network, interruptions."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from assets.step import Job, steps
from cairn.benchmarks.structure import write_ground_truth
from cairn.cache import Cache
from cairn.errors import ArtifactError, InputError, ParameterError
from cairn.files import write_json
from cairn.images.manifest import write_manifest
from cairn.rerank import RerankParameters, by_descriptors, parts
from cairn.rerank.ames import Ames
from cairn.rerank.rankings import first_stage, read_ranking
from cairn.rerank.two_stage import Cell
from cairn.results.cells import score_cells
from cairn.results.scoring import score_run, stages
from cairn.results.table import read_results
from cairn.store.local import open_local
from cairn.systems.local import extract_local
from cairn.systems.ranking import search
from cairn.systems.readout import make_readout
from cairn.systems.reranker_training import train_reranker
from cairn.systems.reranking import rerank
from tests.systems.market import ENCODER, SETTINGS, Market, manifest_table
from tests.systems.test_resume import gone
from tests.systems.test_steps import contents

TRAINING = {
    "steps": 60,
    "triplets": 8,
    "learning_rate": 3e-3,
    "model_dim": 32,
    "layers": 2,
    "feedforward": 64,
}
AMES = {"query_length": 100, "gallery_length": 80, "training": TRAINING}
DIAGNOSTICS = {"mixes": [0.25, 0.55], "temperatures": [0.3]}


def system(**rerank: Any) -> dict[str, Any]:
    return parts(RerankParameters.model_validate(rerank))


PLAIN = system(method="ames", shortlist=20, ames={**AMES, "diagnostics": DIAGNOSTICS})


@pytest.fixture(scope="session")
def trained(market: Market, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(market, tmp_path_factory.mktemp("reranker"), PLAIN)


@pytest.fixture(scope="session")
def done(market: Market, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return second_stage(market, tmp_path_factory.mktemp("done"), PLAIN, trained)


def train(
    market: Market, output: Path, of: dict[str, Any], cache: Cache | None = None, code: str = "c"
) -> Path:
    output.mkdir(exist_ok=True)
    train_reranker(
        market.manifest,
        market.out / "training-descriptors",
        market.root,
        ENCODER,
        SETTINGS,
        of["reranker_training"],
        output,
        cache=cache,
        code=code,
        features_code="f",
    )
    return output


def second_stage(
    market: Market,
    output: Path,
    of: dict[str, Any],
    trained: Path | None = None,
    cache: Cache | None = None,
    relevance: Any = None,
    local: Path | None = None,
) -> Path:
    """The steps `local` and `reranking` under `output`."""
    found = {"descriptors": market.out / "descriptors", "relevance": relevance or market.truth.relevance}
    (output / "reranking").mkdir(parents=True)
    if local is None:
        local = output / "local"
        local.mkdir()
        extract_local(
            market.out / "ranking",
            market.manifest,
            market.queries,
            market.root,
            ENCODER,
            SETTINGS,
            of["local"],
            local,
            **found,
            cache=Cache(market.root / "cache"),
            features_code="f",
        )
    rerank(
        market.out / "ranking",
        local,
        market.manifest,
        market.queries,
        of["rerank"],
        output / "reranking",
        **found,
        reranker=trained,
        root=market.root,
        cache=cache,
        code="c",
    )
    return output


def scores(market: Market, output: Path, of: dict[str, Any]) -> Path:
    """The step `scores` of what `second_stage` wrote."""
    for step in ("manifest", "scores"):
        (output / step).mkdir()
    write_manifest(manifest_table(market.root), output / "manifest" / "manifest.parquet")
    write_ground_truth(output / "ground_truth", market.truth)
    write_json(output / "ground_truth" / "benchmark.json", {"title": "market"})
    score_run(
        "market",
        "tiny",
        ranking=market.out / "ranking",
        reranking=output / "reranking",
        ground_truth=output / "ground_truth",
        manifest=output / "manifest",
        metric="revisitop",
        mixing=of["mixing"],
        output=output / "scores",
    )
    return output / "scores"


@pytest.mark.slow
def test_a_network_trained_in_the_graph_beats_the_first_stage(market: Market, done: Path):
    folder = scores(market, done, PLAIN)
    rows = {
        (row.name.stage, row.name.slice, row.name.metric): row
        for row in read_results(folder / "scores.parquet")
    }
    aware = "ames-k20-l0.55-t0.3"
    plain = f"{aware}-unaware"
    assert {stage for stage, _, _ in rows} == {"global", aware, plain}
    for setting in ("medium", "hard"):
        assert rows[aware, setting, "map"].value > rows["global", setting, "map"].value + 0.05
        assert rows[plain, setting, "map"].value > rows["global", setting, "map"].value + 0.05
    for setting in ("easy", "medium", "hard"):
        gain = rows[aware, setting, "map-minus-unaware"]
        assert gain.unit == "difference"
        difference = rows[aware, setting, "map"].value - rows[plain, setting, "map"].value
        assert gain.value == pytest.approx(difference, abs=1e-12)
    # What a deployed system would return is written, under the stage that says so.
    listed = stages(market.out / "ranking", done / "reranking", folder)
    assert [stage for stage, _ in listed] == ["global", plain]
    assert len(read_ranking(listed[-1][1], market.manifest.gallery_size)) == 10
    # Other cells stand apart from the results, and say what they are.
    other = {row.name.stage for row in read_results(folder / "diagnostics.parquet")}
    assert other == {"ames-k20-l0.25-t0.3@diagnostic"}
    per_query = pq.read_table(folder / "per_query.parquet")
    assert set(per_query.column("stage").to_pylist()) == {"global", aware, plain}


def test_files_of_the_second_stage(done: Path, trained: Path):
    assert set(contents(trained)) == {"ames.pt", "training.json"}
    assert {name for name in contents(done) if name.startswith(("local", "reranking"))} == {
        "local/queries.hdf5",
        "local/images.hdf5",
        "local/contents.parquet",
        "local/local.json",
        "reranking/pairs.parquet",
        "reranking/reranking.json",
    }
    facts = json.loads((done / "reranking" / "reranking.json").read_text())
    assert facts["stage"] is None and facts["earlier"] is None and facts["network"]["model_dim"] == 32
    pairs = pq.read_table(done / "reranking" / "pairs.parquet")
    assert pairs.num_rows == facts["pairs"] and pairs.num_rows >= 200
    keys = list(zip(pairs["query_id"].to_pylist(), pairs["image_id"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)  # the shortlists of all settings united: each pair once


def test_another_mix_reruns_the_scores_alone():
    def changed(**own: Any) -> set[str]:
        other = system(method="ames", shortlist=20, ames={**AMES, "diagnostics": DIAGNOSTICS, **own})
        return {step for step in PLAIN if other[step] != PLAIN[step]}

    assert changed(mix=0.2) == changed(temperature=2.0) == {"mixing"}
    assert changed(diagnostics={"mixes": []}) == {"mixing"}
    assert changed(training={**TRAINING, "seed": 1}) == {"reranker_training"}
    assert changed(dtype="bfloat16") == {"rerank"}
    assert changed(store="float16") == {"local"}
    assert changed(gallery_length=50) == {"rerank", "local", "reranker_training"}
    assert system(method="geometry")["rerank"] == {
        "method": "geometry",
        "shortlist": 100,
        "geometry": RerankParameters().geometry.model_dump(),
    }


def test_every_cell_follows_from_the_pairs(market: Market, done: Path):
    ranked = read_ranking(market.out / "ranking" / "ranking.parquet", market.manifest.gallery_size)
    path = done / "reranking" / "pairs.parquet"
    mixing = {
        **PLAIN["mixing"],
        "mix": 1.0,
        "shortlist": 15,
        "diagnostics": {"mixes": [], "temperatures": []},
    }
    cells = score_cells(path, ranked, market.truth, "revisitop", mixing)
    # With the whole weight on the global similarity the list is the first stage's.
    for query, new in zip(ranked, cells.deployed[1], strict=True):
        np.testing.assert_array_equal(new.order[:15], np.arange(15))
        assert len(new.order) == len(query.rank)
    assert not cells.diagnostics and set(cells.scored) == {"ames-k15-l1-t0.3", "ames-k15-l1-t0.3-unaware"}
    unaware = {**mixing, "junk_aware": False}
    assert set(score_cells(path, ranked, market.truth, "revisitop", unaware).scored) == {
        "ames-k15-l1-t0.3-unaware"
    }
    # Diagnostics are those of the protocol that is reported, and say so.
    unaware["diagnostics"] = {"mixes": [0.5], "temperatures": [0.3]}
    assert set(score_cells(path, ranked, market.truth, "revisitop", unaware).diagnostics) == {
        "ames-k15-l0.5-t0.3-unaware@diagnostic"
    }
    with pytest.raises(ArtifactError, match=r"no logit for .* shortlist of 60; run the re-ranking again"):
        score_cells(path, ranked, market.truth, "revisitop", {**mixing, "shortlist": 60})


def test_changed_grades_do_not_run_the_network_again(
    market: Market, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = Cache(tmp_path / "cache")
    first = second_stage(market, tmp_path / "first", PLAIN, trained, cache)
    calls = []
    original = Ames.match

    def counted(self, query, padding, gallery, other):
        calls.append(len(gallery))
        return original(self, query, padding, gallery, other)

    monkeypatch.setattr(Ames, "match", counted)
    again = second_stage(market, tmp_path / "again", PLAIN, trained, cache)
    assert calls == [] and contents(again) == contents(first)
    # An image far down becomes junk: no query's shortlists change, so nothing is scored again.
    relevance = {name: dict(images) for name, images in market.truth.relevance.items()}
    ranked = read_ranking(market.out / "ranking" / "ranking.parquet", market.manifest.gallery_size)
    relevance["q00-0"][ranked[0].image_ids[45]] = "junk"
    second_stage(market, tmp_path / "far", PLAIN, trained, cache, relevance)
    assert calls == []
    # One among a query's first moves its shortlist: that query alone is scored again.
    relevance["q00-0"][next(i for i in ranked[0].image_ids if i not in relevance["q00-0"])] = "junk"
    second_stage(market, tmp_path / "near", PLAIN, trained, cache, relevance)
    assert 0 < sum(calls) <= 30


CHILD = """
import sys
from pathlib import Path
from cairn.cache import Cache
from cairn.images.manifest import read_manifest
from cairn.systems.reranking import rerank
from cairn.systems.reranker_training import train_reranker
from tests.systems import market as drawn
from tests.systems.test_second_stage import PLAIN, second_stage, train

if __name__ == "__main__":
    root, output, cache, what = Path(sys.argv[1]), Path(sys.argv[2]), Cache(Path(sys.argv[3])), sys.argv[4]
    market = drawn.opened(root)
    print("on", flush=True)
    if what == "train":
        train(market, output, PLAIN, cache)
    else:
        second_stage(market, output, PLAIN, Path(sys.argv[5]), cache, local=Path(sys.argv[6]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["train", "rerank"])
def test_killed_it_goes_on_where_it_was(
    market: Market, trained: Path, done: Path, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
):
    script, folder = tmp_path / "child.py", tmp_path / "cache"
    script.write_text(CHILD)
    repository = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(
        [
            *(sys.executable, str(script), str(market.root), str(tmp_path / "killed"), str(folder), what),
            *(str(trained), str(done / "local")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=repository,
        env=os.environ | {"PYTHONPATH": str(repository), "CAIRN_WORKERS": "1"},
        start_new_session=True,
    )
    assert child.stdout is not None and child.stdout.readline() == b"on\n"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and child.poll() is None:
        if _finished(folder, what):
            break
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert gone(child.pid) and _finished(folder, what)
    cache = Cache(folder)
    if what == "train":
        from cairn.rerank import ames_training

        steps = []
        original = ames_training._loss
        monkeypatch.setattr(ames_training, "_loss", lambda *a: steps.append(1) or original(*a))
        again = train(market, tmp_path / "again", PLAIN, cache)
        assert len(steps) < TRAINING["steps"] and contents(again) == contents(trained)
    else:
        calls = []
        original = Ames.match
        monkeypatch.setattr(Ames, "match", lambda self, *a: calls.append(1) or original(self, *a))
        again = second_stage(market, tmp_path / "again", PLAIN, trained, cache, local=done / "local")
        whole = len(calls)
        second_stage(market, tmp_path / "new", PLAIN, trained, None, local=done / "local")
        assert whole < len(calls) - whole
        assert contents(again / "reranking") == contents(done / "reranking")


def _finished(folder: Path, what: str) -> bool:
    """Whether something that the method itself keeps is in the cache (an entry under its final name)."""
    least = 100_000 if what == "train" else 0
    return any(path.stat().st_size > least for path in folder.glob("??/[!.]*") if _own(path, what))


def _own(path: Path, what: str) -> bool:
    # Local features of training images are cached too; the state of the training is larger than any.
    return what == "rerank" or b"optimizer" in path.read_bytes()[:200_000]


@pytest.mark.parametrize("method", ["superglobal", "aqe", "k-reciprocal"])
def test_methods_by_descriptors(market: Market, tmp_path: Path, method: str):
    of = system(method=method, shortlist=25)
    out = second_stage(market, tmp_path / "run", of)
    assert set(contents(out / "local")) == {"local.json"}
    stage = json.loads((out / "reranking" / "reranking.json").read_text())["stage"]
    expected = {"superglobal": "sg-m25", "aqe": "aqe-k25-n10-a3", "k-reciprocal": "kr-k25-n20-m6-l0.3"}
    assert stage == expected[method]
    path = market.out / "ranking" / "ranking.parquet"
    before = read_ranking(path, market.manifest.gallery_size)
    after = read_ranking(out / "reranking" / "reranked.parquet", market.manifest.gallery_size)
    moved = 0
    for old, new in zip(before, after, strict=True):
        assert set(old.image_ids[:25]) == set(new.image_ids[:25]) and old.image_ids[25:] == new.image_ids[25:]
        moved += old.image_ids != new.image_ids
    assert moved == len(before)
    assert contents(second_stage(market, tmp_path / "again", of)) == contents(out)


def test_a_chain_scores_the_list_of_the_stage_before(market: Market, trained: Path, tmp_path: Path):
    after = {"method": "superglobal", "shortlist": 40}
    of = system(method="ames", shortlist=12, ames={**AMES, "diagnostics": DIAGNOSTICS}, after=after)
    out = second_stage(market, tmp_path / "run", of, trained)
    earlier = read_ranking(out / "reranking" / "earlier.parquet", market.manifest.gallery_size)
    pairs = pq.read_table(out / "reranking" / "pairs.parquet").to_pylist()
    listed = {(query.query_id, image) for query in earlier for image in query.image_ids[:12]}
    assert listed <= {(row["query_id"], row["image_id"]) for row in pairs}
    first = read_ranking(market.out / "ranking" / "ranking.parquet", market.manifest.gallery_size)
    assert listed != {(query.query_id, image) for query in first for image in query.image_ids[:12]}
    folder = scores(market, out, of)
    found = {row.name.stage for row in read_results(folder / "scores.parquet")}
    cell = "sg-m40~ames-k12-l0.55-t0.3"
    assert found == {"global", "sg-m40", cell, f"{cell}-unaware"}
    assert Cell.parse(cell) == Cell("ames", 12)
    of = system(method="geometry", shortlist=12, after=after)
    out = second_stage(market, tmp_path / "geometry", of)
    assert json.loads((out / "reranking" / "reranking.json").read_text())["stage"] == "sg-m40~geometry-k12"


AFTER_OPTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "aqe": ({"method": "aqe", "shortlist": 25}, ["aqe-k25-n10-a3"]),
    "geometry": (
        {"method": "geometry", "shortlist": 8, "after": {"method": "aqe", "shortlist": 12}},
        ["aqe-k12-n10-a3", "geometry-k8"],
    ),
    "ames": (
        {
            "method": "ames",
            "shortlist": 12,
            "ames": AMES,
            "after": {"method": "superglobal", "shortlist": 40},
        },
        ["sg-m40", "ames-k12-l0.55-t0.3-unaware"],
    ),
}


@pytest.mark.parametrize("method", AFTER_OPTIONS)
def test_the_steps_take_the_descriptors_of_the_readout(
    market: Market, trained: Path, tmp_path: Path, method: str
):
    """Of a read-out to eight dimensions, searched with an expansion: what a second stage sees, and is called."""
    rerank_parameters, slugs = AFTER_OPTIONS[method]
    of = system(**rerank_parameters)
    folders = {name: tmp_path / name for name in ("readout", "ranking", "local", "reranking", "manifest")}
    for folder in folders.values():
        folder.mkdir()
    whiten = {"whiten": {"source": "gallery", "dimension": 8}}
    make_readout(market.out / "descriptors", None, whiten, folders["readout"])
    expansion = {"method": "average", "neighbours": 2}
    search(
        market.out / "descriptors",
        market.manifest,
        market.truth,
        {"top": 60, "index": {"kind": "none"}, "expansion": expansion},
        folders["ranking"],
        readout=folders["readout"],
    )
    write_manifest(manifest_table(market.root), folders["manifest"] / "manifest.parquet")
    write_ground_truth(folders["manifest"] / "queries", market.queries)
    write_ground_truth(tmp_path / "ground_truth", market.truth)
    write_json(tmp_path / "ground_truth" / "benchmark.json", {"title": "market"})
    inputs = {
        **folders,
        "descriptors": market.out / "descriptors",
        "reranker": trained,
        "ground_truth": tmp_path / "ground_truth",
    }
    for name in ("local", "reranking"):
        step = steps()[name]
        parameters = {"encoder": ENCODER, "settings": SETTINGS, "local": of["local"], "rerank": of["rerank"]}
        wanted = {what: inputs[what] for what in step.inputs}
        step.function(Job(market.root, "market", "tiny", wanted, folders[name], parameters, "c", "f"))
    (tmp_path / "scores").mkdir()
    score_run(
        "market", "tiny", ranking=folders["ranking"], reranking=folders["reranking"],
        ground_truth=tmp_path / "ground_truth", manifest=folders["manifest"], metric="revisitop",
        mixing=of["mixing"], output=tmp_path / "scores",
    )  # fmt: skip
    first = first_stage(folders["ranking"])
    assert first.startswith("global-") and first.endswith("-aqe-n2")
    named = [f"{slugs[0]}-on-{first.removeprefix('global-')}", *slugs[1:]]
    listed = stages(folders["ranking"], folders["reranking"], tmp_path / "scores")
    expected = [first, named[0], *(["~".join(named)] if len(named) > 1 else [])]
    assert [stage for stage, _ in listed] == expected
    found = {row.name.stage for row in read_results(tmp_path / "scores" / "scores.parquet")}
    assert set(expected) <= found
    # The method by descriptors compared those of the read-out, not those of the encoder.
    ranked = read_ranking(folders["ranking"] / "ranking.parquet", market.manifest.gallery_size)
    checked = RerankParameters.model_validate(rerank_parameters)
    earlier = checked.after or checked
    by_hand = by_descriptors.rerank(ranked, folders["readout"], market.manifest, earlier)
    others = by_descriptors.rerank(ranked, market.out / "descriptors", market.manifest, earlier)
    written = read_ranking(listed[1][1], market.manifest.gallery_size)
    for query, ours, theirs, new in zip(ranked, by_hand, others, written, strict=True):
        assert new.image_ids == tuple(query.image_ids[i] for i in ours.order)
        assert list(ours.order) != list(theirs.order)
    if method == "ames":
        images = open_local(folders["local"] / "images.hdf5")
        assert {image for query in written for image in query.image_ids[:12]} <= set(images.ids)


def test_what_cannot_be_is_told(market: Market, tmp_path: Path):
    with pytest.raises(
        ParameterError, match=r"trained on the encoder's local features; the encoder colour-h"
    ):
        train_reranker(
            market.manifest, tmp_path, market.root, "colour-histogram", {}, PLAIN["reranker_training"], tmp_path,
            cache=None, code="c", features_code="f",
        )  # fmt: skip
    with pytest.raises(InputError, match="no training image has a class to mine pairs from"):
        unlabelled = replace(market.manifest, label=[None] * len(market.manifest))
        train_reranker(
            unlabelled, tmp_path, market.root, ENCODER, SETTINGS, PLAIN["reranker_training"], tmp_path,
            cache=None, code="c", features_code="f",
        )  # fmt: skip
    out = tmp_path / "nothing"
    out.mkdir()
    train_reranker(
        market.manifest,
        tmp_path,
        market.root,
        ENCODER,
        SETTINGS,
        None,
        out,
        cache=None,
        code="",
        features_code="",
    )
    assert set(contents(out)) == {"training.json"}
    with pytest.raises(ArtifactError, match=r"training\.json: says of no network"):
        second_stage(market, tmp_path / "untrained", PLAIN, out)
    shutil.rmtree(tmp_path / "untrained")
