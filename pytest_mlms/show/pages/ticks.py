"""Texts of ticks: short numbers with their units."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytest_mlms.core.units import format_quantity

TickText: TypeAlias = Callable[[float], str]
"""The function that writes the ticks of an axis."""


def short_value(unit: str) -> TickText:
    """Return the function that writes a value in this base unit without needless digits."""

    def text(value: float) -> str:
        number, _, shown_unit = format_quantity(value, unit).partition(" ")
        if "." in number:
            number = number.rstrip("0").rstrip(".")
        return f"{number} {shown_unit}".rstrip()

    return text


def whole_number(value: float) -> str:
    """Return a whole number; "" for a tick between two of them."""
    if value != round(value):
        return ""
    return f"{value:,.0f}"


def signed_number(value: float) -> str:
    """Return a number with its sign; 0 has none."""
    if value == 0:
        return "0"
    return f"{value:+g}"


def microseconds(us: float) -> str:
    """Return a time, given in microseconds, with a unit that fits it."""
    return format_quantity(us / 1e6, "s")


def microsecond_tick(us: float) -> str:
    """Return a time, given in microseconds, without needless digits; 0 has no unit."""
    if us == 0:
        return "0"
    return short_value("s")(us / 1e6)
