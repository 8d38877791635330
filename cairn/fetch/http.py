"""Opens an address at a byte position: what comes, how much there is, and whether it is still the same file."""

import contextlib
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from cairn.errors import SourceError

CHUNK = 1 << 20
RETRIED = (408, 425, 429, 500, 502, 503, 504)
_AGENT = {"User-Agent": "cairn-retrieval", "Accept-Encoding": "identity"}
_NUMBER = r"[0-9]{1,18}"  # longer ones are no sizes, and int() fails on thousands of digits
_RANGE = re.compile(rf"bytes ({_NUMBER})-{_NUMBER}/({_NUMBER}|\*)")
_WHOLE = re.compile(rf"bytes \*/({_NUMBER})")


@dataclass(frozen=True)
class Policy:
    """Seconds to wait for a connection and for the next bytes; how often to try again, with what backoff.

    Of a transfer at least `least` bytes must come in every `window` seconds: a server that sends a byte now and then
    never makes anybody wait long enough for `read`. The default is 1 kB/s, at which a gigabyte takes 11 days.
    """

    connect: float = 20.0
    read: float = 60.0
    retries: int = 6
    backoff: float = 1.0
    longest: float = 120.0
    least: int = 65_536
    window: float = 60.0


@dataclass(frozen=True)
class Answer:
    """`chunks` from byte `start` on; `total` bytes in the whole file, None where the server does not say.

    `validator` tells one version of the file from another (a strong ETag or Last-Modified).
    """

    start: int
    total: int | None
    validator: str | None
    chunks: Iterator[bytes]


class Interrupted(Exception):
    """Worth another try: the connection broke, the server was slow or busy. `response` where it answered."""

    def __init__(self, reason: str, response: Any = None) -> None:
        super().__init__(reason)
        self.response = response


def new_session() -> Any:
    """A session that speaks http and https alone: a redirect to anything else fails."""
    import requests

    session = requests.Session()
    session.max_redirects = 10
    return session


@contextlib.contextmanager
def open_url(
    session: Any,
    url: str,
    start: int,
    validator: str | None,
    policy: Policy,
    headers: Mapping[str, str] | None = None,
) -> Iterator[Answer]:
    """Open `url` from byte `start` if it still is the version `validator`, else from its beginning.

    Raises Interrupted where another try may help, SourceError where none will (not found, not permitted, a web
    page instead of a file, a redirect to another scheme or from https to http).
    """
    if urlsplit(url).scheme == "file":
        with _open_file(url, start, validator) as answer:
            yield answer
        return
    import requests
    import urllib3

    asked = {**_AGENT, **(headers or {})}
    if start:
        asked["Range"] = f"bytes={start}-"
        if validator:
            asked["If-Range"] = validator
    try:
        response = session.get(url, headers=asked, stream=True, timeout=(policy.connect, policy.read))
    except requests.exceptions.InvalidSchema as error:
        raise SourceError(f"{url}: leads to an address that is not http or https ({error})") from None
    except requests.exceptions.TooManyRedirects:
        raise SourceError(f"{url}: redirects more than {session.max_redirects} times") from None
    except requests.exceptions.SSLError as error:
        raise SourceError(f"{url}: the certificate is not valid ({_reason(error)})") from None
    except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
        raise Interrupted(_reason(error)) from None
    except requests.exceptions.ChunkedEncodingError as error:
        raise Interrupted(_reason(error)) from None
    except (
        requests.exceptions.RequestException,
        ValueError,
    ) as error:  # ValueError: a redirect to no address
        raise SourceError(f"{url}: {_reason(error)}") from None
    try:
        with response:
            _refuse_downgrade(url, response)
            yield _answer(url, response, start, validator, policy)
    except (urllib3.exceptions.HTTPError, requests.exceptions.RequestException, TimeoutError) as error:
        raise Interrupted(_reason(error)) from None


def _answer(url: str, response: Any, start: int, validator: str | None, policy: Policy) -> Answer:
    status = response.status_code
    if status == 416 and start:
        whole = _WHOLE.fullmatch(response.headers.get("Content-Range", ""))
        if whole and int(whole[1]) == start:
            return Answer(start, start, validator, iter(()))
        raise Interrupted("the part on disk does not fit the file", RESTART)
    if status in RETRIED:
        raise Interrupted(f"HTTP {status}", response.raw)
    if status not in (200, 206):
        raise SourceError(f"{url}: {_explained(status, response.reason)}")
    if "html" in response.headers.get("Content-Type", "") and not url.endswith((".html", ".htm")):
        raise SourceError(f"{url}: answered with a web page instead of the file (moved, or behind a login?)")
    found = _validator(response.headers)
    chunks = _chunks(response.raw, policy)
    if status == 200:
        return Answer(0, _length(response.headers), found, chunks)
    span = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    # A server may ignore If-Range and send the tail of another version.
    if not span or int(span[1]) != start or (validator and found and found != validator):
        raise Interrupted("the file changed on the server", RESTART)
    return Answer(start, None if span[2] == "*" else int(span[2]), found or validator, chunks)


def _chunks(raw: Any, policy: Policy) -> Iterator[bytes]:
    """What comes, as it comes: a read of a fixed size would wait for the last of its bytes, however slowly they drip.

    Raises Interrupted where less than `policy.least` bytes come in `policy.window` seconds.
    """
    passed, came = 0.0, 0
    while True:
        began = time.monotonic()
        chunk = raw.read1(CHUNK, decode_content=False)
        passed += time.monotonic() - began  # the time that a slow disk takes is not the server's
        if not chunk:
            return
        came += len(chunk)
        if passed >= policy.window:
            if came < policy.least * (passed / policy.window):
                raise Interrupted(
                    f"only {came:,} bytes came in {passed:.3g} s, {policy.least:,} are expected"
                )
            passed, came = 0.0, 0
        yield chunk


RESTART = object()
"""`response` of an Interrupted after which what is on disk is of no use."""


def must_restart(error: Interrupted) -> bool:
    """Whether what is on disk is of no use any more."""
    return error.response is RESTART


def answered(error: Interrupted) -> Any:
    """The server's answer (urllib3's), None where there was none."""
    return None if error.response is RESTART else error.response


def _refuse_downgrade(url: str, response: Any) -> None:
    hops = [*(hop.url for hop in response.history), response.url]
    for before, after in itertools.pairwise(hops):
        if urlsplit(before).scheme == "https" and urlsplit(after).scheme != "https":
            raise SourceError(f"{url}: redirects from https to {after}; refused")


def _validator(headers: Mapping[str, str]) -> str | None:
    etag = headers.get("ETag", "")
    if etag.startswith('"'):
        return etag
    return headers.get("Last-Modified")


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length", "")
    return int(text) if re.fullmatch(_NUMBER, text) else None


def _explained(status: int, reason: str | None) -> str:
    meaning = {
        401: "needs a login (accept the licence, then bring the file by hand: `directory`)",
        403: "not permitted (accept the licence, then bring the file by hand: `directory`)",
        404: "not found; it may have moved: name a `mirror`, or a `directory` that has the file",
        410: "gone; name a `mirror`, or a `directory` that has the file",
    }.get(status, reason or "not a download")
    return f"HTTP {status}, {meaning}"


def _reason(error: BaseException) -> str:
    text = str(error).strip()
    if "IncompleteRead" in text:
        return "the connection ended before the file did"
    if "timed out" in text.lower():
        return "no answer in time"
    if "refused" in text.lower():
        return "connection refused"
    if "resolve" in text.lower() or "Name or service" in text:
        return "the host's name cannot be resolved"
    return (text.splitlines() or [type(error).__name__])[0][:200]


@contextlib.contextmanager
def _open_file(url: str, start: int, validator: str | None) -> Iterator[Answer]:
    path = Path(unquote(urlsplit(url).path))
    try:
        stream = path.open("rb")
    except OSError as error:
        raise SourceError(f"{url}: {error.strerror}") from None
    with stream:
        status = path.stat()
        found = f"{status.st_size}-{status.st_mtime_ns}"
        begin = start if found == validator and start <= status.st_size else 0
        stream.seek(begin)
        yield Answer(begin, status.st_size, found, iter(lambda: stream.read(CHUNK), b""))
