"""Mutated uploads and heads of requests, through the code of the portal that takes them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.predict.inputs import dataset_of
from pytest_mlms.predict.messages import read_message
from pytest_mlms.predict.tensors import read_request
from pytest_mlms.predict.warm import frame_of, given_of
from pytest_mlms.show.portal.addresses import ListenAddress
from pytest_mlms.show.portal.guard import Guard
from pytest_mlms.show.portal.predict_api import read_asked
from pytest_mlms.show.portal.settings import Limits, PortalSettings
from pytest_mlms.show.portal.tokens import Token, Tokens
from pytest_mlms.show.portal.uploads import Uploads

__all__ = ["read_head", "read_message_of", "read_prediction", "read_tensors", "read_upload"]

_TOKEN = "a-token-that-nobody-has"
_LIMITS = Limits(unpacked_bytes=32 << 20, unpacked_files=100)
_SETTINGS = PortalSettings(
    Path("results"),
    ListenAddress("127.0.0.1", 8765),
    Tokens((Token(_TOKEN),)),
    urls=("https://portal.example.org",),
)
_OPEN = ("/login", "/static/")
_INPUTS = [
    Input.model_validate({"name": name, "type": "tensor", "element_type": "float32"})
    for name in ("x", "y")
]
_COOKIE = (
    b"4102444800.0123456789abcdef45fc5d69c3e2b15a8977d2e7e58f324e319e2777036efd95e0cf4e357770256a"
)
"""A browser's session of the token, which lasts until the year 2100."""


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
            with contextlib.suppress(OSError):
                Uploads(results, pushers, _LIMITS).take(archive, _TOKEN, may_read=True)
        finally:
            assert {path.name for path in root.iterdir()} <= {"upload", "results", "pushers"}
            assert {path.name for path in place.iterdir()} <= {"archive", "run"}
            assert len(list(results.iterdir())) <= 1


def read_prediction(data: bytes, folder: Path) -> None:
    """Read the body of a prediction, a form or JSON, and its input as the model's process does."""
    kind = "multipart/form-data; boundary=b" if data.startswith(b"--") else "application/json"
    try:
        asked = read_asked(data, kind)
    except HTTPException as error:
        raise MlmsError(error.detail) from None
    given = given_of(*frame_of(asked.given))
    specs = _INPUTS if isinstance(given, dict) else _INPUTS[:1]
    dataset_of(given, specs, Place(Path("m.yaml"), 1))


def read_tensors(data: bytes, folder: Path) -> None:
    """Read a request with tensors; its first line is the length of its JSON, or empty."""
    length, _, body = data.partition(b"\n")
    is_number = length.isdigit() and len(length) < 12
    read_request(body, int(length) if is_number else None)


def read_message_of(data: bytes, folder: Path) -> None:
    """Read a request of gRPC."""
    read_message(data)


def read_head(data: bytes, folder: Path) -> None:
    """Have the guard judge a request: a head without the token opens no more than the login.

    The lines are the method, the path, and headers.
    """
    method, path, *lines = [*data.split(b"\n"), b"", b""]
    guard, passed = _guard()
    passed.clear()
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    headers = [(name.lower(), value) for name, _, value in (line.partition(b":") for line in lines)]
    scope: dict[str, Any] = {"type": "http", "method": method.decode("latin-1"), "headers": headers}
    scope |= {"path": path.decode("utf-8", "replace"), "query_string": path.partition(b"?")[2]}
    _loop().run_until_complete(guard(scope, receive, send))
    assert len(passed) + len(statuses) == 1
    is_known = _TOKEN.encode() in data or _COOKIE in data
    assert is_known or all(path.startswith(_OPEN) for path in passed), passed
    if statuses:
        raise MlmsError(f"it is answered {statuses[0]}")


@cache
def _guard() -> tuple[Guard, list[str]]:
    """Return a guard, which asks the system for this machine's names, and what has passed it."""
    passed: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["path"])
        await receive()

    return Guard(app, _SETTINGS), passed


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()
