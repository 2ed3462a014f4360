"""Quantities with units.

Text to a number in the base unit (seconds, bytes, per second, fraction) and back.
"""

import math
import re
from decimal import Decimal

__all__ = ["UNITS", "format_quantity", "parse_quantity"]

UNITS: dict[str, dict[str, float]] = {
    "s": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    "B": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "/s": {"/s": 1.0, "/min": 1 / 60},
    "fraction": {"%": 0.01},
}
"""Base unit -> the units that may be written, with their factors."""

_SHOWN = {"s": ["s", "ms", "µs", "ns"], "B": ["GiB", "MiB", "KiB", "B"]}
_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*")


def parse_quantity(text: str | float, base: str) -> float:
    """Return ``text`` ("5 ms") in ``base`` ("s"); a fraction may also be a bare number from 0 to 1.

    Raises ValueError, whose text says what to write.
    """
    try:
        number, unit = _split(text, base)
    except ArithmeticError:  # an exponent beyond any machine's
        number, unit = Decimal("inf"), next(iter(UNITS[base]))
    factors = UNITS[base]
    if unit not in factors and not (base == "fraction" and unit == ""):
        found = f"the unit {unit!r}" if unit else "no unit"
        example = f"{number:g} {next(iter(factors))}"
        raise ValueError(
            f"{text!r} has {found}; write one of {', '.join(factors)}, as in '{example}'"
        )
    value = float(
        number * Decimal(repr(factors.get(unit, 1)))
    )  # decimal: 9 ms is 0.009 s, not 0.009000000000000001
    if not math.isfinite(value) or value < 0 or (base == "fraction" and value > 1):
        range_ = "0 to 1, or 0 % to 100 %" if base == "fraction" else "a finite number, 0 or more"
        raise ValueError(f"{text!r} is out of range; write {range_}")
    return value


def _split(text: str | float, base: str) -> tuple[Decimal, str]:
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return Decimal(repr(text)), ""
    found = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
    if not found:
        example = f"5 {next(iter(UNITS[base]))}"
        raise ValueError(
            f"{text!r} is not a quantity; write a number and a unit, as in '{example}'"
        )
    return Decimal(found[1]), found[2].replace(
        "\u03bc", "\u00b5"
    )  # the Greek letter, typed for the micro sign


def format_quantity(value: float, base: str) -> str:
    """Return ``value`` with three significant digits and the unit that a person would choose.

    "-" for no number.
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "unbounded"
    if base == "fraction":
        return f"{value * 100:.2f} %"
    units = _SHOWN.get(base)
    if units is None:
        return f"{_three_digits(value) if value == 0 or abs(value) >= 1e-3 else format(value, '.3g')} {base}".rstrip()
    unit = next(
        (unit for unit in units if abs(value) >= UNITS[base][unit]),
        units[-1] if value else units[0],
    )
    return f"{_three_digits(value / UNITS[base][unit])} {unit}"


def _three_digits(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
