"""The guard in front of all pages: names, origins, tokens, sizes, times, and headers of answers.

It is a layer of ASGI below all routes, so that no route can forget it. What it decides by is
``scope["path"]``, as routes do; ``request.url`` is put together from the Host header.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytest_mlms.core.units import format_quantity
from pytest_mlms.show.portal.addresses import OwnNames
from pytest_mlms.show.portal.settings import Limits, PortalSettings

API = "/api/"
UPLOADS = "/api/v1/runs"
"""The path that takes runs, whose requests may be larger."""

TOKEN_PATH = "/api/v1/token"
"""The path that any token opens, so that a program can try it before a large upload."""

PREDICT = "/api/v1/predict"
"""The path that takes inputs of models."""

INFERENCE = "/v2"
"""The beginning of paths of the Open Inference Protocol, which takes tensors of models."""

_PREDICT_PAGE = "/predict"

SESSION_COOKIE = "mlms_portal"

_OPEN = ("/login", "/static/")
"""The beginnings of paths that need no token."""

_SAFE_METHODS = ("GET", "HEAD")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers would also hide the origin of forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The timeline of a trace is sent to a window of Perfetto that a page opens.
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",
    "Cache-Control": "no-store",
}

_DIGITS = 20  # of a length; Python reads no number of thousands


class Guard:
    """Refuses requests that nobody here has sent, and limits the others."""

    def __init__(self, app: ASGIApp, settings: PortalSettings) -> None:
        self._app = app
        self._settings = settings
        self._names = OwnNames(settings.listen, settings.urls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; pass on the messages of the server's start and end."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        request = Request(scope)
        protected = _with_headers(send)
        answer = self._refusal(request)
        if answer is not None:
            await answer(scope, receive, protected)
            return
        most = self._most_bytes(request)
        if announced_length(request) > most:
            answer = _refused(request, 413, f"it is larger than {format_quantity(most, 'B')}")
            await answer(scope, receive, protected)
            return
        body = LimitedBody(receive, most, self._settings.limits)
        await self._app(scope, body.receive, protected)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that must not get any further; None for the others."""
        if not self._names.has_host(request.headers.get("host", "")):
            return _refused(request, 421, "this portal has another name; see --url")
        is_safe = request.method in _SAFE_METHODS and not is_inference(request)
        if not is_safe and self._is_cross_site(request):
            return _refused(request, 403, "the request comes from another site")
        if request.method not in _SAFE_METHODS and not self._is_taken_without_token(request):
            return _refused(request, 403, "a portal without a token takes nothing")
        if self._settings.tokens and not request.scope["path"].startswith(_OPEN):
            return self._refusal_of_token(request)
        return None

    def _is_taken_without_token(self, request: Request) -> bool:
        """Return whether a request that is no reading needs no more than the tokens that are.

        Predictions change nothing: without any token, a portal of loopback takes these.
        """
        may_predict = self._settings.allow_predict and _purpose_of(request) == "predict"
        return bool(self._settings.tokens) or may_predict

    def _refusal_of_token(self, request: Request) -> Response | None:
        """Return the answer to a request whose token or session isn't for it; None for others."""
        purposes = self._purposes(request)
        if not purposes:
            return _login(request)
        if request.scope["path"] == TOKEN_PATH or _purpose_of(request) in purposes:
            return None
        allowed = " and ".join(sorted(purposes))
        return _refused(request, 403, f"this token may {allowed}, and nothing else")

    def _is_cross_site(self, request: Request) -> bool:
        """Return whether a request that changes or opens something was made by another site's page.

        Browsers name the site with each such request; none is an address that a person typed. What
        has neither header is no browser's, and a program has no cookie that could be misused.
        """
        origin = request.headers.get("origin")
        if origin is not None:
            return not self._names.has_origin(origin, request.headers.get("host", ""))
        site = request.headers.get("sec-fetch-site")
        if site is not None:
            return site != "same-origin" and (site, request.method) != ("none", "GET")
        return SESSION_COOKIE in request.cookies

    def _purposes(self, request: Request) -> frozenset[str]:
        """Return what the token or the browser's session of a request is for."""
        tokens = self._settings.tokens
        token = bearer_token(request)
        if token is not None:
            return tokens.purposes_of(token)
        return tokens.purposes_of_session(request.cookies.get(SESSION_COOKIE, ""))

    def _most_bytes(self, request: Request) -> int:
        limits = self._settings.limits
        if self._settings.allow_predict and _is_prediction(request):
            return limits.predict_bytes
        is_upload = request.method == "POST" and request.scope["path"] == UPLOADS
        return limits.upload_bytes if is_upload else limits.form_bytes


def bearer_token(request: Request) -> str | None:
    """Return the token that a program sends, None where there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _purpose_of(request: Request) -> str:
    """Return the purpose that a token needs for a request."""
    if _is_prediction(request) or is_inference(request):
        return "predict"
    if request.method in _SAFE_METHODS or request.scope["path"] == "/logout":
        return "read"
    return "push" if request.scope["path"] == UPLOADS else "run"


def is_inference(request: Request) -> bool:
    """Return whether a request is of the Open Inference Protocol."""
    path: str = request.scope["path"]
    return path == INFERENCE or path.startswith(f"{INFERENCE}/")


def _is_prediction(request: Request) -> bool:
    path = request.scope["path"]
    is_page = path == _PREDICT_PAGE or path.startswith(f"{_PREDICT_PAGE}/")
    return request.method == "POST" and (path == PREDICT or is_page or is_inference(request))


def _with_headers(send: Send) -> Send:
    """Return ``send`` with the headers of all answers; a route may set others of these names."""

    async def send_protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_protected


def _login(request: Request) -> Response:
    """Return the answer to a request without a token: for a person's page the one to log in."""
    is_program = request.scope["path"].startswith(API) or is_inference(request)
    if is_program or request.method not in _SAFE_METHODS:
        answer = _refused(request, 401, "the token is missing, or is none of this portal's")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    place = request.scope["path"]
    if request.scope["query_string"]:
        place += f"?{request.scope['query_string'].decode('latin-1')}"
    return RedirectResponse(f"/login?next={quote(place, safe='/')}", 303)


def _refused(request: Request, status: int, reason: str) -> Response:
    # The rest of a body that nobody reads would be taken for the next request.
    headers = {"Connection": "close"}
    if is_inference(request):
        return JSONResponse({"error": reason}, status, headers)
    if request.scope["path"].startswith(API):
        return JSONResponse({"detail": reason}, status, headers)
    return PlainTextResponse(f"{reason}\n", status, headers)


def announced_length(request: Request) -> int:
    """Return the bytes that a request says its body has; 0 where it doesn't say."""
    length = request.headers.get("content-length", "0")
    return int(length[:_DIGITS]) if length.isdecimal() else 0


@dataclass
class LimitedBody:
    """The body of a request, of at most ``most`` bytes; its ``receive`` raises HTTPException."""

    receive_message: Receive
    most: int
    limits: Limits
    taken: int = 0
    began: float = field(default_factory=time.monotonic)
    is_whole: bool = False

    async def receive(self) -> Message:
        """Return the next message of the server; of a client that is gone http.disconnect."""
        if self.is_whole:  # what comes is that the client goes away
            return await self.receive_message()
        try:
            message = await asyncio.wait_for(self.receive_message(), self._seconds_left())
        except asyncio.TimeoutError:
            raise HTTPException(408, "the request is too slow; send it again") from None
        self.taken += len(message.get("body", b""))
        self.is_whole = not message.get("more_body", False)
        if self.taken > self.most:
            most = format_quantity(self.most, "B")
            raise HTTPException(413, f"the request is larger than {most}")
        return message

    def _seconds_left(self) -> float:
        """Return the time that the next part may take: no stall, and no trickle."""
        stall = self.limits.stall_seconds
        deadline = self.began + stall + self.taken / self.limits.bytes_per_second
        return max(0.0, min(stall, deadline - time.monotonic()))
