"""``POST /api/v1/runs``: the body of an upload on its way to the disk, and what follows it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from pytest_mlms.show.portal.guard import TOKEN_PATH, UPLOADS, bearer_token
from pytest_mlms.show.portal.history_writer import HistoryWriter
from pytest_mlms.show.portal.run_index import PORTAL_FOLDER, RunIndex
from pytest_mlms.show.portal.settings import PortalSettings
from pytest_mlms.show.portal.uploads import BadUpload, Conflict, Received, Uploads

_UPLOADING = "upload-"
_PUSHERS = "pushers"
_STATUS = {"new": 201, "longer": 200, "unchanged": 200}


def make_receiving(
    settings: PortalSettings, index: RunIndex, history: HistoryWriter | None
) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    folder = settings.results / PORTAL_FOLDER
    uploads = Uploads(settings.results, folder / _PUSHERS, settings.limits)
    at_a_time = asyncio.Semaphore(settings.limits.uploads)
    on_their_way: Counter[str] = Counter()  # by token
    _remove_leftovers(folder)

    def take(archive: Path, token: str) -> tuple[Received, str]:
        received = uploads.take(archive, token, "read" in settings.tokens.purposes_of(token))
        index.refresh(wait=True)
        return received, history.add(received.run) if history else ""

    async def take_body(request: Request, token: str) -> tuple[Received, str]:
        place = await run_in_threadpool(_make_place, folder)
        try:
            archive = place / "archive"
            await _save(request, archive)
            async with at_a_time:  # not before: slow clients would keep the others from it
                return await run_in_threadpool(take, archive, token)
        finally:
            await run_in_threadpool(shutil.rmtree, place, ignore_errors=True)

    @router.post(UPLOADS, status_code=201, summary="Take a run: a tar.gz or zip of its folder")
    async def receive(request: Request) -> Response:
        token = bearer_token(request) or ""
        with _counted(on_their_way, token, settings.limits.uploads_of_token), _told():
            received, note = await take_body(request, token)
        content = {"run": received.run, "state": received.state, "history": note}
        return JSONResponse(content, _STATUS[received.state])

    @router.get(TOKEN_PATH, summary="Whether the token of the request is one of the portal's")
    def token() -> dict[str, bool]:
        return {"known": bool(settings.tokens)}

    return router


@contextlib.contextmanager
def _counted(on_their_way: Counter[str], token: str, most: int) -> Iterator[None]:
    """Count an upload of a token; raises HTTPException where too many are on their way."""
    if on_their_way[token] >= most:
        detail = "too many uploads of this token are on their way; push again later"
        raise HTTPException(429, detail, {"Connection": "close"})
    on_their_way[token] += 1
    try:
        yield
    finally:
        on_their_way[token] -= 1


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Raise HTTPException for what is wrong with an upload, or with our disk."""
    try:
        yield
    except BadUpload as error:
        raise HTTPException(400, str(error)) from None
    except Conflict as error:
        raise HTTPException(409, str(error)) from None
    except OSError as error:
        raise HTTPException(507, f"the run can't be written: {error.strerror}") from None


async def _save(request: Request, archive: Path) -> None:
    """Write the body of a request to a file; raises HTTPException and OSError."""
    with archive.open("xb") as file:
        try:
            async for part in request.stream():
                await run_in_threadpool(file.write, part)
        except ClientDisconnect:
            raise HTTPException(400, "the client went away") from None


def _make_place(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=_UPLOADING, dir=folder))


def _remove_leftovers(folder: Path) -> None:
    """Remove the uploads of a portal that was killed."""
    for place in folder.glob(f"{_UPLOADING}*"):
        shutil.rmtree(place, ignore_errors=True)
