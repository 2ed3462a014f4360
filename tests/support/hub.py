"""A hub of models on a local server, as far as huggingface_hub asks it for files."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """Serves ``files`` of org/repo by name; org/gated refuses, org/private is not shown.

    ``users`` has the Authorization header of each request. ``said`` is the size that it tells before
    it sends a file, where that is another.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.said: int | None = None
        self.users: list[str | None] = []

    @property
    def url(self) -> str:
        """The endpoint, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.users.append(self.headers.get("Authorization"))
        path = self.path.lstrip("/").removeprefix("datasets/")
        if path.startswith("org/gated"):
            self._send(403, b"", {"X-Error-Code": "GatedRepo"}, with_body)
        elif path.startswith("org/private"):
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"}, with_body)
        elif path.startswith("api/"):
            files = []
            for name, data in self.server.files.items():
                files.append({"type": "file", "path": name, "size": len(data), "oid": "1234"})
            self._send(200, json.dumps(files).encode(), {}, with_body)
        else:
            self._answer_file(path, with_body)

    def _answer_file(self, path: str, with_body: bool) -> None:
        _, _, rest = path.partition("/resolve/")
        revision, _, name = rest.partition("/")
        if revision not in ("main", _COMMIT, "refs%2Fpr%2F1"):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"}, with_body)
        elif name not in self.server.files:
            headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": _COMMIT}
            self._send(404, b"", headers, with_body)
        else:
            headers = {"ETag": '"1234"', "X-Repo-Commit": _COMMIT}
            self._send(200, self.server.files[name], headers, with_body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        is_false = self.server.said is not None and not with_body
        self.send_header("Content-Length", str(self.server.said if is_false else len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving_hub() -> Iterator[Hub]:
    """Run a hub in a thread."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
