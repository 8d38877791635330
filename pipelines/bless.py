"""Accepts old bytes under new code, with evidence: recompute, compare, record, and only then tell DVC."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cairn.errors import ArtifactError, UsageError
from cairn.files import dvc_digest, write_json
from cairn.parameters import load_parameters
from pipelines.bridge import PATIENCE, commit_stage, read_lock, status, update_code
from pipelines.generate import recorded_parameters
from pipelines.graph import Node, build_graph
from pipelines.project import BLESSINGS, PARAMETERS
from pipelines.runner import PACKAGES_FILE, job_of, read_record
from pipelines.versions import data_version


@dataclass(frozen=True)
class Comparison:
    """What was recomputed and what came out: `compared` items, the largest difference, and the ones that differ."""

    compared: int
    unit: str
    largest_difference: float
    different: tuple[str, ...]


def bless(
    root: Path, step: str, key: str, *, sample: int, seed: int, tolerance: float
) -> list[dict[str, Any]]:
    """Bless every stale output of `step` (of one run or benchmark where `key` is given); the records written.

    Only where its code alone changed: an output whose parameters or inputs changed has to be made again. The
    sample is recomputed with an empty cache. Raises `UsageError` where there is nothing to bless,
    `ArtifactError` where the recomputed values differ by more than `tolerance` (0: equal bytes).
    """
    parameters = load_parameters(root / PARAMETERS)
    update_code(root, PATIENCE)
    stale, lock = status(root), read_lock(root)
    nodes = [n for n in build_graph(parameters).values() if n.step.name == step and key in ("", n.key)]
    if not nodes:
        raise UsageError(f"no step {step!r} of {key or 'any run'}; `cairn status` lists what is stale")
    records = []
    for node in nodes:
        if node.stage not in stale:
            continue
        _only_code_changed(node, stale[node.stage])
        entry = lock[node.stage]
        if dvc_digest(root / node.output) != data_version(node, entry):
            raise ArtifactError(
                f"{node.output} is not what dvc.lock records; `dvc checkout {node.output}` first"
            )
        result = _compare(root, node, sample, seed)
        if result.different and (tolerance == 0 or result.largest_difference > tolerance):
            raise ArtifactError(
                f"{node.stage} comes out different under the new code: {result.different[0]} and "
                f"{len(result.different) - 1} more of {result.compared} {result.unit} "
                f"(largest difference {result.largest_difference:.3g}); run it again with `dvc repro {node.stage}`"
            )
        records.append(_record(root, node, entry, result, sample, seed, tolerance))
    if not records:
        raise UsageError(f"nothing to bless: no output of {step} is stale")
    return records


def _only_code_changed(node: Node, changes: list[Any]) -> None:
    for change in changes:
        for kind, what in change.items() if isinstance(change, Mapping) else [(change, None)]:
            code_alone = (
                kind == "changed deps" and set(what) == {node.code} and set(what[node.code]) == {"digest"}
            )
            if not code_alone:
                raise UsageError(
                    f"{node.stage}: {kind} ({', '.join(what or [])}): more than its code changed, so the old bytes "
                    "cannot stand; run it again with `dvc repro`"
                )


def _compare(root: Path, node: Node, sample: int, seed: int) -> Comparison:
    record = read_record(root, node)
    os.chdir(root)
    with tempfile.TemporaryDirectory(prefix="bless-", dir=root / ".cairn") as scratch:
        os.environ["CAIRN_CACHE"] = str(Path(scratch) / "cache")
        output = Path(scratch) / "output"
        output.mkdir()
        job = job_of(node, record, root, output)
        if node.step.sample is not None and sample > 0:
            return Comparison(**node.step.sample(job, root / node.output, sample, seed))
        node.step.function(job)
        write_json(output / PACKAGES_FILE, record["packages"])
        return _compare_files(root / node.output, output)


def _compare_files(old: Path, new: Path) -> Comparison:
    names = {
        p.relative_to(folder).as_posix() for folder in (old, new) for p in folder.rglob("*") if p.is_file()
    }
    different = tuple(
        name
        for name in sorted(names)
        if not (old / name).is_file()
        or not (new / name).is_file()
        or (old / name).read_bytes() != (new / name).read_bytes()
    )
    return Comparison(len(names), "files", float("inf") if different else 0.0, different)


def _record(
    root: Path,
    node: Node,
    entry: Mapping[str, Any],
    result: Comparison,
    sample: int,
    seed: int,
    tolerance: float,
) -> dict[str, Any]:
    path = root / BLESSINGS
    known = json.loads(path.read_text("utf-8")) if path.is_file() else []
    record = {
        "stage": node.stage,
        "output": node.output,
        "output_hash": data_version(node, entry),
        "old_digest": recorded_parameters(entry)["digest"],
        "new_digest": read_record(root, node)["digest"],
        "sample": sample,
        "seed": seed,
        "tolerance": tolerance,
        **asdict(result),
    }
    write_json(path, [*known, record])
    commit_stage(root, node.stage)
    return record
