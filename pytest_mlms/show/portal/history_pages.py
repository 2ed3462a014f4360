"""Pages of the history: series with their points, and changes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pytest_mlms.show.pages.series import series_chart
from pytest_mlms.show.portal.api import Number, Offset
from pytest_mlms.show.portal.histories import Histories
from pytest_mlms.show.portal.rendering import Pages

_ROWS = 50
_SHOWN_POINTS = 100


def make_history_pages(history: Histories, pages: Pages) -> APIRouter:
    """Return the routes; without a history they say how to have one."""
    router = APIRouter(include_in_schema=False)

    @router.get("/series")
    def all_series(request: Request, offset: Offset = 0, contains: str = "") -> Response:
        if not history.is_there:
            return _without(pages, request, "series")
        page = history.series(_ROWS, offset, contains)
        return pages.page(request, "series_list.html", place="series", page=page, contains=contains)

    @router.get("/series/{number}")
    def series(request: Request, number: Number) -> Response:
        found = history.series_view(number, _SHOWN_POINTS)
        changes = history.changes(_ROWS, 0, number).rows
        return pages.page(
            request,
            "series.html",
            place="series",
            series=found,
            points=found.points[::-1],
            changes=changes,
            chart=series_chart(found),
        )

    @router.get("/changes")
    def changes(request: Request, offset: Offset = 0) -> Response:
        if not history.is_there:
            return _without(pages, request, "changes")
        page = history.changes(_ROWS, offset)
        return pages.page(request, "changes.html", place="changes", page=page)

    return router


def _without(pages: Pages, request: Request, section: str) -> Response:
    text = "This portal has no history. Start it with --history; pytest --mlms-history makes one."
    return pages.page(request, "message.html", place=section, title=section.capitalize(), text=text)
