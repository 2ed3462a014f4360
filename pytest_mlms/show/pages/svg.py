"""Pictures as SVG: their colours, and elements whose texts are escaped once, where they are made.

A shape has its colour for light screens as an attribute, and a class that a style sheet gives the
colour of the present scheme. So a picture is complete where a content policy blocks styles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from markupsafe import Markup, escape

from pytest_mlms.core.text import visible

FONT = 12.0
"""The size of the text in units of the picture."""

CHARACTER = 7.2
"""The width of a character of that size, on average and rather too much."""

WIDTH = 420.0
"""The width of a picture in its units: its text can be read on a screen of 400 pixels."""

Attribute: TypeAlias = str | float | None


class Paint(NamedTuple):
    """A colour on a light and on a dark background."""

    light: str
    dark: str


PAINTS: Mapping[str, Paint] = {
    "paper": Paint("#ffffff", "#16181d"),
    "ink": Paint("#1b1f24", "#e6e8eb"),
    "muted": Paint("#565f6b", "#a3acb8"),
    "grid": Paint("#dfe3e8", "#343a43"),
    "faint": Paint("#b4bfcb", "#5b6573"),
    "panel": Paint("#f5f6f8", "#1e2128"),
    "link": Paint("#0b57d0", "#8ab4f8"),
    "good": Paint("#14713a", "#5fce86"),
    "bad": Paint("#b3202a", "#ff8a84"),
    "warn": Paint("#8a5a00", "#f0b95a"),
    "band": Paint("#d9ece0", "#1d3b2a"),
    "worse": Paint("#f7d9d6", "#4a2624"),
    "a": Paint("#b45309", "#f2a65a"),
    "b": Paint("#0b57d0", "#8ab4f8"),
    "c0": Paint("#0b57d0", "#8ab4f8"),
    "c1": Paint("#b45309", "#f2a65a"),
    "c2": Paint("#0f766e", "#4fd1c1"),
    "c3": Paint("#7e22ce", "#c99bff"),
    "c4": Paint("#be185d", "#ff8fc0"),
    "c5": Paint("#4d7c0f", "#b3dd6a"),
}
"""Name -> paint. Text in ``ink``, ``muted``, ``link``, ``good``, ``bad`` and ``warn`` has a
contrast of 4.5 or more on ``paper`` and ``panel`` (WCAG 2.2, 1.4.3)."""

SERIES = ("c0", "c1", "c2", "c3", "c4", "c5")
"""Paints of lines that are told apart by colour alone."""


def paint_of(index: int) -> str:
    """Return the paint of a line by its number."""
    return SERIES[index % len(SERIES)]


def filled(paint: str) -> dict[str, str]:
    """Return the attributes of a shape that is filled."""
    return {"fill": PAINTS[paint].light, "class": f"f-{paint}"}


def stroked(paint: str, width: float = 1.5) -> dict[str, str]:
    """Return the attributes of a line of this width."""
    return {
        "fill": "none",
        "stroke": PAINTS[paint].light,
        "stroke-width": f"{width:g}",
        "class": f"s-{paint}",
    }


def palette_css() -> str:
    """Return the style sheet of the colours: a variable and two classes for each."""
    light = "".join(f"--{name}:{paint.light};" for name, paint in PAINTS.items())
    dark = "".join(f"--{name}:{paint.dark};" for name, paint in PAINTS.items())
    rules = [
        f":root{{color-scheme:light dark;{light}}}",
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}",
    ]
    for name in PAINTS:
        rules.append(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}")
    return "\n".join(rules)


def element(name: str, *children: str, title: str = "", **attributes: Attribute) -> Markup:
    """Return an element as markup, which templates don't escape again.

    Children that aren't markup are text and are escaped, as attributes are. An underscore in an
    attribute's name stands for a hyphen, and one at its end is dropped: ``class_``. Attributes that
    are None are left out. ``title`` is what browsers show where the pointer rests.
    """
    tag = name
    for key, value in attributes.items():
        if value is not None:
            text = value if isinstance(value, str) else number(value)
            tag += f' {key.rstrip("_").replace("_", "-")}="{_escaped(text)}"'
    content = [_escaped(child) for child in children]
    if title:
        content.insert(0, Markup(f"<title>{_escaped(title)}</title>"))
    if not content:
        return Markup(f"<{tag}/>")
    inner = Markup().join(content)
    return Markup(f"<{tag}>{inner}</{name}>")


def _escaped(text: str) -> Markup:
    """Return a text escaped and without controls; markup as it is."""
    if isinstance(text, Markup):
        return text
    return escape(visible(text))


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


def picture(
    label: str,
    height: float,
    parts: Iterable[Markup],
    width: float = WIDTH,
    kind: str = "chart",
) -> Markup:
    """Return an SVG of these parts; ``label`` says in words what it shows.

    ``kind`` is its class in the style sheet. Without that it has its own width, or that of a screen
    that is narrower.
    """
    return element(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=f"min(100%,{number(width)}px)",
        role="img",
        aria_label=label,
        class_=kind,
        font_family="system-ui, sans-serif",
        font_size=FONT,
    )
