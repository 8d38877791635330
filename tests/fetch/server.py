"""A file server on the loopback address that misbehaves where it is told to."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Served:
    """One file: its bytes, and how the server treats it.

    `cuts`: after how many bytes the connection breaks, one value per request until they are used up.
    `statuses`: answers given before the file. `delay`: seconds before the answer; `stall`: (bytes, seconds)
    after which the body pauses; `drip`: (bytes, seconds) after which it comes a byte at a time, with such pauses.
    `ranges`, `if_range`: whether these headers count. `lie`: how much the
    Content-Length is off.
    """

    data: bytes
    etag: str | None = '"1"'
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0
    stall: tuple[int, float] | None = None
    drip: tuple[int, float] | None = None
    ranges: bool = True
    if_range: bool = True
    redirect: str | None = None
    length: bool = True
    lie: int = 0


@dataclass
class Server:
    url: str
    files: dict[str, Served]
    log: list[dict[str, Any]]

    def put(self, path: str, data: bytes, **behaviour: Any) -> str:
        """Serve `data` at `path` and return its address."""
        self.files[path] = Served(data, **behaviour)
        return f"{self.url}/{path}"

    def requests(self, path: str) -> list[dict[str, Any]]:
        return [each for each in self.log if each["path"] == path]


@contextlib.contextmanager
def running() -> Iterator[Server]:
    files: dict[str, Served] = {}
    log: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            log.append({"path": path, **{key.lower(): value for key, value in self.headers.items()}})
            file = files.get(path)
            if file is None:
                return self._plain(404)
            if file.statuses:
                return self._plain(file.statuses.pop(0), file.headers)
            if file.redirect:
                return self._plain(302, {"Location": file.redirect})
            time.sleep(file.delay)
            start, status = 0, 200
            asked = self.headers.get("Range")
            same = self.headers.get("If-Range") in (None, file.etag) or not file.if_range
            if asked and file.ranges and same:
                start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
                if start >= len(file.data):
                    return self._plain(416, {"Content-Range": f"bytes */{len(file.data)}"})
            body = file.data[start:]
            self.send_response(status)
            for key, value in file.headers.items():
                self.send_header(key, value)
            if file.etag:
                self.send_header("ETag", file.etag)
            if status == 206:
                last, total = len(file.data) - 1, len(file.data)
                self.send_header("Content-Range", f"bytes {start}-{last}/{total}")
            if file.length:
                self.send_header("Content-Length", str(len(body) + file.lie))
            self.send_header("Connection", "close")
            self.end_headers()
            cut = file.cuts.pop(0) if file.cuts else len(body)
            if file.stall:
                self.wfile.write(body[: file.stall[0]])
                self.wfile.flush()
                time.sleep(file.stall[1])
                body = body[file.stall[0] :]
            if file.drip:
                self.wfile.write(body[: file.drip[0]])
                for byte in body[file.drip[0] :]:
                    self.wfile.flush()
                    time.sleep(file.drip[1])
                    self.wfile.write(bytes([byte]))
                return None
            self.wfile.write(body[:cut])
            self.close_connection = True
            return None

        def _plain(self, status: int, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # a client that went away

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_port}", files, log)
    finally:
        server.shutdown()
        server.server_close()
