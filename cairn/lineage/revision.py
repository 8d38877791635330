"""Which commit of the project holds the `dvc.lock` at hand, and what is not committed."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20


@dataclass(frozen=True)
class Revision:
    """`commit`: the newest commit in which `dvc.lock` is what it is now, None where there is none.

    `notes` say, one line each, what keeps the numbers from being those of a commit. `shallow`: git has only the
    newest part of the history, so that an older commit may already hold this `dvc.lock`.
    """

    commit: str | None
    notes: tuple[str, ...]
    shallow: bool = False


def read_revision(root: Path) -> Revision:
    """Ask git about the project at `root`; never fails: no git, or no repository, is a note."""
    root = Path(root)
    try:
        inside = git(root, "rev-parse", "--show-toplevel")
    except FileNotFoundError:
        return Revision(None, ("git is not installed: no commit can be named for these numbers",))
    except subprocess.TimeoutExpired:
        return Revision(None, ("git did not answer: no commit can be named for these numbers",))
    if inside is None:
        return Revision(
            None, ("the project is not a git repository: no commit can be named for these numbers",)
        )
    notes: list[str] = []
    try:
        status = git(root, "status", "--porcelain", "--untracked-files=normal", "--", ".") or ""
        changed = [line[3:] for line in status.splitlines()]
        shallow = (git(root, "rev-parse", "--is-shallow-repository") or "").strip() == "true"
        newest = (git(root, "log", "-1", "--format=%H", "--", "dvc.lock") or "").strip()
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return Revision(None, ("git did not answer: no commit can be named for these numbers",))
    lock_changed = "dvc.lock" in {path.rsplit("/", 1)[-1].strip('"') for path in changed}
    if not newest:
        notes.append(
            "no commit holds this dvc.lock: `git add dvc.lock && git commit` makes the numbers citable"
        )
    elif lock_changed:
        notes.append(
            f"dvc.lock differs from the newest commit of it ({newest[:10]}): these numbers are not committed"
        )
    untracked = {line[3:] for line in status.splitlines() if line.startswith("??")}
    others = [
        f"{path} (untracked)" if path in untracked else path
        for path in changed
        if path.rsplit("/", 1)[-1].strip('"') != "dvc.lock"
    ]
    if others:
        shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        notes.append(f"the git tree is dirty: {shown}")
    return Revision(newest if newest and not lock_changed else None, tuple(notes), shallow)


def git(root: Path, *arguments: str) -> str | None:
    """What git prints, or None where it refuses."""
    content = git_bytes(root, *arguments)
    return None if content is None else content.decode("utf-8", "replace")


def git_bytes(root: Path, *arguments: str) -> bytes | None:
    """What git prints, or None where it refuses. No optional locks: a reader must not disturb a run."""
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", str(root), *arguments],
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None
