"""Pages of templates. All values are escaped, as names in results come from strangers."""

from __future__ import annotations

from pathlib import Path

from jinja2 import ChoiceLoader, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse

import pytest_mlms
from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.portal.guard import SESSION_COOKIE
from pytest_mlms.show.portal.settings import PortalSettings

STATIC = Path(__file__).parent / "static"

_PLACES = ("models", "runs", "series", "changes", "hosts", "stacks")


class Pages:
    """The templates of a portal, which extend those of the report."""

    def __init__(self, settings: PortalSettings) -> None:
        report = environment()
        assert report.loader is not None
        own = PackageLoader("pytest_mlms.show.portal", "templates")
        self._environment = report.overlay(loader=ChoiceLoader([own, report.loader]))
        places = (*_PLACES, "evaluations") if settings.allow_run else _PLACES
        self._common = {"places": places, "version": pytest_mlms.__version__}

    def page(
        self, request: Request, template: str, status: int = 200, **values: object
    ) -> HTMLResponse:
        """Return the page that a template makes of ``values``."""
        of_request = {"place": "", "logged_in": SESSION_COOKIE in request.cookies}
        made = self._environment.get_template(template)
        return HTMLResponse(made.render({**self._common, **of_request, **values}), status)
