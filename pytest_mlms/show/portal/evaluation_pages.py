"""Pages and the REST interface of evaluations, for a portal with --allow-run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.text import visible
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.provide.stacks.declared import declared_stacks
from pytest_mlms.show.portal.evaluations import (
    BadRequest,
    Busy,
    Evaluation,
    Evaluations,
    read_request,
    whole_characters,
)
from pytest_mlms.show.portal.manifests import Manifests
from pytest_mlms.show.portal.rendering import Pages, read_form


class _Starter:
    """Starts what requests ask for; raises HTTPException for what can't be."""

    def __init__(self, evaluations: Evaluations, manifests: Manifests, folder: Path) -> None:
        self._evaluations = evaluations
        self._manifests = manifests
        self._folder = folder

    def stacks(self) -> Collection[str]:
        """Return the names of the stacks that the folder declares."""
        try:
            return declared_stacks(self._folder, [self._folder])
        except MlmsError as error:
            raise HTTPException(500, str(error)) from None

    async def start(self, fields: Mapping[str, Any]) -> Evaluation:
        """Start an evaluation."""
        try:
            request = read_request(fields, self._manifests.by_path(), self.stacks())
            return await self._evaluations.start(request)
        except BadRequest as error:
            raise HTTPException(400, str(error)) from None
        except Busy as error:
            raise HTTPException(409, str(error)) from None
        except OSError as error:
            problem = f"the evaluation can't be written: {error.strerror}"
            raise HTTPException(507, problem) from None

    def known(self, name: str) -> Evaluation:
        """Return an evaluation by its id."""
        found = self._evaluations.get(name)
        if found is None:
            raise HTTPException(404, "there is no such evaluation")
        return found

    async def cancel(self, name: str) -> None:
        """Cancel an evaluation that goes on."""
        self.known(name)
        running = self._evaluations.running
        if running is None or running.id != name:
            raise HTTPException(409, "the evaluation has ended")
        await self._evaluations.cancel()


def make_evaluation_pages(
    evaluations: Evaluations, manifests: Manifests, folder: Path, pages: Pages
) -> APIRouter:
    """Return the routes of pages."""
    router = APIRouter(prefix="/evaluations", include_in_schema=False)
    starter = _Starter(evaluations, manifests, folder)

    @router.get("")
    def show_all(request: Request) -> Response:
        return pages.page(
            request,
            "evaluations.html",
            place="evaluations",
            evaluations=evaluations.all(),
            running=evaluations.running,
            manifests=manifests.by_path().values(),
            stacks=starter.stacks(),
            levels=LEVELS,
        )

    @router.post("")
    async def start(request: Request) -> Response:
        form = await read_form(request)
        levels = [level for level in LEVELS if form.pop(f"trace_{level}", "")]
        made = await starter.start({**form, "trace": ",".join(levels)})
        return RedirectResponse(f"/evaluations/{made.id}", 303)

    @router.get("/{name}")
    def show(request: Request, name: str) -> Response:
        evaluation = starter.known(name)
        is_over = evaluation.status is not None
        output, read = whole_characters(evaluations.output(name), is_over)
        return pages.page(
            request,
            "evaluation.html",
            place="evaluations",
            evaluation=evaluation,
            output=visible(output),
            read=read,
        )

    @router.get("/{name}/events")
    def follow(request: Request, name: str) -> Response:
        starter.known(name)
        start = request.headers.get("last-event-id") or request.query_params.get("from", "0")
        first = int(start) if start.isdecimal() and len(start) < 12 else 0
        events = _events(evaluations, name, first)
        return StreamingResponse(events, media_type="text/event-stream")

    @router.post("/{name}/cancel")
    async def cancel(name: str) -> Response:
        await starter.cancel(name)
        return RedirectResponse(f"/evaluations/{name}", 303)

    return router


def make_evaluation_api(evaluations: Evaluations, manifests: Manifests, folder: Path) -> APIRouter:
    """Return the routes of the REST interface."""
    router = APIRouter(prefix="/api/v1/evaluations")
    starter = _Starter(evaluations, manifests, folder)

    @router.get("", summary="Evaluations, the newest first")
    def list_all() -> dict[str, Any]:
        return {"evaluations": to_plain(evaluations.all())}

    @router.post("", status_code=201, summary="Start an evaluation of a manifest")
    async def start(request: Request) -> Response:
        try:
            fields = json.loads(await request.body())
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise HTTPException(400, 'send a JSON object, such as {"manifest": "digits.yaml"}')
        return JSONResponse(to_plain(await starter.start(fields)), 201)

    @router.get("/{name}", summary="An evaluation, and what it printed")
    def show(name: str) -> dict[str, Any]:
        evaluation = starter.known(name)
        output = evaluations.output(name).decode(errors="replace")
        return {**to_plain(evaluation), "output": output}

    @router.post("/{name}/cancel", summary="Interrupt an evaluation, as Ctrl-C does")
    async def cancel(name: str) -> dict[str, Any]:
        await starter.cancel(name)
        plain: dict[str, Any] = to_plain(starter.known(name))
        return plain

    return router


async def _events(evaluations: Evaluations, name: str, start: int) -> AsyncIterator[str]:
    """Yield server-sent events: ``output`` with a text, and ``end``."""
    async for following, text in evaluations.events(name, start):
        if not text:
            yield ": alive\n\n"
            continue
        shown = json.dumps(visible(text))
        yield f"id: {following}\nevent: output\ndata: {shown}\n\n"
    yield "event: end\ndata: {}\n\n"
