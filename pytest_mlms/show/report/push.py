"""Pushing of runs to a portal: packed, sent, and tried again with the next run.

It changes no result and no verdict: what goes wrong is a note at the end of the run.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import socket
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.portal_address import TOKEN_VARIABLE, exposes_tokens
from pytest_mlms.core.text import shortened
from pytest_mlms.provide.artifacts.answers import PlainResponse
from pytest_mlms.show.report.run_folders import mark_waiting, unmark, waiting_runs

_PATH = "/api/v1/runs"
_TOKEN_PATH = "/api/v1/token"
_SECONDS = 60  # for an answer, and for a part of the request
_SLOWEST = 1 << 16  # bytes a second of a body, beside these seconds
_MOST_BYTES = 1 << 16  # of an answer
_STATES = ("new", "longer", "unchanged")
_FOLDERS = ("items", "agents")
_REFUSED = (400, 409, 413)
"""Statuses of a run that no portal takes: it is not tried again."""


class PushError(MlmsError):
    """A run was not pushed; ``is_final`` if it never can be."""

    def __init__(self, text: str, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


@dataclass(frozen=True)
class Portal:
    """A portal that takes runs."""

    url: str
    token: str
    token_file: Path | None = None

    def command(self, results: Path) -> str:
        """Return the command that pushes the runs of a folder which wait."""
        words = ["mlms", "push", "--url", self.url]
        if results.absolute() != Path("mlms-results").absolute():
            words += ["--results", str(results)]
        if self.token_file is not None:
            words += ["--token-file", str(self.token_file)]
        return shlex.join(words)

    @property
    def warning(self) -> str:
        """The warning of an address at which others can read the token; "" for none."""
        if not self.token or not exposes_tokens(self.url):
            return ""
        return f"{self.url}: others can read the token on its way; reach the portal by https"

    def push(self, run: Path) -> str:
        """Push the folder of a run; return "new", "longer" or "unchanged".

        Raises PushError.
        """
        with tempfile.TemporaryFile() as packed:
            try:
                _pack(run, packed)
            except OSError as error:
                raise PushError(f"{run.name} can't be packed: {error.strerror}") from None
            try:
                return self._send(packed)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise PushError(f"{self.url}: {reason}") from None

    def _send(self, packed: IO[bytes]) -> str:
        with self._connect() as connection:
            # A refusal amid a large body may not arrive, so that the token is tried first.
            self._request(connection, "GET", _TOKEN_PATH, None)
            content = self._request(connection, "POST", _PATH, packed)
        state = _text(content, "state")
        if state not in _STATES:
            raise PushError(f"{self.url} is no portal; name the address that it prints")
        return state

    @contextlib.contextmanager
    def _connect(self) -> Iterator[http.client.HTTPConnection]:
        parts = urlsplit(self.url)
        is_https = parts.scheme == "https"
        made = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
        connection = made(parts.hostname or "", parts.port, timeout=_SECONDS)
        connection.response_class = PlainResponse
        try:
            yield connection
        finally:
            connection.close()

    def _request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        packed: IO[bytes] | None,
    ) -> bytes:
        """Send a request, and return the content of its answer; follows no redirect."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "User-Agent": f"pytest-mlms/{pytest_mlms.__version__}",
        }
        if packed is not None:
            headers["Content-Type"] = "application/gzip"
            headers["Content-Length"] = str(packed.seek(0, os.SEEK_END))
            packed.seek(0)
        seconds = 2 * _SECONDS + int(headers.get("Content-Length", 0)) / _SLOWEST
        if connection.sock is None:
            connection.connect()
        with _ended_after(seconds, connection.sock):
            connection.request(method, urlsplit(self.url).path + path, packed, headers)
            answer = connection.getresponse()
            content = answer.read(_MOST_BYTES)
        if answer.status not in (200, 201):
            raise _refusal(self.url, answer.status, content)
        return content


@contextlib.contextmanager
def _ended_after(seconds: float, connection: socket.socket) -> Iterator[None]:
    """End a connection at a time: a portal may send a byte now and then, or none of an answer."""

    def end() -> None:
        with contextlib.suppress(OSError):  # it is closed already
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _text(content: bytes, key: str) -> str:
    """Return a value of the JSON of an answer, nothing where it is none."""
    try:
        return str(json.loads(content)[key])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def push_after_run(portal: Portal, results: Path, run: Path) -> list[str]:
    """Push a run that ends, and those that wait; return what to tell."""
    mark_waiting(run)
    return [*filter(None, [portal.warning]), *push_waiting(portal, results)]


def push_waiting(portal: Portal, results: Path) -> Iterator[str]:
    """Push the runs that wait, the oldest first; yield what to tell of those that failed."""
    runs = waiting_runs(results)
    for done, run in enumerate(runs):
        try:
            portal.push(run)
        except PushError as error:
            if not error.is_final:
                count = len(runs) - done
                noun = "run waits" if count == 1 else "runs wait"
                command = portal.command(results)
                yield f"not pushed: {error}; {count} {noun} for the next run, or for: {command}"
                return
            yield f"{run.name} was not pushed, and won't be: {error}"
        unmark(run)


def _refusal(url: str, status: int, content: bytes) -> PushError:
    if status in (401, 403):
        return PushError(
            f"{url} does not accept the token; set {TOKEN_VARIABLE} or --mlms-push-token-file"
        )
    reason = _text(content, "detail") or f"status {status}"
    return PushError(f"{url}: {shortened(reason, 300)}", is_final=status in _REFUSED)


def _pack(run: Path, packed: IO[bytes]) -> None:
    """Write a tar.gz of what a portal takes of a run: the lines, and the files."""
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path in _files(run):
            archive.add(path, str(path.relative_to(run)), recursive=False)


def _files(run: Path) -> Iterable[Path]:
    yield run / "results.jsonl"
    for folder in _FOLDERS:
        for parent, _, names in os.walk(run / folder):
            for name in sorted(names):
                path = Path(parent, name)
                if path.is_file() and not path.is_symlink():
                    yield path
