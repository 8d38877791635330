"""The parts of a card that lineage fills: protocols, training data, artifacts with hashes, sources."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.lineage.sources import Source
from cairn.lineage.tracing import Artifact, Trace
from cairn.results.names import NONE
from cairn.results.table import Result, benchmark_facts, read_json_object

# Parts of the effective parameters that belong to the benchmark, the rest are the system's.
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
            "protocol": facts.get("protocol"),
            "scored_by": {path: sha for code in scores.code for path, sha in code.modules.items()},
            "parameters": _parameters(trace, BENCHMARK_STEPS, inside=True),
            "artifact": trace.root,
            "md5": scores.md5,
        }
    for path, trace in sorted(traces.items()):
        name = trace.result.name
        runs.setdefault(name.benchmark, {})[name.system] = {
            "parameters": _parameters(trace, BENCHMARK_STEPS, inside=False),
            "stages": sorted({r.name.stage for r in numbers if r.source_artifact == path}),
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
    heads = sorted({result.name.head for result in numbers if result.name.head != NONE})
    if not made and not heads:
        return {"status": "no data", "reason": "no number rests on training images or a trained head"}
    return {"images": dict(sorted(made.items())), "heads": heads}


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
