"""Chart of parts that are a whole together, side by side in one bar."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.show.pages.canvas import Plot, around
from pytest_mlms.show.pages.scales import Axis, Scale, microsecond_tick, microseconds, rows_axis
from pytest_mlms.show.pages.svg import paint_of


def shares_chart(times: Mapping[str, float]) -> Markup:
    """Return a bar of the parts of a call: name -> microseconds."""
    total = sum(times.values()) or 1.0
    words = [f"{name} {percent(us / total, '.3g')}" for name, us in times.items()]
    axis = Axis("time of a call", Scale(0.0, total), microsecond_tick)
    plot = Plot(", ".join(words), axis, rows_axis([""]))
    begin = 0.0
    for number, (name, us) in enumerate(times.items()):
        paint = paint_of(number)
        share = us / total
        end = begin + us
        title = f"{name}: {microseconds(us)}, {percent(share)}"
        plot.bar((begin, end), around(0, 0.42), paint, title)
        plot.legend(f"{name} {percent(share, '.2g')}", paint)
        begin = end
    return plot.svg()
