"""Texts and marks of charts."""

from __future__ import annotations

import xml.etree.ElementTree as ET

__all__ = ["SVG", "marks", "texts", "titles"]

SVG = "{http://www.w3.org/2000/svg}"


def marks(svg: str, tag: str) -> list[ET.Element]:
    """Return the elements of a name."""
    return list(ET.fromstring(svg).iter(f"{SVG}{tag}"))


def titles(svg: str) -> set[str]:
    """Return the tooltips."""
    return {title.text or "" for title in marks(svg, "title")}


def texts(svg: str) -> set[str]:
    """Return the texts without their tooltips."""
    found = set()
    for text in marks(svg, "text"):
        *_, shown = text.itertext()
        found.add(shown.strip())
    return found
