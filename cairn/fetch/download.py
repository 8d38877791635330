"""Brings one file from an address to a place on disk: resumed where it broke off, hashed on the way, checked."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import SourceError
from cairn.fetch.http import (
    RESTART,
    Answer,
    Interrupted,
    Policy,
    answered,
    must_restart,
    new_session,
    open_url,
)
from cairn.files import CHUNK, write_json

PART_SUFFIX = ".part"
STATE_SUFFIX = ".part.json"
# A transfer that keeps moving is not given up; one byte per connection is not moving.
PROGRESS_BYTES = 1 << 20

Advance = Callable[[int, int | None], None]
"""Told how many bytes are there and how many there will be (None: not known)."""


@dataclass(frozen=True)
class Downloaded:
    """A file that is whole and as expected: where it is, its size in bytes, its digests."""

    path: Path
    size: int
    sha256: str
    md5: str | None


def fetch_file(
    url: str,
    destination: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    policy: Policy | None = None,
    headers: Mapping[str, str] | None = None,
    advance: Advance | None = None,
) -> Downloaded:
    """Download `url` (http, https or file) to `destination`, which appears only when it is whole and right.

    What has come lies in `destination` + `.part` until then and is gone on from after a broken connection, a
    killed process or a full disk, if the server can continue and its file is the same (If-Range); otherwise
    the file starts over. A second process that fetches the same file waits for the first. A file that is
    already there is hashed and, where it is as expected, kept.

    Raises SourceError, naming the address: not found, no answer after `policy.retries` tries, a checksum or
    size that differs (then the part is removed), a full disk (then it is kept).
    """
    from filelock import FileLock, Timeout

    from cairn.progress import say

    destination = Path(destination)
    policy = policy or Policy()
    advance = advance or (lambda done, total: None)
    expected = {name: value for name, value in (("sha256", sha256), ("md5", md5)) if value}
    destination.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(destination.with_name(f".{destination.name}.lock"))
    try:
        lock.acquire(timeout=0.05)
    except Timeout:
        say(f"waiting for another process that fetches {destination.name}")
        lock.acquire()
    try:
        if destination.is_file():
            return _present(url, destination, expected, size)
        part = _Part(destination, "md5" in expected)
        _transfer(url, part, policy, headers or {}, size, bool(expected), advance)
        found = part.digests()
        _check(url, found, expected, part.size, size, part.remove)
        part.publish()
        return Downloaded(destination, part.size, found["sha256"], found.get("md5"))
    finally:
        lock.release()


def _present(url: str, path: Path, expected: Mapping[str, str], size: int | None) -> Downloaded:
    found = digests(path, "md5" in expected)
    _check(url, found, expected, path.stat().st_size, size, lambda: None, path)
    return Downloaded(path, path.stat().st_size, found["sha256"], found.get("md5"))


def digests(path: Path, with_md5: bool) -> dict[str, str]:
    """SHA-256 (and MD5) of a file, read once."""
    hashes = _Hashes(with_md5)
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            hashes.update(block)
    return hashes.hex()


def _check(
    url: str,
    found: Mapping[str, str],
    expected: Mapping[str, str],
    size: int,
    wanted_size: int | None,
    discard: Callable[[], None],
    path: Path | None = None,
) -> None:
    where = f"{path} (from {url})" if path else url
    advice = "remove the file to download it again" if path else "what was downloaded is removed"
    if not expected and wanted_size is not None and size != wanted_size:
        discard()
        raise SourceError(f"{where}: {size:,} bytes found where {wanted_size:,} are expected; {advice}")
    for name, value in expected.items():
        if found[name] != value:
            discard()
            raise SourceError(f"{where}: expected {name} {value}, found {found[name]}; {advice}")


def _transfer(
    url: str,
    part: "_Part",
    policy: Policy,
    headers: Mapping[str, str],
    size: int | None,
    checked: bool,
    advance: Advance,
) -> None:
    """Attempts until the file is whole; urllib3's Retry decides how many, and how long to wait between.

    Each further attempt is announced on standard error: with a host that cannot be resolved they take a minute.
    """
    import urllib3

    from cairn.progress import say

    fresh = urllib3.Retry(
        total=policy.retries, backoff_factor=policy.backoff, backoff_max=policy.longest, backoff_jitter=0.5
    )
    retry = fresh
    furthest = part.size
    with new_session() as session:
        while True:
            try:
                _attempt(session, url, part, policy, headers, size, checked, advance)
                return
            except Interrupted as error:
                if must_restart(error):
                    part.restart()
                elif part.size - furthest >= PROGRESS_BYTES:
                    retry = fresh
                # To come as far again after starting over is not moving.
                furthest = max(furthest, part.size)
                try:
                    retry = retry.increment(
                        "GET",
                        url,
                        response=answered(error),
                        error=None if answered(error) else urllib3.exceptions.ProtocolError(str(error)),
                    )
                    # A server may ask for a pause (Retry-After); more than `longest` is not granted.
                    asked = retry.get_retry_after(answered(error)) if answered(error) else None
                except urllib3.exceptions.HTTPError:
                    kept = f"; {part.size:,} bytes are kept, run again to go on" if part.size else ""
                    raise SourceError(f"{url}: {error}, after {policy.retries + 1} tries{kept}") from None
                tried = policy.retries - (retry.total or 0)
                say(f"{part.destination.name}: {error}; trying again ({tried} of {policy.retries})")
                retry.sleep(answered(error) if (asked or 0) <= policy.longest else None)


def _attempt(
    session: Any,
    url: str,
    part: "_Part",
    policy: Policy,
    headers: Mapping[str, str],
    size: int | None,
    checked: bool,
    advance: Advance,
) -> None:
    validator = part.continue_from(url, checked)
    with open_url(session, url, part.size, validator, policy, headers) as answer:
        if (
            part.size
            and answer.start
            and None not in (part.total, answer.total)
            and part.total != answer.total
        ):
            raise Interrupted("the file changed on the server", RESTART)
        if answer.start != part.size:
            part.restart()
        part.remember(url, answer)
        total = answer.total if answer.total is not None else size
        _check_space(url, part, total)
        advance(part.size, total)
        part.write(url, answer, total, advance)
    if answer.total is not None and part.size != answer.total:
        raise Interrupted("the connection ended before the file did")


def _check_space(url: str, part: "_Part", total: int | None) -> None:
    free = shutil.disk_usage(part.path.parent).free
    if total is not None and total - part.size > free:
        raise SourceError(
            f"{url}: needs {total - part.size:,} bytes more in {part.path.parent}, where {free:,} are free"
        )


class _Hashes:
    def __init__(self, with_md5: bool) -> None:
        self._each = {"sha256": hashlib.sha256()}
        if with_md5:
            self._each["md5"] = hashlib.md5(usedforsecurity=False)

    def update(self, block: bytes) -> None:
        for each in self._each.values():
            each.update(block)

    def hex(self) -> dict[str, str]:
        return {name: each.hexdigest() for name, each in self._each.items()}


class _Part:
    """The unfinished file with its running hash, and beside it which version of the address it is of."""

    def __init__(self, destination: Path, with_md5: bool) -> None:
        self.destination = destination
        self.path = destination.with_name(destination.name + PART_SUFFIX)
        self.state = destination.with_name(destination.name + STATE_SUFFIX)
        self.size = 0
        self.total: int | None = None
        """Bytes that the whole file had when its first part came."""
        self._with_md5 = with_md5
        self._hashes = _Hashes(with_md5)
        if self.path.is_file():
            with self.path.open("rb") as stream:
                while block := stream.read(CHUNK):
                    self._hashes.update(block)
                    self.size += len(block)

    def continue_from(self, url: str, checked: bool) -> str | None:
        """The version that is on disk; starts over where nobody can tell whether it is still the same."""
        try:
            state = json.loads(self.state.read_text("utf-8"))
            same = state["url"] == url
            validator = state["validator"]
            self.total = state.get("total")
        except (OSError, ValueError, KeyError, TypeError):
            same, validator = False, None
        if self.size and (not same or (validator is None and not checked)):
            self.restart()
        return validator if self.size else None

    def remember(self, url: str, answer: Answer) -> None:
        self.total = answer.total
        write_json(self.state, {"url": url, "validator": answer.validator, "total": answer.total})

    def write(self, url: str, answer: Answer, total: int | None, advance: Advance) -> None:
        try:
            with self.path.open("ab") as stream:
                for chunk in answer.chunks:
                    if total is not None and self.size + len(chunk) > total:
                        raise SourceError(f"{url}: sends more than the {total:,} bytes expected")
                    stream.write(chunk)
                    self._hashes.update(chunk)
                    self.size += len(chunk)
                    advance(self.size, total)
        except OSError as error:
            # The buffer may hold bytes that never reached the disk: only what is there counts.
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SourceError(
                    f"{url}: the disk is full; what came is kept in {self.path}: free some space and run again"
                ) from None
            raise SourceError(f"{self.path}: cannot be written ({error.strerror})") from None

    def digests(self) -> dict[str, str]:
        return self._hashes.hex()

    def restart(self) -> None:
        self.remove()
        self.size, self.total, self._hashes = 0, None, _Hashes(self._with_md5)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)

    def publish(self) -> None:
        if not self.path.is_file():  # an empty file has no chunk
            self.path.touch()
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())
        self.path.replace(self.destination)
        self.state.unlink(missing_ok=True)
