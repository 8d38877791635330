"""Stages that follow one another: a method by descriptors, then one by pairs."""

from collections.abc import Sequence
from pathlib import Path

from cairn.images.manifest import Manifest
from cairn.rerank.parameters import Earlier
from cairn.rerank.superglobal import as_ranking
from cairn.rerank.two_stage import RankedQuery, RerankedQuery


def after_earlier(
    queries: Sequence[RankedQuery], descriptors: Path, manifest: Manifest, earlier: Earlier
) -> tuple[list[RerankedQuery], list[RankedQuery], str]:
    """What the earlier method makes of each query's list, the same as a ranking, and the stage's slug."""
    from cairn.rerank import load_reranker

    module = load_reranker(earlier.method)
    assert module is not None
    changed = module.rerank(queries, descriptors, manifest, earlier)
    return changed, as_ranking(queries, changed), module.stage(earlier)
