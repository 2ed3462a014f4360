"""Mutated uploads and heads of requests, through the code of the portal that takes them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from pytest_mlms.portal.addresses import ListenAddress
from pytest_mlms.portal.guard import Guard
from pytest_mlms.portal.settings import Limits, PortalSettings
from pytest_mlms.portal.tokens import Token, Tokens
from pytest_mlms.portal.uploads import Uploads
from tests.support.line_fuzzing import bounded

__all__ = ["read_head", "read_upload"]

_TOKEN = "a-token-that-nobody-has"
_LIMITS = Limits(unpacked_bytes=32 << 20, unpacked_files=100)
_SETTINGS = PortalSettings(
    Path("results"),
    ListenAddress("127.0.0.1", 8765),
    Tokens((Token(_TOKEN),)),
    urls=("https://portal.example.org",),
)
_OPEN = ("/login", "/static/")


def read_upload(data: bytes, folder: Path) -> None:
    """Take an upload, which leaves nothing outside of its run."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        root = Path(temporary)
        place, results, pushers = root / "upload", root / "results", root / "pushers"
        place.mkdir()
        results.mkdir()
        archive = place / "archive"
        archive.write_bytes(data)
        try:
            with bounded(), contextlib.suppress(OSError):
                Uploads(results, pushers, _LIMITS).take(archive, _TOKEN, may_read=True)
        finally:
            assert {path.name for path in root.iterdir()} <= {"upload", "results", "pushers"}
            assert {path.name for path in place.iterdir()} <= {"archive", "run"}
            assert len(list(results.iterdir())) <= 1


def read_head(data: bytes, folder: Path) -> None:
    """Have the guard judge a request without a token: no head opens more than the login.

    The lines are the method, the path, and headers.
    """
    method, path, *lines = [*data.split(b"\n"), b"", b""]
    reached: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])
        await receive()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def send(message: Any) -> None:
        reached.extend([] if message["type"] != "http.response.start" else [message["status"]])

    headers = [(name.lower(), value) for name, _, value in (line.partition(b":") for line in lines)]
    scope: dict[str, Any] = {"type": "http", "method": method.decode("latin-1"), "headers": headers}
    scope |= {"path": path.decode("utf-8", "replace"), "query_string": path.partition(b"?")[2]}
    with bounded():
        asyncio.run(Guard(app, _SETTINGS)(scope, receive, send))
    assert len(reached) == 1
    assert isinstance(reached[0], int) or reached[0].startswith(_OPEN), reached
