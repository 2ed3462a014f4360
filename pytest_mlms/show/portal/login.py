"""Logging in and out: a browser shows a token once, and has a signed cookie from then on."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from pytest_mlms.show.portal.guard import SESSION_COOKIE
from pytest_mlms.show.portal.rendering import Pages, read_form
from pytest_mlms.show.portal.settings import PortalSettings
from pytest_mlms.show.portal.tokens import SESSION_SECONDS


def make_login(settings: PortalSettings, pages: Pages) -> APIRouter:
    """Return the routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    def show(request: Request) -> Response:
        place = _own_path(request.query_params.get("next", "/"))
        return pages.page(request, "login.html", next=place, wrong=False)

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        form = await read_form(request)
        token = form.get("token", "").strip()
        place = _own_path(form.get("next", "/"))
        if "read" not in settings.tokens.purposes_of(token):
            return pages.page(request, "login.html", 401, next=place, wrong=True)
        answer = RedirectResponse(place, 303)
        answer.set_cookie(
            SESSION_COOKIE,
            settings.tokens.sign_session(token),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    @router.post("/logout")
    def log_out(request: Request) -> Response:
        settings.tokens.end_session(request.cookies.get(SESSION_COOKIE, ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return answer

    return router


def _own_path(place: str) -> str:
    """Return a path of the portal to go to; the first page where it would be elsewhere."""
    is_ours = place.startswith("/") and not place.startswith(("//", "/\\"))
    return place if is_ours and place.isprintable() else "/"
