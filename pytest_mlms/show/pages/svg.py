"""Elements of SVG as text that is escaped once, where the element is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from markupsafe import Markup, escape

from pytest_mlms.core.text import visible
from pytest_mlms.show.pages.paints import filled

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
    """Return the path of a line through points in pixels; "" without any.

    Each point is written by its distance from the one before, both in tenths, which is shorter.
    """
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    if not tenths:
        return ""
    before = tenths[0]
    path = path_from(before[0] / 10, before[1] / 10)
    for point in tenths[1:]:
        across = number((point[0] - before[0]) / 10)
        down = number((point[1] - before[1]) / 10)
        path += f"l{across}{'' if down.startswith('-') else ' '}{down}"
        before = point
    return path


def words(x: float, y: float, text: str, anchor: str, paint: str, title: str = "") -> Markup:
    """Return a text that starts, ends or has its middle at a point; nothing for an empty one."""
    if not text:
        return Markup()
    return element("text", text, x=x, y=y, text_anchor=anchor, title=title, **filled(paint))


def group_of_words(texts: Iterable[tuple[float, float, str]], anchor: str, paint: str) -> Markup:
    """Return texts at points that have the anchor and the paint in common; empty ones left out."""
    children = [element("text", text, x=x, y=y) for x, y, text in texts if text]
    if not children:
        return Markup()
    return element("g", *children, text_anchor=anchor, **filled(paint))


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
