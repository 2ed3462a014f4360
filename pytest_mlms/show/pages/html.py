"""Templates of the pages and of the one-file report, which escape all that they are given."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from pytest_mlms.core.errors import MlmsError

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = "templates"


def require_templates() -> None:
    """Raise MlmsError where jinja2 is missing, which names the extra."""
    if importlib.util.find_spec("jinja2") is None:
        raise MlmsError("an HTML report needs jinja2; pip install 'pytest-mlms[report]'")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates of this package, with the filters of numbers.

    A name that a template is not given is an error. Raises MlmsError where jinja2 is missing.
    """
    require_templates()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from pytest_mlms.show.pages.filters import FILTERS

    made = Environment(
        loader=PackageLoader("pytest_mlms.show.pages", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(FILTERS)
    made.globals["style_sheet"] = style_sheet
    return made


@lru_cache(maxsize=1)
def style_sheet() -> str:
    """Return the style sheet of reports and pages, which has no URL and nothing from elsewhere."""
    from markupsafe import Markup

    from pytest_mlms.show.pages.svg import palette_css

    rules = resources.files(__package__).joinpath(_TEMPLATES, "style.css").read_text()
    return Markup(f"{palette_css()}\n{rules}")
