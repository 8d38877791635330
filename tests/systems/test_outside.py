"""FORB's thresholds after a second stage: as if the out-of-distribution gallery had been searched on its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cairn.benchmarks.structure import OUTSIDE, GroundTruth
from cairn.cache import Cache
from cairn.errors import ArtifactError
from cairn.images.manifest import build_manifest, list_entries, manifest_of
from cairn.metrics.evaluate import score_ranking
from cairn.rerank import RerankParameters, parts
from cairn.rerank.outside import read_outside
from cairn.results.scoring import stages
from cairn.systems.descriptors import extract_descriptors
from cairn.systems.local import extract_local
from cairn.systems.ranking import search
from cairn.systems.reranking import rerank
from tests.systems.market import ENCODER, SETTINGS, Market


@pytest.fixture(scope="module")
def whole(market: Market) -> Market:
    """The market, whose distractors are the gallery without positives."""
    inside = [name for name in market.manifest.image_id if name[0] == "g" and name[1] != "9"]
    marked = {name: {OUTSIDE: "no"} for name in inside}
    return replace(market, truth=replace(market.truth, image_attributes=marked))


@pytest.fixture(scope="module")
def outside(whole: Market, tmp_path_factory: pytest.TempPathFactory) -> Market:
    """The same queries, descriptors and search over the distractors alone."""
    entries = []
    for entry in list_entries("images", whole.root):
        stem = Path(entry.member).stem
        if stem[0] == "q" or stem.startswith("g9"):
            entries.append(replace(entry, image_id=stem, gallery=stem[0] == "g", query=stem[0] == "q"))
    manifest = manifest_of(build_manifest(entries, whole.root))
    out = tmp_path_factory.mktemp("outside")
    for step in ("descriptors", "ranking"):
        (out / step).mkdir()
    queries = GroundTruth(whole.truth.queries, {})
    where = (whole.root, whole.out / "vocabulary", ENCODER, SETTINGS)
    cache = Cache(whole.root / "cache")
    extract_descriptors(
        manifest, queries, *where, out / "descriptors", cache=cache, code="c", features_code="f"
    )
    search(out / "descriptors", manifest, queries, {"top": 60, "index": {"kind": "none"}}, out / "ranking")
    return Market(whole.root, manifest, queries, out)


def second_stage(market: Market, output: Path, of: dict[str, Any]) -> Path:
    """The steps `local` and `reranking`; the latter's folder."""
    more: dict[str, Any] = {
        "descriptors": market.out / "descriptors", "relevance": market.truth.relevance, "graded": market.truth,
    }  # fmt: skip
    for step in ("local", "reranking"):
        (output / step).mkdir(parents=True)
    ranking, queries, cache = market.out / "ranking", market.queries, Cache(market.root / "cache")
    system = (market.root, ENCODER, SETTINGS, of["local"])
    extract_local(
        ranking, market.manifest, queries, *system, output / "local", **more, cache=cache, features_code="f"
    )
    arguments = (ranking, output / "local", market.manifest, queries, of["rerank"], output / "reranking")
    rerank(*arguments, **more, root=market.root)
    return output / "reranking"


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "geometry", "shortlist": 8},
        {"method": "aqe", "shortlist": 12},
        {"method": "geometry", "shortlist": 6, "after": {"method": "superglobal", "shortlist": 20}},
    ],
    ids=lambda asked: asked["method"] + ("-chained" if "after" in asked else ""),
)
def test_thresholds_are_those_of_a_run_over_the_other_gallery(whole, outside, tmp_path, asked):
    of = parts(RerankParameters.model_validate(asked))
    reranked = second_stage(whole, tmp_path / "whole", of)
    alone = second_stage(outside, tmp_path / "alone", of)
    assert not (alone / "outside.parquet").exists()
    found = stages(whole.out / "ranking", reranked)[1:]
    theirs = stages(outside.out / "ranking", alone)[1:]
    assert [stage for stage, _ in found] == [stage for stage, _ in theirs]
    assert len(found) == (2 if "after" in asked else 1)
    for (stage, path), (_, other) in zip(found, theirs, strict=True):
        best: dict[str, float] = {}
        for row in pq.read_table(other).to_pylist():
            best[row["query_id"]] = max(best.get(row["query_id"], -9), row["score"])
        tops = read_outside(reranked, stage)
        assert tops == pytest.approx(best, abs=1e-6)
        # The whole gallery's own list would give other thresholds: its shortlist holds other images.
        run = score_ranking(
            pq.read_table(path), whole.truth, "forb", whole.manifest.gallery_size, outside=tops
        )
        assert 0 <= run.value("overall", "t-map@5") <= run.value("overall", "map@5") <= 1
    assert read_outside(reranked, "another") == {}


def test_a_ranking_that_holds_too_little_of_the_other_gallery_says_so(whole, tmp_path):
    of = parts(RerankParameters.model_validate({"method": "geometry", "shortlist": 39}))
    with pytest.raises(ArtifactError, match=r"images are out of distribution; .* raise search\.top"):
        second_stage(whole, tmp_path, of)


def test_a_query_without_a_threshold_is_named(whole, tmp_path):
    of = parts(RerankParameters.model_validate({"method": "aqe", "shortlist": 12}))
    path = second_stage(whole, tmp_path, of) / "reranked.parquet"
    size = whole.manifest.gallery_size
    with pytest.raises(ArtifactError, match="query q00-0 has no score in the out-of-distribution gallery"):
        score_ranking(pq.read_table(path), whole.truth, "forb", size, outside={"q01-0": 0.5})
    assert score_ranking(pq.read_table(path), whole.truth, "forb", size).value("overall", "t-map@5") is None
