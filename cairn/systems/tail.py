"""The step `tail`: a run's metric at a web-scale gallery, estimated from a sample of its distractors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import InputError
from cairn.files import write_json
from cairn.store.descriptors import DescriptorStore, open_queries, open_shards
from cairn.store.sparse import is_sparse
from cairn.systems.disk import tells_full_disk

FACTS_FILE = "tail.json"
FEWEST_KEPT = 90
"""Scores per query below which no tail is fitted: 5 exceedances over their 0.95 quantile."""
POSITIVES = ("positive", "easy", "hard")


class TailParameters(BaseModel):
    """`tail` of a benchmark; without it, nothing is estimated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gallery: Annotated[int, Field(ge=1, le=10**12)]
    """N: the number of distractors that the metric is estimated for."""
    metric: Annotated[str, Field(pattern=r"^map@[1-9][0-9]{0,8}$")] = "map@1000"
    sample: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Share of the distractors that are scored: a uniform sample of them, drawn from `seed`."""
    keep: Annotated[int, Field(ge=FEWEST_KEPT, le=1_000_000)] = 4000
    """Best sampled scores kept per query (the paper's T)."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


@tells_full_disk
def estimate_run(
    descriptors: Path, truth: GroundTruth, parameters: Mapping[str, Any] | None, output: Path
) -> None:
    """Write `tail.json`: estimates, intervals, diagnostics and warnings of `cairn.tail.estimate_tail`.

    Its `curve` is the metric against N: within the sample, and by each estimator beyond it.

    The pool of distractors is every gallery image that could be decoded and that no query judges; a query without
    positives is left out, a positive that could not be decoded scores -1, junk counts neither way. `parameters` are
    those of `TailParameters`, None where nothing is to be estimated (then the file says so). N counts distractors of
    the pool's kind: the images that are judged for other queries are not among them. Raises InputError where the
    sample is too small to fit a tail to.
    """
    if parameters is None:
        write_json(
            output / FACTS_FILE, {"estimates": {}, "note": "no tail estimate is asked for in params.yaml"}
        )
        return
    from cairn.tail.estimate import estimate_tail, parse_metric
    from cairn.tail.plots import gallery_table
    from cairn.tail.posterior import tell_first_use
    from cairn.tail.sampling import sample_rows, sampled_scores

    if is_sparse(descriptors):
        raise InputError("a tail is estimated from dense descriptors; those of this system are sparse")
    gallery, queries = open_shards(descriptors), open_queries(descriptors)
    pool = _pool(gallery, truth)
    size = round(parameters["sample"] * len(pool))
    drawn = f"tail.sample = {parameters['sample']:g} of the {len(pool)} images that no query judges is {size}"
    if size < FEWEST_KEPT:
        raise InputError(f"{drawn}: too few to fit a tail to; at least {FEWEST_KEPT} are needed")
    if parameters["gallery"] < size:
        raise InputError(
            f"{drawn}: more than tail.gallery = {parameters['gallery']}; a sample cannot exceed its pool"
        )
    rows = pool[sample_rows(len(pool), size, parameters["seed"])]
    asked = [q.query_id for q in truth.queries if truth.images(q.query_id, *POSITIVES)]
    if not asked:
        raise InputError("no query has a positive: there is nothing to estimate")
    positives = [truth.images(query_id, *POSITIVES) for query_id in asked]
    owner = np.repeat(np.arange(len(asked)), [len(images) for images in positives])
    wanted = gallery.rows_of([image for images in positives for image in images])
    searched, found_by = queries.take(queries.rows_of(asked)), gallery.take(wanted)
    missing = np.isin(wanted, gallery.missing_rows())
    found_by[missing] = -searched[owner[missing]]
    scores = sampled_scores(
        searched,
        gallery.blocks(),
        rows,
        owner,
        found_by,
        parameters["keep"],
    )
    tell_first_use()
    found = estimate_tail(
        scores, parameters["gallery"], parse_metric(parameters["metric"]), seed=parameters["seed"]
    )
    facts = {
        "parameters": dict(parameters),
        "pool": len(pool),
        "sample": size,
        "queries": len(asked),
        "positives": len(owner),
    }
    curve = gallery_table(scores, found, parameters["gallery"], parse_metric(parameters["metric"]))
    write_json(output / FACTS_FILE, {**facts, **found.record(), "curve": curve})


def _pool(gallery: DescriptorStore, truth: GroundTruth) -> np.ndarray:
    judged = {image for images in truth.relevance.values() for image in images}
    free = np.ones(len(gallery), bool)
    free[gallery.rows_of(sorted(judged))] = False
    free[gallery.missing_rows()] = False
    return np.flatnonzero(free)
