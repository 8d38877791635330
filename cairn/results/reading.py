"""The project's files as DuckDB may see them: to be read, below `artifacts/` alone, and never written."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import LineageError

if TYPE_CHECKING:
    import duckdb

PROTOCOL = "cairn"
PLACE = f"{PROTOCOL}://project"
FOLDER = "artifacts"
ONLY_READ = "files are only read, never written"


def give_files(connection: "duckdb.DuckDBPyConnection", root: Path) -> None:
    """Let `connection` read the files below `root/artifacts` as `cairn://project/artifacts/…`."""
    connection.register_filesystem(_file_system(Path(root)))


def lock_files(connection: "duckdb.DuckDBPyConnection") -> None:
    """Take every other way to files, the network, extensions and settings from `connection`, for good.

    A parser's word on what a statement does is not enough: a CTE, or SQL inside a string, may hold a COPY.
    Without a file system that can write, no statement writes, whatever its form.
    """
    for setting in (
        f"allowed_directories = ['{PLACE}/{FOLDER}/']",
        "temp_directory = ''",
        "disabled_filesystems = 'LocalFileSystem'",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def _file_system(root: Path) -> Any:
    # fsspec comes with DVC; DuckDB takes no other kind of file system from Python.
    from fsspec import AbstractFileSystem

    class ReadingFiles(AbstractFileSystem):
        """What DuckDB asks of a file system that it reads from; all else is refused by the class above."""

        protocol = PROTOCOL
        cachable = False

        def open(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, path: str, mode: str = "rb", **_: Any
        ) -> io.BufferedIOBase:
            if mode != "rb":
                raise PermissionError(f"{_shown(path)}: {ONLY_READ}")
            return _local(root, path).open("rb")

        def glob(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, path: str, **_: Any
        ) -> list[str]:
            found = sorted(file.relative_to(root).as_posix() for file in root.glob(_inside(path)))
            return [f"{PLACE}/{file}" for file in found]

        def exists(self, path: str, **_: Any) -> bool:
            return _local(root, path).exists()

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            found = _local(root, path).stat()
            kind = "directory" if _local(root, path).is_dir() else "file"
            return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime}

        def modified(self, path: str) -> datetime:
            return datetime.fromtimestamp(_local(root, path).stat().st_mtime, UTC)

        def _refuse(self, *_: Any, **__: Any) -> None:
            raise PermissionError(ONLY_READ)

        mkdir = makedirs = rm = rm_file = rmdir = mv = cp_file = touch = _refuse

    return ReadingFiles()


def _local(root: Path, path: str) -> Path:
    return root / _inside(path)


def _inside(path: str) -> str:
    """`path` relative to the project. Raises LineageError unless it lies below `artifacts/`."""
    inside = path.removeprefix(PLACE).lstrip("/")
    parts = inside.split("/")
    if parts[0] != FOLDER or ".." in parts:
        raise LineageError(f"{_shown(path)} is no file below {FOLDER}/")
    return inside


def _shown(path: str) -> str:
    return path.removeprefix(f"{PLACE}/")
