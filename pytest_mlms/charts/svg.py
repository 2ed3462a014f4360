"""Elements of SVG as text that is escaped once, where the element is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from markupsafe import Markup, escape

from pytest_mlms.charts.paints import filled
from pytest_mlms.text import visible

__all__ = ["CHARACTER", "FONT", "Attribute", "element", "number", "path_from", "path_of", "words"]

FONT = 12.0
"""The size of the text in units of the picture."""

CHARACTER = 7.2
"""The width of a character of that size, on average and rather too much."""

Attribute: TypeAlias = str | float | None


def element(name: str, *children: str, title: str = "", **attributes: Attribute) -> Markup:
    """Return an element as markup, which templates don't escape again.

    Children that aren't markup are text and are escaped, as attributes are. An underscore in an
    attribute's name stands for a hyphen, and one at its end is dropped: ``class_``. Attributes that
    are None are left out. ``title`` is what browsers show where the pointer rests.
    """
    tag = name
    for key, value in attributes.items():
        tag += _attribute(key, value)
    content = [_text(child) for child in children]
    if title:
        content.insert(0, Markup(f"<title>{_text(title)}</title>"))
    if not content:
        return Markup(f"<{tag}/>")
    inner = Markup().join(content)
    return Markup(f"<{tag}>{inner}</{name}>")


def number(value: float) -> str:
    """Return a coordinate in pixels with one decimal, as short as possible."""
    text = f"{value:.1f}"
    if text.endswith(".0"):
        text = text[:-2]
    return "0" if text == "-0" else text


def path_from(x: float, y: float) -> str:
    """Return the beginning of a path at a point in pixels."""
    return f"M{number(x)} {number(y)}"


def path_of(points: Iterable[tuple[float, float]]) -> str:
    """Return the path of a line through points in pixels; "" without any."""
    words = [f"{number(x)} {number(y)}" for x, y in points]
    if not words:
        return ""
    return f"M{'L'.join(words)}"


def words(x: float, y: float, text: str, anchor: str, paint: str, title: str = "") -> Markup:
    """Return a text that starts, ends or has its middle at a point; nothing for an empty one."""
    if not text:
        return Markup()
    return element("text", text, x=x, y=y, text_anchor=anchor, title=title, **filled(paint))


def _attribute(name: str, value: Attribute) -> str:
    if value is None:
        return ""
    key = name.rstrip("_").replace("_", "-")
    text = value if isinstance(value, str) else number(value)
    return f' {key}="{_text(text)}"'


def _text(text: str) -> Markup:
    """Return a text escaped and without controls; markup as it is."""
    if isinstance(text, Markup):
        return text
    return escape(visible(text))
