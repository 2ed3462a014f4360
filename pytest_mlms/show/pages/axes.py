"""Axes of a chart: titles, scales, and ticks with their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_mlms.show.pages.scales import Scale


@dataclass(frozen=True)
class Axis:
    """An axis: its title with the unit, its scale, and how its ticks are written.

    ``ticks`` are those of the scale if there are none. An axis of rows has ``names``, the first on
    top, whose values are 0, 1, 2 ….
    """

    title: str
    scale: Scale
    text: Callable[[float], str] = "{:g}".format
    names: Sequence[str] = ()
    ticks: Sequence[float] = ()

    def ticks_of(self, count: int) -> Sequence[float]:
        """Return the ticks: those that were given, or about ``count`` of the scale."""
        return self.ticks or self.scale.ticks(count)


def rows_axis(names: Sequence[str]) -> Axis:
    """Return the vertical axis of a chart with a row for each name."""
    scale = Scale(-0.5, len(names) - 0.5)
    return Axis("", scale, names=names)
