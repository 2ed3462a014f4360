"""Pages of templates, and their forms.

All values are escaped, as names in results come from strangers.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

from jinja2 import ChoiceLoader, PackageLoader
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse

import pytest_mlms
from pytest_mlms.show.pages.html import ago, environment
from pytest_mlms.show.pages.sparkline import sparkline
from pytest_mlms.show.portal.guard import SESSION_COOKIE
from pytest_mlms.show.portal.settings import PortalSettings

STATIC = Path(__file__).parent / "static"

_PLACES = ("models", "runs", "series", "changes", "hosts", "stacks")

_MOST_FIELDS = 100


class Pages:
    """The templates of a portal, which extend those of the report."""

    def __init__(self, settings: PortalSettings) -> None:
        report = environment()
        assert report.loader is not None
        own = PackageLoader("pytest_mlms.show.portal", "templates")
        self._environment = report.overlay(loader=ChoiceLoader([own, report.loader]))
        self._environment.filters = {
            **report.filters,
            "ago": ago,
            "sparkline": sparkline,
            "when": ago,
        }
        allowed = {"predict": settings.allow_predict, "evaluations": settings.allow_run}
        places = [*_PLACES, *(name for name, is_allowed in allowed.items() if is_allowed)]
        self._common = {"places": places, "version": pytest_mlms.__version__}

    def page(
        self, request: Request, template: str, status: int = 200, **values: object
    ) -> HTMLResponse:
        """Return the page that a template makes of ``values``."""
        of_request = {"place": "", "logged_in": SESSION_COOKIE in request.cookies}
        made = self._environment.get_template(template)
        return HTMLResponse(made.render({**self._common, **of_request, **values}), status)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, the last of each name; raises HTTPException."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "send a form (application/x-www-form-urlencoded)")
    try:
        body = await request.body()
        fields = parse_qs(
            body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=_MOST_FIELDS
        )
    except ClientDisconnect:
        raise HTTPException(400, "the client went away") from None
    except ValueError:
        raise HTTPException(400, "the form can't be read") from None
    return {name: values[-1] for name, values in fields.items()}
