"""Runs that CI jobs push: unpacked safely, checked, and put among the results whole or not at all.

An upload is an archive (tar.gz or zip) of a run's folder. It is checked like what a worker returns:
files in ``items`` and ``agents`` only, and lines of one run. A run is of the token that pushed it:
to others, the answer tells nothing of what is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.recorded import is_file_of_run
from pytest_mlms.core.serialization import lines_from
from pytest_mlms.core.units import format_quantity
from pytest_mlms.keep.results.item_line import ItemRecord, item_of
from pytest_mlms.provide.artifacts.archives import ArchiveTooLarge, UnsafeArchive, unpack
from pytest_mlms.show.pages.run import read_run
from pytest_mlms.show.portal.guard import TOKEN_PATH, UPLOADS, bearer_token
from pytest_mlms.show.portal.histories import HistoryWriter
from pytest_mlms.show.portal.run_index import PORTAL_FOLDER, RESULTS_FILE, RUN_FOLDER, RunIndex
from pytest_mlms.show.portal.settings import Limits, PortalSettings
from pytest_mlms.show.portal.tokens import mark_of_pusher

_FORMAT = 1

_UPLOADING = "upload-"
_PUSHERS = "pushers"
_STATUS = {"new": 201, "longer": 200, "unchanged": 200}


class BadUpload(MlmsError):
    """An upload that is no run, or is too large."""


class Conflict(MlmsError):
    """The portal has another run of this name."""


@dataclass(frozen=True)
class Received:
    """A run that was pushed: its name, and what became of it: new, longer, or unchanged."""

    run: str
    state: str


class Uploads:
    """Takes runs into a folder of results, one after the other.

    ``pushers`` is the folder of the marks of the tokens that have pushed them.
    """

    def __init__(self, results: Path, pushers: Path, limits: Limits) -> None:
        self._results = results
        self._pushers = pushers
        self._limits = limits
        self._placing = threading.Lock()

    def take(self, archive: Path, token: str, may_read: bool) -> Received:
        """Take a packed run; raises BadUpload and Conflict, and OSError where the disk is full.

        ``may_read`` says whether the token may read all runs.
        """
        unpacked = archive.with_name("run")
        try:
            unpack(archive, unpacked, self._limits.unpacked_bytes, self._limits.unpacked_files)
        except ArchiveTooLarge:
            limits = self._limits
            most = format_quantity(limits.unpacked_bytes, "B")
            raise BadUpload(
                f"it unpacks to more than {most} or {limits.unpacked_files:,} files; the portal's "
                f"--upload-limit allows more"
            ) from None
        except UnsafeArchive as error:
            raise BadUpload(f"the archive can't be unpacked: {error}") from None
        name = _check_run(unpacked, self._limits.line_bytes)
        with self._placing:
            return Received(name, self._place(unpacked, name, token, may_read))

    def _place(self, unpacked: Path, name: str, token: str, may_read: bool) -> str:
        folder = self._results / name
        if folder.is_symlink() or (folder.exists() and not (folder / RESULTS_FILE).is_file()):
            raise Conflict(f"{name}: something else has this name; rename it")
        mark, pusher = mark_of_pusher(token, name), self._pushers / name
        if not folder.exists():
            self._pushers.mkdir(parents=True, exist_ok=True)
            write_atomically(pusher, mark)
            unpacked.rename(folder)
            return "new"
        is_theirs = pusher.read_text() == mark if pusher.is_file() else may_read
        if not is_theirs:
            raise Conflict(f"{name}: the portal has a run of this name that another token pushed")
        if _begins_with(folder / RESULTS_FILE, unpacked / RESULTS_FILE):
            return "unchanged"
        if not _begins_with(unpacked / RESULTS_FILE, folder / RESULTS_FILE):
            raise Conflict(f"{name}: the portal has another run of this name, with other results")
        _check_places(unpacked, folder)
        _continue_run(unpacked, folder)
        return "longer"


def _check_run(folder: Path, longest_line: int) -> str:
    """Return the name of an unpacked run; raises BadUpload for anything that is no run."""
    for path in _files(folder):
        if path != RESULTS_FILE and not is_file_of_run(path):
            raise BadUpload(f"{path}: a run has results.jsonl, items and agents, and nothing else")
    with _refusing(folder):
        names = set(_names(folder / RESULTS_FILE, longest_line))
    if len(names) != 1:
        raise BadUpload(f"{RESULTS_FILE}: it has the lines of {len(names)} runs; push one run")
    name = names.pop()
    if not RUN_FOLDER.fullmatch(name):
        raise BadUpload(f"{RESULTS_FILE}: {name[:100]!r} is no name of a run")
    with _refusing(folder):
        read_run(folder)
    return name


@contextlib.contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """Raise BadUpload for lines that are none."""
    try:
        yield
    except (MlmsError, ValidationError) as error:
        raise BadUpload(str(error).replace(f"{folder}/", "")) from None


def _files(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield str(Path(parent, name).relative_to(folder))


def _names(results: Path, longest_line: int) -> Iterator[str]:
    """Yield the run's name of each line; raises BadUpload."""
    try:
        file = results.open("rb")
    except OSError:
        raise BadUpload(f"there is no {RESULTS_FILE} at the top of the archive") from None
    with file:
        for number, line in enumerate(lines_from(file, longest=longest_line), 1):
            if line.is_too_long:
                raise BadUpload(f"{RESULTS_FILE}:{number}: the line has {line.length:,} bytes")
            run = line.content.get("run") if line.content else None
            is_ours = line.content is not None and line.content.get("format") == _FORMAT
            if line.content is None or not is_ours or not isinstance(run, str):
                raise BadUpload(
                    f"{RESULTS_FILE}:{number}: it is no line of results, format {_FORMAT}"
                )
            yield run
            if line.content.get("type") == "item":
                # Those that don't count any more must be items, too.
                item_of(ItemRecord, line.content, results, number)


def _begins_with(whole: Path, part: Path) -> bool:
    """Return whether a file begins with the content of another one."""
    size = part.stat().st_size
    if size > whole.stat().st_size:
        return False
    with whole.open("rb") as left, part.open("rb") as right:
        while chunk := right.read(1 << 20):
            if left.read(len(chunk)) != chunk:
                return False
    return True


def _check_places(unpacked: Path, folder: Path) -> None:
    """Raise Conflict where a file would take the place of a folder, or a folder that of a file."""
    for path in _files(unpacked):
        above = next((part for part in Path(path).parents if (folder / part).is_file()), None)
        if above or (folder / path).is_dir():
            raise Conflict(
                f"{folder.name}: {above or path} is a folder in one of this run and the portal's, "
                f"and a file in the other"
            )


def _continue_run(unpacked: Path, folder: Path) -> None:
    """Replace a run by one that went on: its files first, and the lines that name them last.

    Readers see the old lines or the new ones. A portal that is killed amid it has the old ones.
    """
    for path in _files(unpacked):
        target = folder / path
        is_there = target.is_file() and filecmp.cmp(unpacked / path, target, shallow=False)
        if path == RESULTS_FILE or is_there:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(unpacked / path, target)
    os.replace(unpacked / RESULTS_FILE, folder / RESULTS_FILE)
    shutil.rmtree(unpacked, ignore_errors=True)


def make_receiving(
    settings: PortalSettings, index: RunIndex, history: HistoryWriter | None
) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    folder = settings.results / PORTAL_FOLDER
    uploads = Uploads(settings.results, folder / _PUSHERS, settings.limits)
    at_a_time = asyncio.Semaphore(settings.limits.uploads)
    on_their_way: Counter[str] = Counter()  # by token
    for leftover in folder.glob(f"{_UPLOADING}*"):  # of a portal that was killed
        shutil.rmtree(leftover, ignore_errors=True)

    def make_place() -> Path:
        folder.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_UPLOADING, dir=folder))

    def take(archive: Path, token: str) -> tuple[Received, str]:
        received = uploads.take(archive, token, "read" in settings.tokens.purposes_of(token))
        index.refresh(wait=True)
        return received, history.add(received.run) if history else ""

    async def take_body(request: Request, token: str) -> tuple[Received, str]:
        place = await run_in_threadpool(make_place)
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
