"""Bounds of a line's fields, which strict readers hold them to.

``from_plain`` reads the same records as pages do: leniently, and without bounds.
"""

from __future__ import annotations

from typing import Annotated, Any

__all__ = ["Bounds", "Count", "Name", "Text"]


class Bounds:
    """Annotation of a field: the bounds of strict readers, as pydantic.Field takes them."""

    def __init__(self, **of_field: Any) -> None:
        self.of_field = of_field


Count = Annotated[int, Bounds(ge=0, lt=2**31)]
Text = Annotated[str, Bounds(max_length=4000)]
"""A text that histories index: PostgreSQL's indexes take no more than 8 KiB."""

Name = Annotated[str, Bounds(min_length=1, max_length=400)]
