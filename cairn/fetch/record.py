"""What a download folder remembers of its files, so that what is there is not read or fetched again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import SourceError
from cairn.files import write_json

if TYPE_CHECKING:
    from cairn.fetch.folder import Fetched


class Record:
    """`fetched.json`: per file its address, size, date and digests; several processes may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def matching(self, name: str, path: Path) -> dict[str, Any] | None:
        """What is remembered of a file that has not been touched since."""
        known = self._read().get(name)
        status = path.stat()
        if known and (known["size"], known["mtime_ns"]) == (status.st_size, status.st_mtime_ns):
            return known
        return None

    def first(self, name: str, url: str | None) -> str | None:
        """SHA-256 of what was fetched first from this address."""
        known = self._read().get(name)
        return known["sha256"] if known and known["url"] == url else None

    def add(self, found: "Fetched", name: str | None = None) -> None:
        """Remember a file, under its source's name or another one."""
        from filelock import FileLock

        with FileLock(self.path.with_name(f".{self.path.name}.lock")):
            entries = self._read()
            entries[name or found.source.name] = {
                **{key: getattr(found, key) for key in ("size", "sha256", "md5", "checked_by")},
                "url": None if found.original else found.source.url,
                "mtime_ns": found.path.stat().st_mtime_ns,
            }
            write_json(self.path, entries)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            entries = json.loads(self.path.read_text("utf-8"))
            fields = ("url", "size", "mtime_ns", "sha256", "md5", "checked_by")
            return {name: entry for name, entry in entries.items() if all(field in entry for field in fields)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError):
            raise SourceError(
                f"{self.path}: damaged; remove it, and what is there is checked again"
            ) from None
