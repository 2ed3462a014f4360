"""A proxy that damages what a real server answers to inferences.

In a process of its own it is a server that a stack starts: ``python damaging_proxy.py PORT TARGET FAULT
COMMAND…`` starts the real one, which listens at TARGET, and ends with it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVERY = 3
"""The inference that is damaged first, and each so many after it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self.server.count += 1
        self._forward(self.server.fault if self.server.count % EVERY == 0 else "")

    def _forward(self, fault: str = "") -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(dict(self.headers))
        if self.server.fault == "slow" and self.command == "POST":
            time.sleep(0.02)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(3600)
        if fault == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if fault == "500":
            self._answer(500, {}, b'{"error": "out of\\n memory \\u001b[31m"}')
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target)
        try:
            connection.request(self.command, self.path, body or None, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            self._answer(502, {}, b"the server behind is not there")
            return
        finally:
            connection.close()
        kept = ("inference-header-content-length", "content-type")
        headers = {name: text for name, text in answer.getheaders() if name.lower() in kept}
        if fault == "another name":
            content = content.replace(b'"logits"', b'"digits"')
        if fault == "short":
            content = content[:-4]
        if fault == "no json":
            headers, content = {}, b"<html>"
        self._answer(answer.status, headers, content, is_cut=fault == "cut")

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, is_cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.close_connection |= is_cut

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Proxy(ThreadingHTTPServer):
    """The proxy; ``count`` are the inferences so far, ``seen`` the headers of all requests."""

    daemon_threads = True

    def __init__(self, port: int, target: int, fault: str = "") -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.target = target
        self.fault = fault
        self.count = 0
        self.seen: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def proxy_of(target: int, fault: str) -> Iterator[Proxy]:
    """Run a proxy before the server at a port."""
    with Proxy(0, target, fault) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()


def main() -> None:
    """Start the real server, and the proxy before it."""
    port, target, fault, *command = sys.argv[1:]
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        Proxy(int(port), int(target), fault).serve_forever()
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
