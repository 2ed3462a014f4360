"""Parts of pictures: colours and elements of SVG, and axes from values to pixels.

A shape has its colour for light screens as an attribute, and a class that a style sheet gives the
colour of the present scheme. So a picture is complete where a content policy blocks styles. Texts
are escaped once, where elements are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from markupsafe import Markup, escape

from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity

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
