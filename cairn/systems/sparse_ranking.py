"""The step `ranking` over sparse descriptors: exact search through an inverted file."""

from pathlib import Path

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ArtifactError, InputError
from cairn.files import write_json
from cairn.images.manifest import Manifest
from cairn.search import SearchParameters
from cairn.search.inverted import build_inverted, inverted_search, write_inverted
from cairn.store.sparse import QUERIES_FILE, read_bags, sparse_shards
from cairn.systems.ranking import FACTS_FILE, RANKING_FILE, write_ranking
from cairn.systems.search_options import first_stage_slug

INVERTED_FILE = "inverted.parquet"


def search_sparse(
    descriptors: Path,
    manifest: Manifest,
    truth: GroundTruth,
    parameters: SearchParameters,
    output: Path,
    *,
    uncropped: bool = False,
) -> None:
    """Write `ranking.parquet`, `ranking.json` and, unless the index's kind is `none`, `inverted.parquet`.

    As `cairn.systems.ranking.search`. InputError where options are asked for that need dense descriptors.
    """
    if parameters.slug:
        raise InputError(
            f"search options ({parameters.slug}) need dense descriptors; those of this system are sparse"
        )
    queries = read_bags(descriptors / QUERIES_FILE, "query_id")
    rows = manifest.rows(gallery=True)
    row_of = {manifest.image_id[row]: int(row) for row in rows}
    index = build_inverted(sparse_shards(descriptors), row_of, queries.dim)
    position = {query_id: row for row, query_id in enumerate(queries.ids)}
    asked, judged, judged_ids = [], [], []
    for query in truth.queries:
        if query.query_id not in position:
            raise ArtifactError(f"{descriptors}: no descriptor for {query.query_id}; extract again")
        ids = sorted(truth.relevance.get(query.query_id, {}))
        absent = next((one for one in ids if one not in row_of), None)
        if absent is not None:
            raise InputError(f"query {query.query_id}: judged image {absent} is not in the gallery")
        asked.append(queries.bag(position[query.query_id]))
        judged.append(np.array([row_of[one] for one in ids], np.int64))
        judged_ids.append(ids)
    stage = first_stage_slug(parameters, None, uncropped)
    found = inverted_search(asked, index, parameters.top, judged)
    write_ranking(output / RANKING_FILE, manifest, truth, found, judged_ids, stage)
    facts = {
        "stage": stage,
        "queries": len(found),
        "gallery": len(rows),
        "top": min(parameters.top, len(rows)),
        "index": None,
    }
    if parameters.index.kind != "none":
        write_inverted(index, output / INVERTED_FILE)
        facts["index"] = {
            "kind": "inverted",
            "exact": True,
            "words": index.words,
            "postings": len(index.rows),
            "longest_list": int(np.diff(index.start).max(initial=0)),
        }
    write_json(output / FACTS_FILE, facts)
