"""The parts of a card that lineage fills: protocols, training data, artifacts with hashes, sources."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.lineage.graph import load_graph
from cairn.lineage.sources import Source
from cairn.lineage.tables import flattened, run_of, step_of
from cairn.lineage.tracing import Artifact, Trace
from cairn.results.names import NONE, is_first
from cairn.results.show import protocol_words
from cairn.results.table import Result, benchmark_facts, read_json_object

# Parts of the effective parameters that belong to the benchmark, the rest are the system's.
# The step that audited → the file in which it says what it found.
AUDITS = {"contamination": "contamination.json", "verification": "image_audit.json"}
_SHORTLIST = re.compile(r"(?:^|-)k(\d+)(?:-|$)")
BENCHMARK_STEPS = ("sources", "manifest", "ground_truth", "training")


def protocol_section(root: Path, numbers: Sequence[Result], traces: Mapping[str, Trace]) -> dict[str, Any]:
    """How each benchmark was scored, and the effective parameters of each run, from the records of its stages."""
    benchmarks: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    for benchmark in sorted({result.name.benchmark for result in numbers}):
        own = [result for result in numbers if result.name.benchmark == benchmark]
        facts = benchmark_facts(root, benchmark)
        trace = traces[own[0].source_artifact]
        scores = trace.artifacts[trace.root]
        benchmarks[benchmark] = {
            "title": str(facts.get("title", benchmark)),
            "synthetic": trace.synthetic,
            "queries": _span(result.n_queries for result in own),
            "gallery": _span(result.gallery_size for result in own),
            "notes": [str(note) for note in _list(facts.get("notes"))],
            "protocol": protocol_words(facts, own) or None,
            "harness": {
                "name": "Cairn: its own implementation of the protocol",
                "code_digest": next((code.digest for code in scores.code), None),
                "packages": {
                    name: version for code in scores.code for name, version in code.packages.items()
                },
            },
            "scored_by": {path: sha for code in scores.code for path, sha in code.modules.items()},
            "parameters": _parameters(trace, BENCHMARK_STEPS, inside=True),
            "artifact": trace.root,
            "md5": scores.md5,
        }
    for path, trace in sorted(traces.items()):
        stages = sorted({r.name.stage for r in numbers if r.source_artifact == path})
        runs.setdefault(trace.result.name.benchmark, {})[_run_label(trace.result)] = {
            "parameters": _parameters(trace, BENCHMARK_STEPS, inside=False),
            "stages": stages,
            "second_stages": {
                stage: {"shortlist": shortlist_of(trace, stage), "cell": _cell(root, trace, stage)}
                for stage in stages
                if not is_first(stage) and not stage.startswith("tail-")
            },
            "descriptors": _facts(root, trace, "descriptors", ("dim", "dtype", "encoder", "facts")),
            "search": _facts(root, trace, "ranking", ("index", "top")),
            "artifact": path,
            "md5": trace.artifacts[trace.root].md5,
        }
    return {"benchmarks": benchmarks, "runs": runs}


def training_section(root: Path, numbers: Sequence[Result], traces: Mapping[str, Trace]) -> dict[str, Any]:
    """Which training images each benchmark's systems may learn from, and the heads that were trained."""
    made: dict[str, Any] = {}
    for trace in traces.values():
        for path, artifact in trace.artifacts.items():
            if artifact.step != "training":
                continue
            record = read_json_object(root / path / "training.json") or {}
            made[path] = {
                "for_benchmarks": sorted(
                    {t.result.name.benchmark for t in traces.values() if path in t.artifacts}
                ),
                "from": record.get("from"),
                "train_images": record.get("images"),
                "note": record.get("note"),
                "artifact": path,
                "md5": artifact.md5,
            }
    heads: dict[str, Any] = {}
    for head in sorted({result.name.head for result in numbers if result.name.head != NONE}):
        heads[head] = {"artifacts": _heads(root, traces, head)}
    if not made and not heads:
        return {"status": "no data", "reason": "no number rests on training images or a trained head"}
    return {"images": dict(sorted(made.items())), "heads": heads}


def contamination_section(root: Path, numbers: Sequence[Result]) -> dict[str, Any]:
    """What the audits of the training sets found, per benchmark and, picture by picture, per system with heads."""
    headed = {(row.name.benchmark, row.name.system) for row in numbers if row.name.head != NONE}
    graph = load_graph(root)
    made: dict[str, Any] = {}
    reasons: list[str] = []
    for benchmark in sorted({row.name.benchmark for row in numbers}):
        for path, recorded in sorted(graph.outputs.items()):
            step = step_of(graph.producer[path])
            if run_of(path)[0] != benchmark or step not in AUDITS:
                continue
            if step != "contamination" and run_of(path) not in headed:
                continue  # of heads that are no longer listed
            facts = read_json_object(root / path / AUDITS[step])
            if facts is None:
                continue
            if facts.get("audited") is not True:
                reasons.append(f"{path}: {facts.get('note', 'not audited')}")
                continue
            entry = made.setdefault(benchmark, {"classes": None, "images": {}})
            found = {"artifact": path, "md5": recorded.md5, "found": _found(facts)}
            if step == "contamination":
                entry["classes"] = found
            else:
                entry["images"][run_of(path)[1]] = found
    if made:
        return made
    return {
        "status": "no data",
        "reason": "; ".join(reasons) or "no contamination audit is among the artifacts",
    }


def _found(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The gist of an audit: how it looked, what it flagged in that stance, and how sure it is.

    All of it stands in the artifact; a card that repeated its every count would state each in many places.
    """
    stance = facts.get("stance")
    made = {key: facts[key] for key in ("training", "stance", "landmarks", "minimum_images") if key in facts}
    flagged = facts.get("flagged")
    if isinstance(flagged, Mapping) and isinstance(flagged.get(stance), Mapping):
        made["flagged"] = dict(flagged[stance])
    if isinstance(facts.get("reconciliation"), str):
        made["reconciliation"] = facts["reconciliation"]
    precision = facts.get("precision")
    if isinstance(precision, list) and precision and isinstance(precision[0], Mapping):
        # The first is over all rules: of the flagged images and classes, how many the detector confirms.
        for key, name in (("image_precision", "confirmed_images"), ("class_precision", "confirmed_classes")):
            made |= _counted(precision[0].get(key), name, "checked")
    made |= _counted(facts.get("recall"), "flagged_of_confirmed_images", "confirmed")
    return made


def _counted(share: Any, name: str, whole: str) -> dict[str, Any]:
    """Both counts of a ratio."""
    if not isinstance(share, Mapping) or not {"part", "whole"} <= share.keys():
        return {}
    return {name: {"count": share["part"], whole: share["whole"]}}


def shortlist_of(trace: Trace, stage: str) -> int | None:
    """How many images a stage reorders: what its name says (`ames-k1600`), else its recorded parameters."""
    if is_first(stage):
        return None
    said = _SHORTLIST.search(stage)
    if said:
        return int(said.group(1))
    for artifact in trace.artifacts.values():
        if artifact.step == "reranking":
            for code in artifact.code:
                for key, value in flattened(code.parameters):
                    if key.rsplit(".", 1)[-1] in ("shortlist", "k") and isinstance(value, int):
                        return value
    return None


def _run_label(result: Result) -> str:
    name = result.name
    return name.system if name.head == NONE else f"{name.system}/{name.head}"


def _cell(root: Path, trace: Trace, stage: str) -> dict[str, Any]:
    """The settings of the second stage that made `stage`, as its own record and its parameters have them."""
    for path, artifact in trace.artifacts.items():
        record = read_json_object(root / path / "reranking.json") if artifact.step == "reranking" else None
        if record and record.get("stage") == stage:
            method = str(record.get("method", ""))
            given = [code.parameters.get("rerank", code.parameters) for code in artifact.code]
            own = [p.get(method) for p in given if isinstance(p, Mapping)]
            return {"method": method, **next((dict(x) for x in own if isinstance(x, Mapping)), {})}
    return {}


def _facts(root: Path, trace: Trace, step: str, keys: Iterable[str]) -> dict[str, Any]:
    """Those of `keys` that the artifact of `step` says of itself: precision and size of what was compared."""
    for path, artifact in trace.artifacts.items():
        if artifact.step == step and path.rsplit("/", 1)[-1] == step:
            record = read_json_object(root / path / f"{step}.json") or {}
            return {key: record[key] for key in keys if key in record}
    return {}


def _heads(root: Path, traces: Mapping[str, Trace], head: str) -> dict[str, Any]:
    """The artifacts with heads of this training protocol: how many classes and images, which seeds."""
    made: dict[str, Any] = {}
    for trace in traces.values():
        for path, artifact in trace.artifacts.items():
            record = read_json_object(root / path / "heads.json") if artifact.step == "heads" else None
            if record is not None and record.get("protocol") == head:
                made[path] = {
                    "md5": artifact.md5,
                    "train_classes": record.get("classes"),
                    "train_images": record.get("images"),
                    "seeds": sorted(record.get("seeds") or {}),
                }
    return dict(sorted(made.items()))


def artifacts_section(traces: Mapping[str, Trace]) -> dict[str, Any]:
    """Every artifact under a number: hash, size, stage, command, code digest, inputs with their hashes."""
    made: dict[str, Any] = {}
    for trace in traces.values():
        for path, artifact in trace.artifacts.items():
            made[path] = _artifact(artifact)
    return dict(sorted(made.items()))


def sources_section(traces: Mapping[str, Trace]) -> list[dict[str, Any]]:
    """Every source under a number, with what pins it; `problem` says why one is not pinned."""
    found: dict[tuple[str, str], Source] = {}
    for trace in traces.values():
        for source in trace.sources:
            found[(source.location, source.name)] = source
    return [_source(found[key]) for key in sorted(found)]


def _artifact(artifact: Artifact) -> dict[str, Any]:
    return {
        "md5": artifact.md5,
        "size": artifact.size,
        "files": artifact.files,
        "stage": artifact.stage,
        "command": artifact.command,
        "code": [
            {
                "path": code.path,
                "digest": code.digest,
                "packages": dict(code.packages),
                "current": code.current,
            }
            for code in artifact.code
        ],
        "inputs": {item.path: item.md5 for item in artifact.inputs},
        "notes": list(artifact.notes),
    }


def _source(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "location": source.location,
        "checksums": dict(source.checksums),
        "recorded_in": source.recorded_in,
        "size": source.size,
        "licence": source.licence,
        "retrieved": source.retrieved,
        "synthetic": source.synthetic,
        "note": source.note,
        "status": source.status,
        "problem": source.problem,
    }


def _parameters(trace: Trace, steps: Iterable[str], inside: bool) -> dict[str, Any]:
    """Step → the effective parameters that were recorded for it."""
    made: dict[str, Any] = {}
    for artifact in trace.artifacts.values():
        kind = next((step for step in steps if artifact.step.startswith(step)), None)
        if (kind is not None) == inside:
            recorded: dict[str, Any] = {}
            for code in artifact.code:
                recorded |= code.parameters
            if recorded:
                made[kind or artifact.step] = recorded
    return dict(sorted(made.items()))


def _span(values: Iterable[int]) -> int | dict[str, int]:
    """One number where all agree, else the smallest and the largest."""
    distinct = sorted(set(values))
    return distinct[0] if len(distinct) == 1 else {"from": distinct[0], "to": distinct[-1]}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []
