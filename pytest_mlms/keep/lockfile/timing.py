"""Timings of a lock file: values with their intervals, as text that a person reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from pytest_mlms.core.units import format_quantity, parse_quantity

TIMED = {"latency_p50": "s", "throughput": "/s", "peak_memory": "B"}
"""The quantities of performance that a lock has, with their base units."""

TOLERANCE = 0.03
"""The distance from its interval up to which a change of a timing is not told, as a share."""

_FORM = re.compile(r"(?P<value>.+) \((?P<low>.+) to (?P<high>.+)\)")


class Timing(NamedTuple):
    """A value with its interval, in the base unit."""

    value: float
    low: float
    high: float


def parse_timing(text: str) -> Timing:
    """Return the timing that a text such as "5.2 ms (5.0 ms to 5.4 ms)" says.

    Raises ValueError.
    """
    found = _FORM.fullmatch(text)
    if found:
        for unit in TIMED.values():
            try:
                numbers = [parse_quantity(part, unit) for part in found.groups()]
            except ValueError:
                continue  # of another unit
            return Timing(*numbers)
    raise ValueError(f"{text!r} is no timing; write one as in '5.2 ms (5.0 ms to 5.4 ms)'")


def _checked(text: str) -> str:
    parse_timing(text)
    return text


TimingText = Annotated[str, AfterValidator(_checked)]


def timings_of(estimates: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each timing among the estimates of an item's results.

    Estimates without an interval, for which too little was measured, are left out.
    """
    for name, unit in TIMED.items():
        estimate = estimates.get(name, {})
        numbers = [estimate.get(key) for key in Timing._fields]
        if all(map(_is_finite, numbers)):
            value, low, high = (_rounded(number, unit) for number in numbers)
            yield name, f"{value} ({low} to {high})"


def _is_finite(number: Any) -> bool:
    return isinstance(number, (int, float)) and math.isfinite(number)


def _rounded(value: Any, unit: str) -> str:
    """Return a number with three digits and its unit; those of rates don't depend on the size."""
    if unit == "/s":
        value = float(f"{value:.3g}")
    return format_quantity(value, unit).replace(",", "")


def is_noise(old: str, new: str, tolerance: float = TOLERANCE) -> bool:
    """Return whether a change of a timing is noise: the new interval meets the old one, widened.

    The ends of the old interval are moved by ``tolerance``, a share of them.
    """
    before = parse_timing(old)
    now = parse_timing(new)
    low = before.low * (1 - tolerance)
    high = before.high * (1 + tolerance)
    return now.low <= high and low <= now.high


def is_sharper(old: str, new: str) -> bool:
    """Return whether a new timing's interval is less than half as wide as the old one."""
    before = parse_timing(old)
    now = parse_timing(new)
    return 2 * (now.high - now.low) < before.high - before.low
