"""Colours of charts and pages, by name, for light and dark screens and for print.

A shape has its colour for light screens as an attribute, and a class that a style sheet gives the
colour of the present scheme. So a picture is complete where a content policy blocks styles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
    light = _variables({name: paint.light for name, paint in PAINTS.items()})
    dark = _variables({name: paint.dark for name, paint in PAINTS.items()})
    classes = []
    for name in PAINTS:
        classes.append(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}")
    return "\n".join(
        [
            f":root{{color-scheme:light dark;{light}}}",
            f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}",
            *classes,
        ]
    )


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())
