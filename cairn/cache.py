"""The scratch cache: expensive intermediate results by content key, so that a killed step resumes.

DVC deletes a stage's outputs before it runs the stage again; what has been finished survives here. An entry
is one file named by its key, which holds everything that decides its bytes (`entry_key`). Entries are written
under a temporary name and renamed, so concurrent writers and a `kill -9` never leave half of one; each
carries a checksum, and an entry that fails it is removed and counts as absent. The folder can be deleted at
any time. It is kept below a size by removing what was used longest ago (`Cache.prune`).

The place is `.cairn/cache` in the project, or the folder in CAIRN_CACHE (`off`: no cache); the size is 20 GiB,
or CAIRN_CACHE_GIB.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import ParameterError

DEFAULT_GIB = 20.0
_MAGIC = b"cairn-cache-1\n"
_DIGEST_BYTES = 32
_ABANDONED_SECONDS = 6 * 3600
"""A temporary file this old belongs to a process that was killed."""


def entry_key(**parts: Any) -> str:
    """The key of an entry: SHA-256, in hexadecimal, of the parts as JSON with sorted keys.

    Name everything that decides the entry's bytes: the images' SHA-256 and boxes, parameters, the model's
    revision, the digest of the code, versions of packages, dtype, kind of device, batch plan.
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Cache:
    """A folder of entries. It can be pickled, and used by many processes at once."""

    folder: Path
    limit: int = int(DEFAULT_GIB * 2**30)
    """Bytes that `prune` leaves."""

    @classmethod
    def of(cls, root: Path) -> "Cache | None":
        """The cache of the project at `root`, or None where CAIRN_CACHE=off."""
        place = os.environ.get("CAIRN_CACHE", "")
        if place == "off":
            return None
        asked = os.environ.get("CAIRN_CACHE_GIB", str(DEFAULT_GIB))
        try:
            limit = float(asked)
        except ValueError:
            limit = -1.0
        if not 0 <= limit < 1e9:
            raise ParameterError(f"CAIRN_CACHE_GIB = {asked!r}: a number of GiB, at least 0, is expected")
        return cls(Path(place) if place else Path(root) / ".cairn" / "cache", int(limit * 2**30))

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None where there are none or they are damaged (then removed)."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        payload = memoryview(data)[head:]
        if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : head] != _digest(payload):
            with contextlib.suppress(OSError):  # a folder that is read-only keeps it, for nobody
                path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # its last use, by which `prune` chooses
        return bytes(payload)

    def has(self, key: str) -> bool:
        """Whether there is an entry, sound or not: `get` looks."""
        return self._path(key).is_file()

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under `key`. A full disk or a read-only folder costs the entry, never the result."""
        path = self._path(key)
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
            temporary = Path(name)
            with os.fdopen(handle, "wb") as stream:
                stream.write(_MAGIC)
                stream.write(_digest(data))
                stream.write(data)
            temporary.replace(path)
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)

    def prune(self) -> int:
        """Remove entries, the one used longest ago first, until the limit holds; return the bytes removed.

        Files of killed writers go too. A reader in another process at worst finds its entry absent.
        """
        entries, total, removed = [], 0, 0
        now = time.time()
        for path in self.folder.glob("??/*"):
            try:
                found = path.stat()
                if path.name.startswith(".tmp-"):
                    if now - found.st_mtime > _ABANDONED_SECONDS:
                        path.unlink(missing_ok=True)
                    continue
            except OSError:
                continue
            entries.append((found.st_mtime_ns, path.name, found.st_size, path))
            total += found.st_size
        entries.sort()
        for _, _, size, path in entries:
            if total - removed <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                removed += size
        return removed

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
