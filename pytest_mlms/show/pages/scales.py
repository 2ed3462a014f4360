"""Axes of charts: from values to pixels, with ticks at round numbers and their texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_mlms.core.units import format_quantity

TickText: TypeAlias = Callable[[float], str]
"""The function that writes the ticks of an axis."""

_STEPS = (1, 2, 5, 10)
_LOG_DIGITS = ((1,), (1, 3), (1, 2, 5))  # of a decade, from sparse to dense
_LEAST_RATIO = 4.0  # of the ends of a logarithmic axis that has ticks at powers of ten
_MOST_RATIO = 1e12  # of the ends of a logarithmic axis
_LEAST = 1e-200  # of a positive value; those below can't be divided
_GREATEST = 1e200
_MOST_LOG_RATIO = 100.0  # of what a chart can show
_PAD = 0.04  # of the length of an axis, on both ends
_EQUAL_ROOM = 1.5  # ratio of the ends to values that are all the same
_ROUNDING = 1e-9  # of a step, within which a value is on a tick


def percent_of(log_ratio: float) -> float:
    """Return log(B / A) as a change from A to B in percent; a file may have any."""
    return 100 * math.expm1(min(log_ratio, _MOST_LOG_RATIO))


@dataclass(frozen=True)
class Scale:
    """A mapping of the values from ``low`` to ``high``; those beyond are put on the nearest end.

    A logarithmic scale has positive ends.
    """

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value is: 0 at the low end, 1 at the high end."""
        inside = min(max(value, self.low), self.high)
        low = self.low
        high = self.high
        if self.log:
            inside, low, high = map(math.log, (inside, low, high))
        return (inside - low) / (high - low)

    def holds(self, value: float) -> bool:
        """Return whether a value is within the ends, and not put on one of them."""
        return self.low <= value <= self.high

    def ticks(self, count: int) -> Sequence[float]:
        """Return about ``count`` round values within the ends."""
        if self.log and self.high / self.low >= _LEAST_RATIO:
            return log_ticks(self.low, self.high, count)
        return linear_ticks(self.low, self.high, count)


def linear_scale(values: Iterable[float], zero: bool = False) -> Scale:
    """Return a scale for these values with some room around them, from 0 on if ``zero``."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        finite = [0.0, 1.0]
    if zero:
        finite.append(0.0)
    low = min(finite)
    high = max(finite)
    room = (high - low) * _PAD or abs(high) * _PAD or 1.0  # there is some where all are the same
    if zero and low == 0:
        return Scale(0.0, high + room)
    return Scale(low - room, high + room)


def log_scale(values: Iterable[float]) -> Scale:
    """Return a logarithmic scale for those of the values that are positive.

    The least are put on its end where the values are more than twelve powers of ten apart.
    """
    positive = [value for value in values if _LEAST < value < _GREATEST]
    if not positive:
        positive = [1.0, 10.0]
    high = max(positive)
    low = max(min(positive), high / _MOST_RATIO)
    room = _EQUAL_ROOM
    if high > low:
        room = (high / low) ** _PAD
    return Scale(low / room, high * room, log=True)


def linear_ticks(low: float, high: float, count: int) -> Sequence[float]:
    """Return about ``count`` multiples of 1, 2 or 5 times a power of ten from ``low`` to ``high``.

    Source: Heckbert, Nice numbers for graph labels, Graphics Gems, 1990.
    """
    least = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(least))
    for digit in _STEPS:
        step = power * digit
        if least <= step * (1 + _ROUNDING):
            break
    first = math.ceil(low / step - _ROUNDING)
    last = math.floor(high / step + _ROUNDING)
    ticks = [index * step for index in range(first, last + 1)]
    return ticks or linear_ticks(low, high, count + 1)


def log_ticks(low: float, high: float, count: int) -> Sequence[float]:
    """Return powers of ten, or also 2, 3 or 5 times these where there is room for them."""
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    chosen: Sequence[float] = ()
    for digits in _LOG_DIGITS:
        ticks = []
        for exponent in range(first, last + 1):
            power = 10.0**exponent
            ticks += [digit * power for digit in digits if low <= digit * power <= high]
        if digits == _LOG_DIGITS[0] or len(ticks) <= count:
            chosen = ticks
    while len(chosen) > count:
        chosen = chosen[::2]
    return chosen


@dataclass(frozen=True)
class Axis:
    """An axis: its title with the unit, its scale, and how its ticks are written.

    ``ticks`` are those of the scale if there are none. An axis of rows has ``names``, the first on
    top, whose values are 0, 1, 2 ….
    """

    title: str
    scale: Scale
    text: TickText = "{:g}".format
    names: Sequence[str] = ()
    ticks: Sequence[float] = ()

    def ticks_of(self, count: int) -> Sequence[float]:
        """Return the ticks that were given, or about ``count`` ticks of the scale."""
        return self.ticks or self.scale.ticks(count)


def rows_axis(names: Sequence[str]) -> Axis:
    """Return the vertical axis of a chart with a row for each name."""
    scale = Scale(-0.5, len(names) - 0.5)
    return Axis("", scale, names=names)


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
