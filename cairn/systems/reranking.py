"""The step `reranking`: the shortlist of each query in the order of a second stage, or its logits per pair."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache
from cairn.errors import ArtifactError
from cairn.files import write_json
from cairn.images.manifest import Manifest
from cairn.rerank import RerankParameters, load_reranker
from cairn.rerank.chains import after_earlier
from cairn.rerank.outside import OUTSIDE_FILE, before_last, deepest, outside_lists, write_outside
from cairn.rerank.pairs import PAIRS_FILE, Relevance, write_pairs
from cairn.rerank.parameters import BY_DESCRIPTORS
from cairn.rerank.rankings import (
    EARLIER_FILE,
    FACTS_FILE,
    RERANKED_FILE,
    first_stage,
    read_ranking,
    write_reranked,
)
from cairn.rerank.two_stage import RankedQuery, RerankedQuery, chained
from cairn.results.names import later_stage
from cairn.systems.disk import tells_full_disk
from cairn.systems.local import read_contents
from cairn.validation import validated


@tells_full_disk
def rerank(
    ranking: Path,
    local: Path,
    manifest: Manifest,
    truth: GroundTruth,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    descriptors: Path | None = None,
    relevance: Relevance | None = None,
    graded: GroundTruth | None = None,
    reranker: Path | None = None,
    root: Path = Path(),
    cache: Cache | None = None,
    code: str = "",
) -> None:
    """Write `reranking.json` into `output`, and `reranked.parquet`, or for `ames` `pairs.parquet`.

    `ranking` is what `search` wrote, `local` what `extract_local` wrote, `reranker` what `train_reranker` wrote,
    `descriptors` what was searched; `parameters` as in RerankParameters. `relevance` {query: {image: grade}}
    says which pairs the protocol of `ames` needs. The rows of `reranked.parquet` are those of the ranking: the
    shortlist in its new order, everything behind with its old rank; `pairs.parquet` has one row per pair.
    Where another method comes before (`after`), its list is `earlier.parquet`. `reranking.json` names the
    stages, null where there is none. `graded` is the whole ground truth: where it marks an out-of-distribution
    gallery, `outside.parquet` has each query's best score there (not for `ames`). Finished queries of `ames` and
    `geometry` are kept in `cache` under `code`.
    """
    checked = validated(RerankParameters, parameters, "rerank")
    if checked.method == "none":
        write_json(output / FACTS_FILE, {"stage": None, "note": "this system has no second stage"})
        return
    path = ranking / "ranking.parquet"
    queries: Sequence[RankedQuery] = read_ranking(path, manifest.gallery_size)
    if [query.query_id for query in queries] != [query.query_id for query in truth.queries]:
        raise ArtifactError(f"{path}: its queries are not those of the ground truth; search again")
    searched_by = first_stage(ranking)
    facts: dict[str, Any] = {
        "method": checked.method,
        "shortlist": checked.k,
        "queries": len(queries),
        "earlier": None,
    }
    if checked.after is not None:
        assert descriptors is not None
        changed, queries, earlier_slug = after_earlier(queries, descriptors, manifest, checked.after)
        facts["earlier"] = later_stage(earlier_slug, searched_by)
        first = read_ranking(path, manifest.gallery_size)
        write_reranked(
            output / EARLIER_FILE, first, changed, facts["earlier"], rerank=dict(parameters["after"])
        )
    module = load_reranker(checked.method)
    assert module is not None
    if checked.method == "ames":
        assert reranker is not None and relevance is not None
        logits, found = module.score(
            queries,
            local,
            checked,
            relevance,
            reranker,
            root,
            contents=read_contents(local),
            workspace=output,
            cache=cache,
            code=code,
        )
        write_pairs(output / PAIRS_FILE, queries, logits, **found)
        # How logits and similarities are mixed, and so the stage's name, is the step scores' affair.
        write_json(output / FACTS_FILE, facts | found | {"stage": None})
        if cache is not None:
            cache.prune()
        return
    orders, columns = _orders(module, queries, local, descriptors, manifest, checked, cache, code)
    own = module.stage(checked)
    facts["stage"] = chained(facts["earlier"], own) if facts["earlier"] else later_stage(own, searched_by)
    write_reranked(output / RERANKED_FILE, queries, orders, facts["stage"], columns, rerank=dict(parameters))
    write_json(output / FACTS_FILE, facts)
    lists = outside_lists(
        read_ranking(path, manifest.gallery_size), graded or truth, manifest, deepest(checked)
    )
    if lists:
        seen, changed = before_last(lists, descriptors, manifest, checked)
        last, _ = _orders(module, seen, local, descriptors, manifest, checked, cache, code)
        earlier = {facts["earlier"]: changed} if changed is not None else {}
        write_outside(output / OUTSIDE_FILE, lists, {**earlier, facts["stage"]: last})
    if cache is not None:
        cache.prune()


def _orders(
    module: Any,
    queries: Sequence[RankedQuery],
    local: Path,
    descriptors: Path | None,
    manifest: Manifest,
    parameters: RerankParameters,
    cache: Cache | None,
    code: str,
) -> tuple[list[RerankedQuery], dict[str, list[Any]]]:
    """The lists in the order of a method without logits, and the columns of evidence it gives."""
    if parameters.method in BY_DESCRIPTORS:
        assert descriptors is not None
        return module.rerank(queries, descriptors, manifest, parameters), {}
    orders: list[RerankedQuery] = []
    columns: dict[str, list[Any]] = {}
    for order, extra in module.rerank(queries, local, parameters, cache=cache, code=code):
        orders.append(order)
        for name, values in extra.items():
            columns.setdefault(name, []).append(values)
    return orders, columns
