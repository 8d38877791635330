"""The graph as a git revision recorded it: its `dvc.lock`, and what DVC's cache still has of its small files."""

import contextlib
import functools
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cairn.errors import ArtifactError, CairnError, LineageError
from cairn.lineage.graph import Graph
from cairn.lineage.hashing import cache_folder, recorded_files
from cairn.lineage.lock import LOCK, parse_lock, read_lock
from cairn.lineage.revision import git, git_bytes
from cairn.results.names import printable
from cairn.results.table import RESULTS_PATH, Result, read_json_object, read_results

LARGEST_JSON = 64 << 20

DigestOf = Callable[[str, bytes], str]


@dataclass(frozen=True)
class PastGraph(Graph):
    """The graph of `commit`. Its files come from DVC's cache, or from the project where both record one hash."""

    commit: str = ""
    now: Mapping[str, str | None] = field(default_factory=dict)
    digest_of: DigestOf | None = None

    def json_file(self, path: Path) -> dict[str, Any] | None:
        """A JSON object as it was at the commit; None where neither cache nor project has it any more."""
        if path not in self._json_files:
            self._json_files[path] = self._object(path)
        return self._json_files[path]

    @functools.cached_property
    def numbers(self) -> list[Result] | None:
        """The results table of the commit; None where DVC's cache does not have it (`dvc fetch`)."""
        file = self.file(RESULTS_PATH)
        try:
            return None if file is None else read_results(file)
        except ArtifactError:
            return None  # written by code that knew other columns

    def code_file(self, file: str) -> dict[str, Any] | None:
        """The code file as it was; where DVC's cache lacks it, the modules it lists now, as the commit has them."""
        found = self.json_file(self.root / file)
        if found is None and self.digest_of is not None:
            self._json_files[self.root / file] = found = self._from_git(file, self.digest_of)
        return found

    def _from_git(self, file: str, digest_of: DigestOf) -> dict[str, Any] | None:
        now = read_json_object(self.root / file)
        recorded = next(
            (s.parameters[file].get("digest") for s in self.stages.values() if file in s.parameters), None
        )
        if now is None or recorded is None:
            return None
        record: dict[str, Any] = {"digest": recorded, "picked": now.get("picked")}
        for kind in ("modules", "data"):
            listed = now.get(kind)
            record[kind] = {}
            for path in listed if isinstance(listed, dict) else ():
                content = git_bytes(self.root, "show", f"{self.commit}:./{path}")
                if content is not None:
                    with contextlib.suppress(CairnError):
                        record[kind][path] = digest_of(path, content)
        return record

    def file(self, path: str) -> Path | None:
        """Where the content lies that `path` had at the commit."""
        for output in self.made_by(path):
            recorded = self.outputs[output].md5
            if recorded is None:
                continue
            inside = path.removeprefix(output).lstrip("/")
            if self.now.get(output) == recorded and (self.root / path).is_file():
                return self.root / path
            listing = recorded_files(self.root, recorded)
            md5 = (listing or {}).get(inside) if inside else recorded
            if md5 is not None:
                blob = cache_folder(self.root) / "files" / "md5" / md5[:2] / md5[2:]
                return blob if blob.is_file() else None
        return None

    def _object(self, path: Path) -> dict[str, Any] | None:
        try:
            file = self.file(path.relative_to(self.root).as_posix())
            if file is None or file.stat().st_size > LARGEST_JSON:
                return None
            value = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


def load_past(root: Path, revision: str, digest_of: DigestOf | None = None) -> PastGraph:
    """The graph of a git revision (a commit, tag, branch, `HEAD~3`).

    `digest_of(path, content)` digests a file of the revision as code files do: it is asked where DVC's cache no
    longer has the revision's own code files.
    Raises LineageError where there is no git, no such revision, or no `dvc.lock` in it.
    """
    root = Path(root)
    if not revision or revision.startswith("-"):
        raise LineageError(f"{printable(revision)} is no git revision: a commit, tag or branch is expected")
    try:
        commit = (git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") or "").strip()
        if not commit:
            raise LineageError(
                f"git knows no revision {printable(revision)} here; `git log --oneline` lists them"
            )
        content = git_bytes(root, "show", f"{commit}:./{LOCK}")
    except FileNotFoundError:
        raise LineageError("git is not installed: no revision can be compared") from None
    except subprocess.TimeoutExpired:
        raise LineageError("git did not answer: no revision can be compared") from None
    if content is None:
        raise LineageError(
            f"revision {printable(revision)} ({commit[:10]}) has no {LOCK}: nothing was run in it"
        )
    stages = parse_lock(content, Path(f"{LOCK} of {commit[:10]}"))
    current = {output.path: output.md5 for stage in read_lock(root).values() for output in stage.outputs}
    graph = PastGraph(root, stages, commit=commit, now=current, digest_of=digest_of)
    _ = graph.producer
    return graph
