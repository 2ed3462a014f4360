"""Charts of layers and of shares of time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from pytest_mlms.measure.trace.records import Peaks
from pytest_mlms.measure.trace.tables import LayerRow
from pytest_mlms.show.pages.layers import (
    RoofPoint,
    layers_chart,
    roofline_chart,
    shares_chart,
    slowest_chart,
    types_chart,
    types_of,
)
from tests.support.svg import marks


def layers(count: int) -> list[LayerRow]:
    rows = []
    for index in range(count):
        kind = f"type {index % 14}"
        rows.append(LayerRow(index, f"layer {index}", kind, "1x3", 5, index + 1.0, 0.1, None, None))
    return rows


def test_layers_keep_their_places_and_the_slowest_of_many_are_shown() -> None:
    few = layers(8)
    assert len(marks(layers_chart(few, types_of(few)), "rect")) == 8
    many = layers(5000)
    svg = layers_chart(many, types_of(many))
    assert len(marks(svg, "rect")) == 240
    assert len(svg) < 100_000


def test_the_slowest_layers_are_named() -> None:
    svg = slowest_chart(layers(50), types_of(layers(50)))
    texts = ["".join(text.itertext()) for text in marks(svg, "text")]
    assert [text for text in texts if text.startswith("layer ")][:2] == ["layer 49", "layer 48"]
    assert len(marks(svg, "rect")) == 10


def test_types_beyond_the_tenth_are_together() -> None:
    svg = types_chart(layers(28), types_of(layers(28)))
    texts = ["".join(text.itertext()) for text in marks(svg, "text")]
    assert "others" in texts
    assert len(marks(svg, "rect")) == 11


def test_parts_of_a_call_fill_a_bar() -> None:
    svg = shares_chart({"GPU": 30.0, "CPU": 10.0})
    assert ET.fromstring(svg).attrib["aria-label"] == "GPU 75 %, CPU 25 %"
    shares_chart({"GPU": 0.0, "CPU": 0.0})


def test_points_lie_under_a_roof_with_what_bounds_them() -> None:
    peaks = Peaks(1e11, 1e10, "given")
    point = RoofPoint("conv", "Conv", 2.0, 12.0, 0.6, "memory")
    model = RoofPoint("the whole model", "", 50.0, 80.0, 0.8, "compute")
    svg = roofline_chart(peaks, model, [point], {"Conv": "c0"})
    titles = [title.text or "" for title in marks(svg, "title")]
    assert "peak 100 GFLOP/s; memory 10.0 GB/s" in titles
    assert any("60 % of the roof" in title and "bound by memory" in title for title in titles)
    assert len(marks(svg, "circle")) == 2
