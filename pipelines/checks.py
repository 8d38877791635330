"""Asset checks: counts, hashes, ranges and protocol of what a stage made; a failed one blocks what is downstream."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from cairn.errors import CairnError
from pipelines.bridge import read_lock
from pipelines.generate import recorded_parameters
from pipelines.graph import Node
from pipelines.versions import data_version


@dataclass(frozen=True)
class Outcome:
    """What a check found: `problem` in one line, None where all is well; `facts` are shown beside it."""

    problem: str | None
    facts: dict[str, Any] = field(default_factory=dict)


Look = Callable[[Path, Node], Outcome]


@dataclass(frozen=True)
class Check:
    """A check of one step. `only_warns`: a failure is shown and blocks nothing."""

    name: str
    description: str
    look: Look
    only_warns: bool = False


def content_matches_lock(root: Path, node: Node) -> Outcome:
    """A tampered or deleted output leaves Dagster fresh: only its bytes tell."""
    from cairn.files import dvc_digest

    entry, path = read_lock(root).get(node.stage), root / node.output
    recorded = data_version(node, entry) if entry else "not in dvc.lock"
    found = dvc_digest(path) if path.exists() else "missing"
    problem = (
        None if found == recorded else f"{node.output} is {found}, dvc.lock has {recorded}: `dvc checkout`"
    )
    return Outcome(problem, {"recorded": recorded, "found": found})


def manifest_counts(root: Path, node: Node) -> Outcome:
    """The manifest lists images, every one once, and some of them are a gallery."""
    from cairn.images.manifest import read_manifest

    images = read_manifest(root / node.output / "manifest.parquet")
    facts = {"images": len(images), "gallery": images.gallery_size}
    if len(set(images.image_id)) != len(images):
        return Outcome(f"{len(images) - len(set(images.image_id))} image ids occur twice", facts)
    return Outcome(None if images.gallery_size else "no image is in the gallery", facts)


def truth_counts(root: Path, node: Node) -> Outcome:
    """Every query image and judged image is in the manifest, and some query has a positive."""
    from cairn.benchmarks.structure import check_images, read_ground_truth
    from cairn.images.manifest import read_manifest

    truth = read_ground_truth(root / node.output)
    images = read_manifest(root / node.inputs["manifest"] / "manifest.parquet")
    check_images(truth, images.image_id)
    positives = sum(len(truth.images(query.query_id, "positive", "easy", "hard")) for query in truth.queries)
    distractors = sum(truth.is_distractor(query.query_id) for query in truth.queries)
    facts = {"queries": len(truth.queries), "positives": positives, "queries without a match": distractors}
    return Outcome(None if positives else "no query has a positive: nothing can be scored", facts)


def ranking_counts(root: Path, node: Node) -> Outcome:
    """Every query is ranked, every judged image has its rank, and ranks lie in the gallery."""
    import pyarrow.parquet as pq

    from cairn.benchmarks.structure import read_ground_truth
    from cairn.images.manifest import read_manifest
    from cairn.metrics.judged import ranked_rows

    truth = read_ground_truth(root / node.inputs["ground_truth"])
    images = read_manifest(root / node.inputs["manifest"] / "manifest.parquet")
    table = pq.ParquetFile(root / node.output / "ranking.parquet").read()
    rows = ranked_rows(table, truth, images.gallery_size, where=node.output)
    missing = int(rows.n_with("positive", "easy", "hard").sum()) - int(
        rows.has("positive", "easy", "hard").sum()
    )
    facts = {"queries": len(rows.query_ids), "rows": len(rows.rank), "top": rows.top}
    return Outcome(f"{missing} positives have no rank" if missing else None, facts)


def score_ranges(root: Path, node: Node) -> Outcome:
    """Fractions lie in 0–1 and in their intervals, counts are those of the ground truth."""
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.results import read_results

    rows = read_results(root / node.output / "scores.parquet")
    queries = len(read_ground_truth(root / node.inputs["ground_truth"]).queries)
    facts = {"numbers": len(rows), "queries": queries}
    if not rows:
        return Outcome("there are no numbers", facts)
    for row in rows:
        if row.unit == "fraction" and not 0 <= row.value <= 1:
            return Outcome(f"{row.name} is {row.value}: a fraction lies between 0 and 1", facts)
        if row.low is not None and row.high is not None and not 0 <= row.low <= row.high <= 1:
            return Outcome(f"{row.name}: {row.low} to {row.high} is no interval of fractions", facts)
        if row.n_queries > queries:
            return Outcome(f"{row.name} counts {row.n_queries} queries, the benchmark has {queries}", facts)
    return Outcome(None, facts)


def protocol_is_official(root: Path, node: Node) -> Outcome:
    """The metric is the benchmark's own: a number by another one is comparable with no published row."""
    from cairn.benchmarks.adapters import load_adapter
    from cairn.parameters import load_parameters
    from pipelines.project import PARAMETERS

    entry = load_parameters(root / PARAMETERS).benchmarks[node.benchmark]
    adapter = load_adapter(entry["adapter"], f"benchmarks.{node.benchmark}.adapter")
    used = recorded_parameters(read_lock(root).get(node.stage, {})).get("parameters", {}).get("metric")
    facts = {"used": str(used), "official": str(adapter.METRIC), "protocol": protocol_of(adapter)}
    if entry["adapter"] == "folder" or used == adapter.METRIC:
        return Outcome(None, facts)
    return Outcome(f"scored by {used}; the benchmark's own protocol is {adapter.METRIC}", facts)


def protocol_of(adapter: Any) -> str:
    """What an adapter says of its benchmark's protocol and where it comes from."""
    return str(getattr(adapter, "ABOUT", {}).get("protocol") or "")


SAME = Check("content_matches_lock", "Bytes on disk hash to dvc.lock's.", content_matches_lock)
CHECKS: dict[str, tuple[Check, ...]] = {
    "manifest": (Check("counts", "Images are listed once; some are a gallery.", manifest_counts),),
    "ground_truth": (Check("counts", "Queries and judged images are in the manifest.", truth_counts),),
    "ranking": (Check("counts", "Every query is ranked, every positive has a rank.", ranking_counts),),
    "scores": (
        Check("score_ranges", "Fractions in 0–1, intervals in order, counts as in the truth.", score_ranges),
        Check(
            "protocol_audit", "Scored by the benchmark's own protocol.", protocol_is_official, only_warns=True
        ),
    ),
}


def checks_of(root: Path, node: Node) -> Iterator[dg.AssetChecksDefinition]:
    """The checks of a node's asset; they run with the asset, and a failed one stops its run's downstream assets."""
    for check in (SAME, *CHECKS.get(node.step.name, ())):
        yield _defined(root, node, check)


def _defined(root: Path, node: Node, check: Check) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=dg.AssetKey(node.asset),
        name=check.name,
        description=check.description,
        blocking=not check.only_warns,
    )
    def looked() -> dg.AssetCheckResult:
        found = judged(root, node, check)
        severity = dg.AssetCheckSeverity.WARN if check.only_warns else dg.AssetCheckSeverity.ERROR
        metadata = {**found.facts, **({"problem": found.problem} if found.problem else {})}
        return dg.AssetCheckResult(
            passed=found.problem is None, severity=severity, metadata=metadata, description=found.problem
        )

    return looked


def judged(root: Path, node: Node, check: Check) -> Outcome:
    """What `check` finds; a file that cannot be read is a finding, not a crash."""
    try:
        return check.look(root, node)
    except (CairnError, OSError, ValueError) as error:
        return Outcome(str(error).splitlines()[0])
