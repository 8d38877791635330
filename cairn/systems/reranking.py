"""The step `reranking`: the shortlist of each query in the order of a second stage."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ArtifactError
from cairn.files import write_json
from cairn.images.manifest import Manifest
from cairn.rerank import RerankParameters, load_reranker
from cairn.rerank.rankings import read_ranking, write_reranked
from cairn.results.names import later_stage
from cairn.systems.disk import tells_full_disk
from cairn.validation import validated

RERANKED_FILE = "reranked.parquet"
FACTS_FILE = "reranking.json"
FIRST_FACTS = "ranking.json"


@tells_full_disk
def rerank(
    ranking: Path,
    local: Path,
    manifest: Manifest,
    truth: GroundTruth,
    parameters: Mapping[str, Any],
    output: Path,
) -> None:
    """Write `reranked.parquet` and `reranking.json` into `output`; only the latter where the method is `none`.

    `ranking` is what `search` wrote, `local` what `extract_local` wrote; `parameters` as in RerankParameters.
    The rows are those of the ranking: the shortlist in its new order, everything behind with its old rank.
    `reranking.json` names the stage, null where there is none.
    """
    checked = validated(RerankParameters, parameters, "rerank")
    reranker = load_reranker(checked.method)
    if reranker is None:
        write_json(output / FACTS_FILE, {"stage": None, "note": "this system has no second stage"})
        return
    path = ranking / "ranking.parquet"
    queries = read_ranking(path, manifest.gallery_size)
    if [query.query_id for query in queries] != [query.query_id for query in truth.queries]:
        raise ArtifactError(f"{path}: its queries are not those of the ground truth; search again")
    first = json.loads((ranking / FIRST_FACTS).read_text("utf-8"))
    stage = later_stage(reranker.stage(checked), first["stage"])
    orders, extras = [], []
    for order, extra in reranker.rerank(queries, local, checked):
        orders.append(order)
        extras.append(extra)
    columns = {name: [extra[name] for extra in extras] for name in (extras[0] if extras else {})}
    facts = checked.model_dump(mode="json")
    write_reranked(output / RERANKED_FILE, queries, orders, stage, columns, rerank=facts)
    write_json(
        output / FACTS_FILE,
        {"stage": stage, "method": checked.method, "shortlist": checked.shortlist, "queries": len(queries)},
    )
