"""Recomputes every hash under the numbers, and names what differs and exactly the numbers it taints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cairn.lineage.checks import (
    check_chain,
    check_code,
    check_images,
    check_others,
    check_outputs,
    check_sources,
    check_table,
    code_notes,
    package_notes,
)
from cairn.lineage.entries import check_entries
from cairn.lineage.graph import CODE_FOLDER, load_graph, load_numbers
from cairn.lineage.hashing import hash_paths
from cairn.lineage.history import history_notes
from cairn.lineage.lock_checks import (
    Declared,
    check_commands,
    check_parameters,
    check_recorded,
    declared_notes,
)
from cairn.lineage.past import DigestOf
from cairn.lineage.rescoring import Rescore, check_scores
from cairn.lineage.revision import read_revision
from cairn.lineage.rows import check_rows
from cairn.lineage.scope import Finding, Scope
from cairn.results.names import resolve
from cairn.results.table import synthetic_benchmarks

ChangedCode = Callable[[Path, Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True)
class Verification:
    """What `verify` found. `numbers`: the names that were checked; counts are of what was read.

    `rescored`: whether every stored ranking was scored again; notes name those that could not be.
    """

    numbers: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    artifacts: int
    files: int
    size: int
    synthetic: tuple[str, ...] = field(default=())
    rescored: bool = False

    @property
    def tainted(self) -> tuple[str, ...]:
        """Every number that rests on something that differs or is missing."""
        return tuple(sorted({number for finding in self.findings for number in finding.numbers}))

    def passed(self, strict: bool = False) -> bool:
        """Whether nothing differs; with `strict`, whether there is no note either."""
        return not self.findings and not (strict and self.notes)

    def as_dict(self, strict: bool = False) -> dict[str, Any]:
        """For `--json`."""
        return {
            "passed": self.passed(strict),
            "strict": strict,
            "numbers": list(self.numbers),
            "synthetic_benchmarks": list(self.synthetic),
            "tainted": list(self.tainted),
            "findings": [{**asdict(finding), "numbers": list(finding.numbers)} for finding in self.findings],
            "notes": list(self.notes),
            "checked": {"artifacts": self.artifacts, "files": self.files, "bytes": self.size},
        }


def verify(
    root: Path,
    names: Sequence[str] = (),
    changed_code: ChangedCode | None = None,
    threads: int | None = None,
    digest_of: DigestOf | None = None,
    rescore: Rescore | None = None,
    declared: Mapping[str, Declared] | None = None,
) -> Verification:
    """Recompute the hashes of everything under the numbers called `names`; without names, of all that is recorded.

    `changed_code(root, record)` names the files whose code is no longer what a code file lists; it comes from
    whoever knows how code is digested, and so does `digest_of(path, content)`, with which the recorded code is
    looked up in git's history. `rescore(root, stage, folder)` runs a stage that scores once more, into `folder`,
    so that stored and recomputed numbers can be compared. `declared`: stage → what `params.yaml` declares it with,
    so that what was taken out of `dvc.lock` is noticed. Needs neither DVC nor Dagster. The
    result does not depend on `threads`. Raises LineageError or ArtifactError where there is nothing to start
    from: no `dvc.lock`, no results table, or one that is damaged; an unknown number.
    """
    graph = load_graph(root)
    numbers = load_numbers(root)
    known = [result.name for result in numbers]
    wanted = {resolve(name, known) for name in names} or set(known)
    chosen = [result for result in numbers if result.name in wanted]
    scope = Scope(graph, numbers, chosen)

    code = [CODE_FOLDER.rstrip("/")] if scope.codes else []
    paths = [*scope.outputs, *scope.others, *scope.readers, *scope.codes, *code]
    scope.content = hash_paths(graph.root, [*paths, *scope.folders], threads)

    findings: list[Finding] = list(scope.unrecorded)
    notes = list(read_revision(graph.root).notes)
    for check in (
        check_recorded,
        check_commands,
        check_parameters,
        check_entries,
        check_outputs,
        check_others,
        check_table,
        check_rows,
        check_chain,
        check_sources,
        check_images,
        check_code,
    ):
        found, said = check(scope)
        findings += found
        notes += said
    rescored = False
    if rescore is not None:
        found, said = check_scores(scope, rescore, changed_code)
        rescored = not said
        findings += found
        notes += said
    notes += package_notes(scope.codes.values())
    notes += declared_notes(scope, declared or {})
    notes += code_notes(scope, changed_code)
    if changed_code is not None and digest_of is not None:
        notes += history_notes(scope, changed_code, digest_of)
    benchmarks = {result.name.benchmark for result in chosen}
    return Verification(
        numbers=tuple(str(result.name) for result in chosen),
        findings=tuple(findings),
        notes=tuple(dict.fromkeys(notes)),
        artifacts=len(scope.outputs) + sum(1 for path in scope.others if scope.content[path].files),
        files=sum(len(scope.content[path].files) for path in dict.fromkeys(paths)),
        size=sum(scope.content[path].size for path in dict.fromkeys(paths)),
        synthetic=tuple(sorted(synthetic_benchmarks(graph.root, benchmarks))),
        rescored=rescored,
    )
