"""Portals in processes of their own, and clients that send what browsers would not."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.project import HANG_GUARD

TOKEN = "a-token-of-the-tests-3f9c"


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Portal:
    """A portal that runs; ``token`` goes with each request."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str | None) -> None:
        self.process = process
        self.url = url
        self.token = token
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or 0)

    @property
    def origin(self) -> str:
        return self.url.rstrip("/")

    def get(self, path: str, **headers: str) -> Answer:
        """Send GET; a header ``Sec_Fetch_Site`` is Sec-Fetch-Site."""
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: bytes | str = b"", **headers: str) -> Answer:
        data = body.encode() if isinstance(body, str) else body
        return self.request("POST", path, data, headers)

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token and "Authorization" not in sent and "Cookie" not in sent:
            sent["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(*self.address, timeout=HANG_GUARD)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Return a connection to say anything on."""
        return socket.create_connection(self.address, timeout=HANG_GUARD)

    def is_closed(self, connection: socket.socket) -> bool:
        """Return whether the portal ends a connection without a further byte, and wait for it."""
        try:
            return connection.recv(4096) == b""
        except ConnectionError:
            return True

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return the exit status, and what was printed."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=HANG_GUARD)
        return self.process.returncode, output, errors


@contextlib.contextmanager
def serving(results: Path, *arguments: str, token: str | None = TOKEN) -> Iterator[Portal]:
    """Run a portal of a folder of results on a free port of loopback."""
    process = start(results, *arguments, token=token)
    try:
        yield Portal(process, _url(process), token)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=HANG_GUARD)


def start(results: Path, *arguments: str, token: str | None = TOKEN) -> subprocess.Popen[str]:
    """Start the command with these arguments after those of the folder and the address."""
    environment = {**os.environ, "MLMS_PORTAL_TOKEN": token or ""}
    command = [sys.executable, "-m", "pytest_mlms", "portal", f"--results={results}"]
    return subprocess.Popen(
        [*command, "--listen=127.0.0.1:0", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _url(process: subprocess.Popen[str]) -> str:
    """Wait until a portal listens; return its address."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line.startswith("mlms portal: http"), process.stderr.read()
    return line.split()[2]
