"""The application: its routes, behind the guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from anyio import to_thread
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.keep.history.errors import HistoryUnavailable
from pytest_mlms.show.pages.html import style_sheet
from pytest_mlms.show.portal.api import make_api
from pytest_mlms.show.portal.catalog import Catalog, RunViews
from pytest_mlms.show.portal.evaluation_pages import make_evaluation_api, make_evaluation_pages
from pytest_mlms.show.portal.evaluations import Evaluations
from pytest_mlms.show.portal.guard import API, Guard, is_inference
from pytest_mlms.show.portal.histories import Histories, HistoryWriter
from pytest_mlms.show.portal.home import make_home
from pytest_mlms.show.portal.inference import make_inference_api
from pytest_mlms.show.portal.login import make_login
from pytest_mlms.show.portal.manifests import Manifests
from pytest_mlms.show.portal.pages import make_history_pages, make_pages
from pytest_mlms.show.portal.predict_api import make_predict_api
from pytest_mlms.show.portal.predict_pages import make_predict_pages
from pytest_mlms.show.portal.predictions import Predictions, predictions_of
from pytest_mlms.show.portal.rendering import STATIC, Pages
from pytest_mlms.show.portal.run_index import PORTAL_FOLDER, RunIndex
from pytest_mlms.show.portal.settings import PortalSettings
from pytest_mlms.show.portal.uploads import make_receiving

_THREADS = 12
"""Threads that answer requests: each has a cache of the databases, and Python runs one at once."""


def make_app(settings: PortalSettings) -> ASGIApp:
    """Return the application of ASGI for these settings; raises MlmsError."""
    index = RunIndex(settings.results, settings.limits.line_bytes)
    catalog = Catalog(index)
    views = RunViews(settings.results, index, catalog)
    history = Histories(settings.history)
    manifests = Manifests(settings.manifests)
    pages = Pages(settings)
    evaluations = None
    if settings.allow_run and settings.manifests is not None:
        place = settings.results / PORTAL_FOLDER / "evaluations"
        evaluations = Evaluations(settings.manifests, settings.results, place)
    predictions = predictions_of(settings, manifests)
    writer = None
    if settings.history is not None and settings.tokens:  # of a portal that takes runs
        writer = HistoryWriter(settings.history, settings.results)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        index.refresh(wait=True)
        async with _serving(predictions, settings):
            yield
        if evaluations is not None:
            await evaluations.cancel()
        history.close()
        index.close()

    app = FastAPI(
        title="pytest-mlms portal",
        version=pytest_mlms.__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )

    @app.get("/static/style.css", include_in_schema=False)
    def style() -> Response:
        return Response(style_sheet(), media_type="text/css")

    app.mount("/static", StaticFiles(directory=STATIC))
    app.include_router(make_login(settings, pages))
    app.include_router(make_receiving(settings, index, writer))
    app.include_router(make_api(index, catalog, views, history))
    app.include_router(make_home(catalog, views, history, manifests, pages))
    app.include_router(make_pages(catalog, views, history, manifests, pages))
    app.include_router(make_history_pages(history, pages))
    if evaluations is not None and settings.manifests is not None:
        folder = settings.manifests
        app.include_router(make_evaluation_api(evaluations, manifests, folder))
        app.include_router(make_evaluation_pages(evaluations, manifests, folder, pages))
    _add_predictions(app, predictions, manifests, pages)
    app.add_exception_handler(HTTPException, _http_error(pages))
    app.add_exception_handler(MlmsError, _our_error(pages, settings))
    return Guard(app, settings)


def _add_predictions(
    app: FastAPI, predictions: Predictions | None, manifests: Manifests, pages: Pages
) -> None:
    """Add the routes of predictions, where the portal allows them."""
    if predictions is not None:
        app.include_router(make_predict_api(predictions))
        app.include_router(make_predict_pages(predictions, manifests, pages))
        app.include_router(make_inference_api(predictions))


@contextlib.asynccontextmanager
async def _serving(
    predictions: Predictions | None, settings: PortalSettings
) -> AsyncIterator[None]:
    """Close the models at the end, and serve them over gRPC until then where that is asked for."""
    if predictions is None:
        yield
        return
    try:
        if settings.grpc is None:
            yield
            return
        from pytest_mlms.show.portal.inference_grpc import serving_grpc  # an extra

        async with serving_grpc(predictions, settings):
            yield
    finally:
        await predictions.close()


def _http_error(pages: Pages) -> Callable[[Request, Exception], Response]:
    """Return a handler of errors of requests."""

    def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        is_page = error.status_code == 404 and error.detail == "Not Found"
        text = "There is no such page." if is_page else error.detail
        answer = _error(pages, request, error.status_code, text)
        answer.headers.update(error.headers or {})
        if error.status_code in (408, 413):  # the rest of the body is not read
            answer.headers["Connection"] = "close"
        return answer

    return handle


def _our_error(pages: Pages, settings: PortalSettings) -> Callable[[Request, Exception], Response]:
    """Return a handler of runs and histories that can't be read."""

    def handle(request: Request, error: Exception) -> Response:
        status = 503 if isinstance(error, HistoryUnavailable) else 500
        text = str(error).replace(f"{settings.results}/", "")
        return _error(pages, request, status, text)

    return handle


def _error(pages: Pages, request: Request, status: int, text: str) -> Response:
    """Return an error as JSON to programs, and as a page to people."""
    if is_inference(request):
        return JSONResponse({"error": text}, status)
    if request.scope["path"].startswith(API):
        return JSONResponse({"detail": text}, status)
    return pages.page(request, "message.html", status, title="Error", text=text)
