"""A real HTTP server that serves files and fails on demand."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Iterator

DATA = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(DATA).hexdigest()


class FileServer(http.server.ThreadingHTTPServer):
    """Serves ``files`` by path, and a web page at /page.

    The next ``cut`` answers end after half of their content. ``statuses`` are the errors that the
    next requests are answered with. ``asked`` has the Range header of each request, ``users`` its
    Authorization, ``encodings`` its Accept-Encoding. ``types`` has Content-Type headers by path, ``redirects`` where one leads.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {"/data.bin": DATA}
        self.cut = 0
        self.ranges = True
        self.statuses: list[int] = []
        self.asked: list[str | None] = []
        self.types: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.users: list[str | None] = []
        self.encodings: list[str | None] = []

    def url(self, path: str = "/data.bin") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        self.server.users.append(self.headers.get("Authorization"))
        self.server.encodings.append(self.headers.get("Accept-Encoding"))
        path = self.path.partition("?")[0]
        if self.server.statuses:
            status = self.server.statuses.pop(0)
            self.send_error(status)
        elif path in self.server.redirects:
            self._answer(302, b"", {"Location": self.server.redirects[path]})
        elif path == "/page":
            headers = {"Content-Type": "text/html; charset=utf-8"}
            self._answer(200, b"<html>please log in</html>", headers)
        elif path not in self.server.files:
            self.send_error(404)
        elif asked and self.server.ranges:
            self._answer_range(self.server.files[path], start_of(asked))
        else:
            kind = self.server.types.get(path)
            self._answer(200, self.server.files[path], {"Content-Type": kind} if kind else {})

    def _answer_range(self, data: bytes, start: int) -> None:
        if start >= len(data):
            self.send_error(416)
            return
        content_range = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._answer(206, data[start:], {"Content-Range": content_range})

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.server.cut:
            self.server.cut -= 1
            half = len(data) // 2
            data = data[:half]
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def start_of(asked: str | None) -> int:
    """Return the first byte that a Range header asks for."""
    if asked is None:
        return 0
    text = asked.removeprefix("bytes=")
    return int(text.removesuffix("-"))


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """Run a server in a thread."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
