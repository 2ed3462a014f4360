"""Whole pictures: SVG that is complete without style sheets and scripts."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from pytest_mlms.show.pages.svg import FONT, element, number

WIDTH = 420.0
"""The width of a picture in its units: its text can be read on a screen of 400 pixels."""


def picture(label: str, height: float, parts: Iterable[Markup], width: float = WIDTH) -> Markup:
    """Return an SVG of these parts; ``label`` says in words what it shows.

    Without a style sheet it has its own width, or that of a screen that is narrower.
    """
    return element(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=f"min(100%,{number(width)}px)",
        role="img",
        aria_label=label,
        class_="chart",
        font_family="system-ui, sans-serif",
        font_size=FONT,
    )
