"""Chart of the roofline."""

from __future__ import annotations

from pytest_mlms.measure.trace.records import Peaks
from pytest_mlms.show.pages.roofline import RoofPoint, roofline_chart
from tests.support.svg import marks


def test_points_lie_under_a_roof_with_what_bounds_them() -> None:
    peaks = Peaks(1e11, 1e10, "given")
    point = RoofPoint("conv", "Conv", 2.0, 12.0, 0.6, "memory")
    model = RoofPoint("the whole model", "", 50.0, 80.0, 0.8, "compute")
    svg = roofline_chart(peaks, model, [point], {"Conv": "c0"})
    titles = [title.text or "" for title in marks(svg, "title")]
    assert "peak 100 GFLOP/s; memory 10.0 GB/s" in titles
    assert any("60 % of the roof" in title and "bound by memory" in title for title in titles)
    assert len(marks(svg, "circle")) == 2
