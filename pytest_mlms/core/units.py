"""Parsing and formatting of quantities with units.

The base units are seconds, bytes, per second, joules, and fractions.
"""

import math
import re
from decimal import Decimal

from pytest_mlms.core.text import shortened

__all__ = ["UNITS", "format_quantity", "parse_quantity", "parse_share"]

UNITS: dict[str, dict[str, float]] = {
    "s": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    "B": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "/s": {"/s": 1.0, "/min": 1 / 60},
    "fraction": {"%": 0.01},
    "J": {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6, "kJ": 1e3},
    "dB": {"dB": 1.0},
}
"""Base unit -> the units that may be written, with their factors."""

_JOULES = ["kJ", "J", "mJ", "µJ"]
_SHOWN_UNITS = {"s": ["s", "ms", "µs", "ns"], "B": ["GiB", "MiB", "KiB", "B"], "J": _JOULES}
"""Base unit -> the units that values are shown in, largest first."""

_NUMBER_AND_UNIT = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)")
_LONGEST = 100  # characters of a number and its unit
_GREEK_MU = "\u03bc"
_MICRO_SIGN = "\u00b5"

_MOST_DIGITS = 9  # that two values are told apart by


def parse_quantity(text: str | float, base: str) -> float:
    """Return ``text`` ("5 ms") in ``base`` ("s"); a fraction may also be a bare number from 0 to 1.

    Raises ValueError with a message that tells the user what to write.
    """
    number, unit = _number_and_unit(text, base)
    value = _product(number, _factor(text, number, unit, base))
    most = 1.0 if base == "fraction" else math.inf
    if not math.isfinite(value) or not 0 <= value <= most:
        expected = "0 to 1, or 0 % to 100 %" if base == "fraction" else "a finite number, 0 or more"
        raise ValueError(f"{text!r} is out of range; write {expected}")
    return value


def parse_share(text: str | float) -> float:
    """Return a share that may be more than all of something, such as "250 %" or 0.03.

    A bare number is below 1: 1 may be meant as 1 % or as 100 %. Raises ValueError with a message
    that tells the user what to write.
    """
    number, unit = _number_and_unit(text, "fraction")
    share = _product(number, _factor(text, number, unit, "fraction"))
    if not math.isfinite(share) or share < 0:
        raise ValueError(f"{text!r} is out of range; write 0 % or more")
    if not unit and share >= 1:
        raise ValueError(f"{text!r} has no unit; write {share:g} % or {100 * share:g} %")
    return share


def _product(number: Decimal, factor: Decimal) -> float:
    """Return a number in the base unit; infinity for one that is out of range."""
    try:
        return float(number * factor)
    except ArithmeticError:
        return math.inf


def _number_and_unit(text: str | float, base: str) -> tuple[Decimal, str]:
    """Return the number and the unit as written; infinity for an exponent out of range."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return Decimal(repr(text)), ""
    written = text.strip() if isinstance(text, str) else ""
    found = _NUMBER_AND_UNIT.fullmatch(written) if len(written) <= _LONGEST else None
    if found is None:
        example = f"5 {_first_unit(base)}"
        text = f"{shortened(repr(text), _LONGEST)} is not a quantity"
        raise ValueError(f"{text}; write a number and a unit, as in '{example}'")
    unit = found[2].replace(_GREEK_MU, _MICRO_SIGN)
    try:
        return Decimal(found[1]), unit
    except ArithmeticError:
        return Decimal("inf"), _first_unit(base)


def _factor(text: str | float, number: Decimal, unit: str, base: str) -> Decimal:
    """Return the factor of a unit to the base unit.

    A decimal number keeps 9 ms at 0.009 s, where a float gives 0.009000000000000001.
    """
    factors = UNITS[base]
    if unit in factors:
        return Decimal(repr(factors[unit]))
    if base == "fraction" and unit == "":
        return Decimal(1)
    found = f"the unit {unit!r}" if unit else "no unit"
    known = ", ".join(factors)
    example = f"{number:g} {_first_unit(base)}"
    raise ValueError(f"{text!r} has {found}; write one of {known}, as in '{example}'")


def _first_unit(base: str) -> str:
    return next(iter(UNITS[base]))


def format_quantity(value: float, base: str, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits and a unit that fits its size.

    NaN is "-" and infinity is "unbounded".
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "unbounded"
    if base == "fraction":
        return f"{value * 100:.{digits - 1}f} %"
    if base in _SHOWN_UNITS:
        unit = _shown_unit(value, base)
        factor = UNITS[base][unit]
        return f"{_in_digits(value / factor, digits)} {unit}"
    return f"{_plain_number(value, digits)} {base}".rstrip()


def format_apart(value: float, other: float, base: str) -> tuple[str, str]:
    """Return two values as ``format_quantity`` does, with digits enough to tell them apart."""
    for digits in range(3, _MOST_DIGITS + 1):
        texts = format_quantity(value, base, digits), format_quantity(other, base, digits)
        if texts[0] != texts[1]:
            return texts
    return format_quantity(value, base), format_quantity(other, base)


def _shown_unit(value: float, base: str) -> str:
    """Return the largest unit of which ``value`` has one or more."""
    units = _SHOWN_UNITS[base]
    if value == 0:
        return base
    for unit in units:
        if abs(value) >= UNITS[base][unit]:
            return unit
    return units[-1]


def _plain_number(value: float, digits: int) -> str:
    if value == 0 or abs(value) >= 1e-3:
        return _in_digits(value, digits)
    return format(value, f".{digits}g")


def _in_digits(value: float, digits: int) -> str:
    """Return a number with so many digits, and all of those before the point."""
    magnitude = math.floor(math.log10(abs(value))) if value else digits
    decimals = max(0, digits - 1 - magnitude)
    return f"{value:,.{decimals}f}"
