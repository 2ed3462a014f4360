"""Elements of SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.show.pages.svg import element, number, path_of


@given(st.text(), st.text(), st.text())
def test_any_text_stays_text(child: str, title: str, value: str) -> None:
    made = element("g", child, title=title, aria_label=value)
    parsed = ET.fromstring(made)
    assert {node.tag for node in parsed.iter()} <= {"g", "title"}
    assert set(parsed.attrib) == {"aria-label"}


def test_markup_is_not_escaped_again() -> None:
    inner = element("text", "a < b")
    assert element("g", inner) == "<g><text>a &lt; b</text></g>"


def test_an_attribute_that_is_none_is_left_out() -> None:
    assert (
        element("path", d="M0 0", stroke_dasharray=None, class_="x") == '<path d="M0 0" class="x"/>'
    )


def test_coordinates_are_short() -> None:
    assert [number(value) for value in (1.0, -0.04, 2.25, 10.06)] == ["1", "0", "2.2", "10.1"]
    assert path_of([(0, 0), (1.5, 2)]) == "M0 0l1.5 2"
    assert path_of([]) == ""
