"""Chart of parts of a whole."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from pytest_mlms.show.pages.layers import shares_chart


def test_parts_of_a_call_fill_a_bar() -> None:
    svg = shares_chart({"GPU": 30.0, "CPU": 10.0})
    assert ET.fromstring(svg).attrib["aria-label"] == "GPU 75 %, CPU 25 %"
    shares_chart({"GPU": 0.0, "CPU": 0.0})
