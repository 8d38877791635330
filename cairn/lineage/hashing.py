"""What lies on disk now: the hash of every file, each read once, and the listings DVC recorded."""

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from pathlib import Path

from cairn.files import dvc_directory_digest, file_digest
from cairn.parallel import workers
from cairn.progress import track

MOST_THREADS = 8
BATCH = 16


@dataclass(frozen=True)
class Content:
    """A file or directory as it is: its DVC hash (None: missing) and its files' md5 by relative path.

    A single file has the relative path `""`. `size` in bytes. A file that cannot be read is in `unreadable`
    with the reason, and has no md5.
    """

    md5: str | None
    files: Mapping[str, str]
    size: int
    unreadable: Mapping[str, str]


MISSING = Content(None, {}, 0, {})


def hash_paths(root: Path, paths: Iterable[str], threads: int | None = None) -> dict[str, Content]:
    """The content of each of `paths` (relative to `root`, or absolute); a file below two is read once."""
    root = Path(root)
    ignored = _ignore_rules(root)
    listings = {path: _list_files(root / path, root, ignored) for path in dict.fromkeys(paths)}
    distinct = sorted({file for listing in listings.values() for file in (listing or {}).values()})
    batches = [distinct[start : start + BATCH] for start in range(0, len(distinct), BATCH)]
    found: dict[str, tuple[str, int] | str] = {}
    with ThreadPoolExecutor(threads or min(MOST_THREADS, workers())) as pool:
        results = (pair for batch in pool.map(_hash_batch, batches) for pair in batch)
        for file, result in track(results, "Hashing", total=len(distinct), unit="files"):
            found[file] = result
    return {path: _content(root / path, listing, found) for path, listing in listings.items()}


def recorded_files(root: Path, md5: str | None) -> dict[str, str] | None:
    """The files (relative path → md5) of the directory with the hash `md5`, from DVC's cache; None if absent.

    A listing that does not have the hash it is stored under is no evidence and counts as absent.
    """
    if md5 is None or not md5.endswith(".dir"):
        return None
    file = cache_folder(root) / "files" / "md5" / md5[:2] / md5[2:]
    try:
        entries = json.loads(file.read_text("utf-8"))
        listing = {str(entry["relpath"]): str(entry["md5"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return listing if directory_md5(listing) == md5 else None


def directory_md5(files: Mapping[str, str]) -> str:
    """DVC's hash of a directory with these files (relative path → md5)."""
    return dvc_directory_digest([{"md5": md5, "relpath": path} for path, md5 in files.items()])


def below(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """Those of `files` inside `folder`, by their path in it."""
    prefix = folder + "/"
    return {path.removeprefix(prefix): md5 for path, md5 in files.items() if path.startswith(prefix)}


def cache_folder(root: Path) -> Path:
    """Where DVC keeps its cache: `.dvc/cache`, or the `cache.dir` of its configuration."""
    folder = Path(root) / ".dvc"
    chosen = folder / "cache"
    for name in ("config", "config.local"):
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(folder / name, "utf-8")
            given = parser.get("cache", "dir", fallback="").strip().strip("\"'")
        except (ConfigError, UnicodeDecodeError):
            continue
        if given:
            chosen = folder / Path(given).expanduser()
    return chosen


def _hash_batch(files: list[str]) -> list[tuple[str, tuple[str, int] | str]]:
    results: list[tuple[str, tuple[str, int] | str]] = []
    for file in files:
        try:
            results.append((file, (file_digest(Path(file), "md5"), Path(file).stat().st_size)))
        except OSError as error:
            results.append((file, error.strerror or str(error)))
    return results


def _list_files(path: Path, root: Path, ignored: Callable[[str], bool]) -> dict[str, str] | None:
    """Relative path → absolute path of every regular file; None where there is nothing at `path`."""
    if path.is_file():
        return {"": str(path)}
    if not path.is_dir():
        return None
    files: dict[str, str] = {}
    for folder, folders, names in os.walk(path):
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        folders[:] = sorted(name for name in folders if not ignored(f"{inside}/{name}/"))
        for name in sorted(names):
            file = f"{folder}{os.sep}{name}"  # a million of these: pathlib would take most of the time
            if not ignored(f"{inside}/{name}") and _regular(file):
                files[os.path.relpath(file, path).replace(os.sep, "/")] = file
    return files


def _regular(file: str) -> bool:
    # Opening a named pipe would wait for ever. A dangling link stays, to be reported as unreadable.
    try:
        return stat.S_ISREG(Path(file).stat().st_mode)
    except OSError:
        return True


def _content(
    path: Path, listing: Mapping[str, str] | None, found: Mapping[str, tuple[str, int] | str]
) -> Content:
    if listing is None:
        return MISSING
    hashes: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    size = 0
    for relative, file in listing.items():
        result = found[file]
        if isinstance(result, str):
            unreadable[relative] = result
        else:
            hashes[relative] = result[0]
            size += result[1]
    if "" in listing:
        return Content(hashes.get("", "unreadable"), hashes, size, unreadable)
    return Content(directory_md5(hashes), hashes, size, unreadable)


def _ignore_rules(root: Path) -> Callable[[str], bool]:
    """Whether DVC leaves out a path relative to `root` (folders end in `/`): the project's `.dvcignore`."""
    file = root / ".dvcignore"
    lines = [".hg/", ".git/", ".dvc/"]
    if file.is_file():
        lines += file.read_text("utf-8", errors="replace").splitlines()
    # pathspec comes with DVC and is what DVC reads these rules with.
    from pathspec import GitIgnoreSpec

    rules = GitIgnoreSpec.from_lines(lines)
    # Outside the project DVC ignores nothing.
    return lambda path: not path.startswith("..") and rules.match_file(path)
