"""Files that are never half-written, and hashes of their content."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success rename it to `path`, on failure remove it.

    The temporary name keeps the suffix of `path`, since some writers choose the format by it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; an artifact has the permissions any new file would have.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield an empty temporary directory beside `path`; on success it takes the place of `path`.

    At every moment `path` is what it was, whole, or is not there, or is the new directory. A temporary name,
    `.NAME.PID.xxxxxxxx`, says which process writes it: what a killed one left can be told from work that goes on
    (`remove_leftovers`).
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, aside = _beside(path), None
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if path.exists() or path.is_symlink():
            aside = _beside(path)
            path.rename(aside / path.name)  # removed in place, a kill would leave half of it under its name
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def _beside(path: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.{os.getpid()}.", dir=path.parent))


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the temporary directories of `atomic_directory` in `folder` whose process is gone; which they were."""
    removed = []
    for path in Path(folder).glob(".*.*.*"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and path.is_dir() and not path.is_symlink() and not _running(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


_TEMPORARY = re.compile(r"\..+\.(\d{1,10})\.[a-z0-9_]{8}")


def _running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # a killed process that nobody has waited for yet writes nothing any more
        state = Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state not in "ZX"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON with sorted keys: the same value gives the same bytes."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


def stamp(path: Path) -> tuple[int, ...]:
    """Size, times and number of a file: whatever remembers its hash in a process that lives for hours keys it by these.

    The time of the last change of state and the inode are among them, since a copy that keeps the time of another
    file of the same size (`cp -p`, `rsync -t`) changes neither of the others.
    """
    found = Path(path).stat()
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with Path(path).open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def dvc_digest(path: Path) -> str:
    """The hash DVC 3 records for a file or a directory.

    A file: md5 of its bytes. A directory: md5 of the canonical JSON list of its files' md5 and relative
    path, sorted by path, with the suffix `.dir` (DVC's `Tree` object).
    """
    path = Path(path)
    if path.is_file():
        return file_digest(path, "md5")
    entries = [
        {"md5": file_digest(file, "md5"), "relpath": file.relative_to(path).as_posix()}
        for file in path.rglob("*")
        if file.is_file()
    ]
    return dvc_directory_digest(entries)


def dvc_directory_digest(entries: list[dict[str, str]]) -> str:
    """The `.dir` hash of a directory from its `{"md5", "relpath"}` entries."""
    ordered = sorted(entries, key=lambda entry: entry["relpath"])
    text = json.dumps(ordered, sort_keys=True).encode()
    return hashlib.md5(text, usedforsecurity=False).hexdigest() + ".dir"
