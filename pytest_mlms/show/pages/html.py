"""Templates of pages and of the one-file report, which escape all that they are given.

An item has sections by its kind, a heading and pictures or tables. A part of a page is imported
when an item has it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import visible
from pytest_mlms.decide.upgrade.labels import format_change, tolerance_label, verdict_label
from pytest_mlms.show.pages.numbers import (
    count_text,
    distance_text,
    duration_text,
    estimate_text,
    interval_text,
    limit_text,
    own_text,
    quantity_label,
    value_text,
    verdict_words,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from pytest_mlms.show.pages.canvas import Context
    from pytest_mlms.show.pages.item import ItemView


_TEMPLATES = "templates"
_TONES = {
    "ERROR": "bad",
    "INVALID": "bad",
    "FAILED": "bad",
    "REGRESSED": "bad",
    "INCONCLUSIVE": "warn",
    "XFAILED": "muted",
    "PASSED": "good",
    "IMPROVED": "good",
    "SKIPPED": "muted",
}
"""Verdict -> the paint of its badge."""


def tone(verdict: str) -> str:
    """Return the paint of a verdict."""
    return _TONES.get(verdict, "muted")


def words(verdict: str) -> str:
    """Return a verdict as the last line of a run has it after a number."""
    return verdict_words(Verdict(verdict))


def when(time: str) -> Markup:
    """Return a time as people read it, with its machine's form."""
    from markupsafe import Markup

    return Markup('<time datetime="{}">{}</time>').format(visible(time), visible(moment(time)))


def ago(time: str) -> Markup:
    """Return how long ago a time is, with its date in full as a title; a date beyond a month."""
    from markupsafe import Markup

    text = _ago(time) or moment(time)
    tag = Markup('<time datetime="{}" title="{}">{}</time>')
    return tag.format(visible(time), visible(moment(time)), visible(text))


def _ago(time: str) -> str:
    """Return how long ago a time is in words; "" for one beyond a month, to come, or damaged."""
    try:
        then = datetime.fromisoformat(time)
        passed = datetime.now(timezone.utc) - then.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return ""
    minutes = int(passed.total_seconds() // 60)
    if minutes < 0 or passed.days > _MOST_DAYS:
        return ""
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min ago"
    if not passed.days:
        return f"{minutes // 60} h ago"
    return "1 day ago" if passed.days == 1 else f"{passed.days} days ago"


def moment(time: str) -> str:
    """Return a time of ISO 8601 as people read it, without fractions of a second."""
    return time[:19].replace("T", " ") + (" UTC" if time.endswith("+00:00") else "")


_MOST_DAYS = 30

FILTERS: Mapping[str, Callable[..., Any]] = {
    "change": format_change,
    "count": count_text,
    "distance": distance_text,
    "duration": duration_text,
    "estimate": estimate_text,
    "interval": interval_text,
    "label": quantity_label,
    "limit": limit_text,
    "moment": moment,
    "own": own_text,
    "quantity": value_text,
    "tolerance": tolerance_label,
    "tone": tone,
    "verdict": verdict_label,
    "visible": visible,
    "when": when,
    "words": words,
}
"""Name in templates -> filter. ``{{ estimate.value | quantity(estimate.unit) }}``."""


def require_templates() -> None:
    """Raise MlmsError where jinja2 is missing, which names the extra."""
    if importlib.util.find_spec("jinja2") is None:
        raise MlmsError(f"an HTML report needs jinja2; {install('report')}")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates of this package, with the filters of numbers.

    A name that a template is not given is an error. Raises MlmsError where jinja2 is missing.
    """
    require_templates()
    from jinja2 import Environment, PackageLoader, StrictUndefined

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

    from pytest_mlms.show.pages.drawing import palette_css

    rules = resources.files(__package__).joinpath(_TEMPLATES, "style.css").read_text()
    return Markup(f"{palette_css()}\n{rules}")


KINDS = ("accuracy", "agreement", "performance", "trace", "upgrade")
"""The kinds of items that have sections."""


class Section(NamedTuple):
    """A section: its heading, its macro in ``_parts.html``, and the function that fills it.

    ``context`` returns the macro's arguments, None where the item has nothing for it. It reads the
    item and the item's artifacts, of which any may be missing or broken.
    """

    title: str
    macro: str
    context: Callable[[ItemView], Context | None]


def sections_of(item: ItemView) -> Iterator[tuple[str, Markup]]:
    """Yield the heading and the content of each section that an item has."""
    parts = environment().get_template("_parts.html").module
    for section in _possible(item):
        context = section.context(item)
        if context is not None:
            yield section.title, getattr(parts, section.macro)(**context)


def _possible(item: ItemView) -> Sequence[Section]:
    """Return the sections of items of this kind, in the order in which they are shown."""
    if item.kind == "accuracy":
        from pytest_mlms.show.pages.estimates import intervals_section
        from pytest_mlms.show.pages.mistakes import mistakes_section
        from pytest_mlms.show.pages.worst_inputs import worst_inputs_section

        return [
            Section("Accuracy against its limits", "figures", intervals_section),
            Section("Worst inputs", "worst_inputs", worst_inputs_section),
            Section("Mistakes by class", "figures", mistakes_section),
        ]
    if item.kind == "agreement":
        from pytest_mlms.show.pages.estimates import intervals_section

        return [Section("Agreement against its limits", "figures", intervals_section)]
    if item.kind == "performance":
        from pytest_mlms.show.pages.estimates import latency_section

        return [Section("Latency", "figures", latency_section), *_of_trace(item)]
    if item.kind == "trace":
        return _of_trace(item)
    if item.kind == "upgrade":
        from pytest_mlms.show.pages.upgrade import (
            changes_section,
            layers_section,
            queries_section,
            worse_inputs_section,
        )

        return [
            Section("Inputs that got worst, from A to B", "lines", worse_inputs_section),
            Section("What changed", "figures", changes_section),
            Section("Queries under load", "figures", queries_section),
            Section("Layers that moved", "figures", layers_section),
        ]
    return []


def _of_trace(item: ItemView) -> Sequence[Section]:
    """Return the sections of a trace, which items of performance have if they were traced."""
    if item.trace is None and "trace.npz" not in item.artifacts:
        return []
    from pytest_mlms.show.pages.structure import structure_section
    from pytest_mlms.show.pages.traces import trace_section

    return [
        Section("Where the time went", "figures", trace_section),
        Section("Structure and cost", "structure", structure_section),
    ]
