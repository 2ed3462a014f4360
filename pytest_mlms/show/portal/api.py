"""The REST interface, ``/api/v1``: the views of pages as JSON, and files of runs as downloads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi import Path as PathOf
from starlette.responses import StreamingResponse

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.portal.catalog import Catalog, Page, RunViews
from pytest_mlms.show.portal.histories import Histories
from pytest_mlms.show.portal.run_index import RunIndex

Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=1 << 40)]
Number = Annotated[int, PathOf(ge=0, lt=1 << 31)]
Json = dict[str, Any]

_CHUNK = 1 << 18  # bytes
_SHOWN = {
    ".csv": "text/plain; charset=utf-8",
    ".json": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
}
"""Suffixes of files that a browser may show; all others, such as .html and .svg, are saved."""

_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"


def make_api(index: RunIndex, catalog: Catalog, views: RunViews, history: Histories) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1")
    router.include_router(_of_runs(catalog, views))
    router.include_router(_of_files(index, catalog))
    router.include_router(_of_lists(catalog, views))
    router.include_router(_of_history(history))
    return router


def _of_runs(catalog: Catalog, views: RunViews) -> APIRouter:
    """Return the routes of runs and their items."""
    router = APIRouter()

    @router.get("/runs", summary="Runs, the newest first")
    def runs(limit: Limit = 100, offset: Offset = 0) -> Json:
        return _page("runs", catalog.runs(limit, offset))

    @router.get("/runs/{run}", summary="A run with all of its items")
    def run(run: str) -> Json:
        found = views.run(run)
        if found is None:
            raise HTTPException(404, f"there is no run {run[:100]}")
        items = tuple(_without_folder(item) for item in found.items)
        plain: Json = to_plain(replace(found, items=items, folder=Path(run)))
        return plain

    @router.get("/runs/{run}/items/{number}", summary="An item by the number of its line")
    def item(run: str, number: Number) -> Json:
        found = views.item(run, number)
        if found is None:
            raise HTTPException(404, "there is no such item")
        plain: Json = to_plain(_without_folder(found))
        return plain

    return router


def _of_files(index: RunIndex, catalog: Catalog) -> APIRouter:
    """Return the routes of items' files."""
    router = APIRouter()

    @router.get("/runs/{run}/items/{number}/artifacts", summary="Names of an item's files")
    def artifacts(run: str, number: Number) -> Json:
        return {"artifacts": catalog.artifacts(run, number)}

    @router.get("/runs/{run}/items/{number}/artifacts/{name:path}", summary="A file of an item")
    def artifact(run: str, number: Number, name: str) -> Response:
        path = catalog.artifacts(run, number).get(name)
        if path is None:
            raise HTTPException(404, "there is no such artifact")
        return serve_file(index, run, path)

    return router


def _of_lists(catalog: Catalog, views: RunViews) -> APIRouter:
    """Return the routes of lists over all runs."""
    router = APIRouter()

    @router.get("/items", summary="Items of all runs, the newest first")
    def items(
        limit: Limit = 100, offset: Offset = 0, model: str = "", host: str = "", stack: str = ""
    ) -> Json:
        return _page("items", catalog.items(limit, offset, model, host, stack))

    @router.get("/models", summary="Models that were evaluated")
    def models() -> Json:
        return {"models": to_plain(catalog.models())}

    @router.get("/models/{name:path}", summary="Structure and static cost of a model, by trace")
    def model(name: str) -> Json:
        _check(catalog, model=name)
        return {"name": name, "structures": to_plain(views.structures(name))}

    @router.get("/hosts", summary="Hosts that items ran on, with the last item of each")
    def hosts() -> Json:
        return {"hosts": to_plain(catalog.hosts())}

    @router.get("/hosts/{name:path}", summary="Stacks and versions that a host had")
    def host(name: str) -> Json:
        _check(catalog, host=name)
        return {"host": name, "software": to_plain(catalog.software(host=name))}

    @router.get("/stacks", summary="Stacks that items ran on, with the last item of each")
    def stacks() -> Json:
        return {"stacks": to_plain(catalog.stacks())}

    @router.get("/stacks/{name:path}", summary="Hosts and versions that a stack had")
    def stack(name: str) -> Json:
        _check(catalog, stack=name)
        return {"stack": name, "software": to_plain(catalog.software(stack=name))}

    return router


def _of_history(history: Histories) -> APIRouter:
    """Return the routes that read the history; without one they answer 404."""
    router = APIRouter()

    @router.get("/series", summary="Series of the history, by name")
    def series(limit: Limit = 100, offset: Offset = 0, contains: str = "") -> Json:
        return _page("series", history.series(limit, offset, contains))

    @router.get("/series/{number}", summary="A series")
    def one_series(number: Number) -> Json:
        plain: Json = to_plain(history.one_series(number))
        return plain

    @router.get("/series/{number}/points", summary="The newest points of a series, in order")
    def points(number: Number, limit: Limit = 100) -> Json:
        return {"points": to_plain(history.points(number, limit))}

    @router.get("/changes", summary="Changes that were found, the newest first")
    def changes(limit: Limit = 100, offset: Offset = 0) -> Json:
        return _page("changes", history.changes(limit, offset))

    return router


def _check(catalog: Catalog, **of: str) -> None:
    """Refuse the name of a model, host or stack without any item; raises HTTPException."""
    if not catalog.items(1, 0, **of).total:
        raise HTTPException(404, f"there is no such {', '.join(of)}")


def _page(name: str, page: Page[Any]) -> Json:
    rows = to_plain(page.rows)
    return {name: rows, "total": page.total, "offset": page.offset, "limit": page.limit}


def _without_folder(item: ItemView) -> ItemView:
    """Return an item that doesn't tell where the portal has its files."""
    return replace(item, folder=Path(item.folder.name))


def serve_file(index: RunIndex, run: str, path: str) -> Response:
    """Return the answer that has a file of a run; raises HTTPException where it is not there."""
    try:
        file = index.open_file(run, path)
    except OSError:
        raise HTTPException(404, "the file is not there any more") from None
    name = PurePosixPath(path).name
    suffix = PurePosixPath(path).suffix.lower()
    shown = _SHOWN.get(suffix)
    place = "inline" if shown else "attachment"
    headers = {
        "Content-Disposition": f"{place}; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Security-Policy": _POLICY,
    }
    kind = shown or "application/octet-stream"
    return StreamingResponse(_content(file), media_type=kind, headers=headers)


def _content(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        left = os.fstat(file.fileno()).st_size  # a log may grow meanwhile
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk
