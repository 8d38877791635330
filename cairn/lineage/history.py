"""Whether git's history holds the code that made the artifacts."""

import functools
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cairn.errors import CairnError
from cairn.lineage.past import DigestOf
from cairn.lineage.revision import git, git_bytes
from cairn.lineage.scope import Scope

# How many versions of a file are looked through, the newest first.
VERSIONS = 300


def history_notes(
    scope: Scope, changed_code: Callable[[Path, Mapping[str, Any]], Sequence[str]], digest_of: DigestOf
) -> list[str]:
    """One line for every file of code that made an artifact in this scope and that no commit holds.

    What lies in the project unchanged since the newest commit is in it; everything else is looked for among the
    commits that touched the file. Without git there is nothing to look in (`read_revision` says so).
    """
    try:
        listed = git(scope.root, "ls-tree", "-r", "--name-only", "-z", "HEAD")
        touched = git(scope.root, "diff", "--name-only", "--relative", "-z", "HEAD")
        shallow = (git(scope.root, "rev-parse", "--is-shallow-repository") or "").strip() == "true"
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    if listed is None or touched is None:
        return []  # no repository, or no commit yet
    clean = set(listed.split("\0")) - set(touched.split("\0"))
    holds = functools.cache(lambda path, digest: _holds(scope.root, path, digest, digest_of))
    missing: dict[tuple[str, str], list[str]] = {}
    for file, code in scope.codes.items():
        if not code.current:
            continue  # its modules are not known: `code_notes`
        recorded = {**code.modules, **code.data}
        changed = set(changed_code(scope.root, {"modules": code.modules, "data": code.data}))
        for path, digest in recorded.items():
            if (path in changed or path not in clean) and not holds(path, digest):
                missing.setdefault((path, digest), []).extend(scope.users[file])
    where = "no commit of this shallow clone" if shallow else "no commit"
    return [
        f"{where} holds {path} as it made {_first(users)} (digest {digest[:12]}): `git commit` makes it findable"
        for (path, digest), users in missing.items()
    ]


def _holds(root: Path, path: str, digest: str, digest_of: DigestOf) -> bool:
    return any(found == digest for found in _versions(root, path, digest_of))


def _versions(root: Path, path: str, digest_of: DigestOf) -> Iterator[str]:
    """The digests of the versions of `path` in the history of HEAD, the newest first."""
    try:
        commits = git(root, "log", f"-{VERSIONS}", "--format=%H", "--", path) or ""
        for commit in commits.split():
            content = git_bytes(root, "show", f"{commit}:./{path}")
            if content is None:
                continue  # the commit removed it
            try:
                yield digest_of(path, content)
            except CairnError:
                continue
    except subprocess.TimeoutExpired:
        return


def _first(outputs: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(outputs))
    return distinct[0] + (f" and {len(distinct) - 1} more" if len(distinct) > 1 else "")
