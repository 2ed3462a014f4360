"""Charts with two axes."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ET

import pytest

from pytest_mlms.show.pages.canvas import LegendEntry, Plot, draw_legend
from pytest_mlms.show.pages.drawing import PAINTS, Axis, Scale, linear_scale, log_scale, rows_axis

SVG = "{http://www.w3.org/2000/svg}"


def full_plot() -> Plot:
    plot = Plot(
        "latency of two processes",
        Axis("latency, ms", log_scale([1, 200])),
        Axis("share", linear_scale([0, 1])),
    )
    plot.line([(1, 0.2), (5, 1)], "a", "process 1")
    plot.dot(3, 0.5, "b", "median: 3 ms")
    plot.bar((1, 2), (0, 0.5), "c0", "bar")
    plot.estimate(2, (1, 3), 0.2, "ink", "estimate")
    plot.whisker(2, (0.1, 0.9), "ink", "whisker")
    plot.vertical(50, "bad", "limit 50 ms")
    plot.horizontal(0.9, "warn", "p90")
    plot.words(1, 0.1, "<text>")
    plot.legend("process 1", "a")
    return plot


def test_a_chart_is_whole_without_a_style_sheet() -> None:
    parsed = ET.fromstring(full_plot().svg())
    grouped = {text for group in parsed.iter(f"{SVG}g") if "fill" in group.attrib for text in group}
    for node in parsed.iter():
        assert "style" not in node.attrib
        if node.tag.removeprefix(SVG) in ("path", "circle", "rect", "text"):
            assert node in grouped or node.attrib.get("fill") or node.attrib.get("stroke")


def test_a_chart_says_what_it_shows_and_each_mark_what_it_is() -> None:
    parsed = ET.fromstring(full_plot().svg())
    assert parsed.attrib["aria-label"] == "latency of two processes"
    titles = {title.text for title in parsed.iter(f"{SVG}title")}
    assert {"process 1", "median: 3 ms", "limit 50 ms", "whisker"} <= titles


def test_marks_stay_within_the_picture() -> None:
    plot = full_plot()
    plot.dot(1e9, -5, "b")
    parsed = ET.fromstring(plot.svg())
    _, _, width, height = map(float, parsed.attrib["viewBox"].split())
    for circle in parsed.iter(f"{SVG}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height


def test_a_chart_of_rows_is_as_high_as_it_has_rows() -> None:
    names = ["latency", "a quantity whose name is much too long for its place in a chart"]
    plot = Plot("rows", Axis("ratio", linear_scale([0.9, 1.1])), rows_axis(names))
    plot.dot(1.0, 0, "b")
    plot.dot(1.0, 1, "b")
    first, second = ET.fromstring(plot.svg()).iter(f"{SVG}circle")
    assert float(first.attrib["cy"]) < float(second.attrib["cy"])
    assert names[1] in plot.svg()


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = []
    for start in (1, 3, 5):
        share = int(colour[start : start + 2], 16) / 255
        parts.append(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_and_lines_be_seen_on_light_and_dark() -> None:
    needed = {"ink": 7, "muted": 4.5, "link": 4.5, "good": 4.5, "bad": 4.5, "warn": 4.5}
    for name, paint in PAINTS.items():
        if name in ("paper", "panel", "grid", "band", "worse", "faint"):
            continue
        for ground in (PAINTS["paper"], PAINTS["panel"]):
            assert contrast(paint.light, ground.light) >= needed.get(name, 3), name
            assert contrast(paint.dark, ground.dark) >= needed.get(name, 3), name


def test_long_names_are_whole_above_their_rows() -> None:
    names = ["/model.22/cv2.0/cv2.0.0/conv/Conv", "/model.22/cv2.0/cv2.0.1/conv/Conv"]
    plot = Plot("rows", Axis("time", linear_scale([0, 1])), rows_axis(names))
    plot.dot(1.0, 0, "b")
    plot.dot(1.0, 1, "b")
    parsed = ET.fromstring(plot.svg())
    tops = {text.text: float(text.attrib["y"]) for text in parsed.iter(f"{SVG}text")}
    first, second = (float(circle.attrib["cy"]) for circle in parsed.iter(f"{SVG}circle"))
    assert tops[names[0]] < first < tops[names[1]] < second


@pytest.mark.parametrize("scale", [linear_scale([1.0001, 1.0002]), log_scale([0.085, 0.21])])
def test_ticks_have_room_for_their_texts(scale: Scale) -> None:
    axis = Axis("time", scale, "{:.9f} seconds".format)
    parsed = ET.fromstring(Plot("wide", axis, Axis("share", linear_scale([0, 1]))).svg())
    wide = [text for text in parsed.iter(f"{SVG}text") if "seconds" in (text.text or "")]
    places = sorted(float(text.attrib["x"]) for text in wide)
    assert all(after - before > 100 for before, after in itertools.pairwise(places))


def test_entries_of_a_legend_go_on_in_the_next_row_where_one_is_full() -> None:
    entries = [LegendEntry(f"stack number {number}", "c0", False) for number in range(5)]
    drawn, height = draw_legend(entries, top=10, width=420)
    texts = list(ET.fromstring(f"<g>{drawn}</g>").iter("text"))
    assert [text.text for text in texts] == [entry.name for entry in entries]
    rows = [float(text.attrib["y"]) for text in texts]
    assert rows == sorted(rows)
    assert rows[0] == 14
    assert rows[-1] > rows[0]
    assert height == 18 * len(set(rows))
    firsts = {text.attrib["y"]: text.attrib["x"] for text in reversed(texts)}
    assert len(set(firsts.values())) == 1


def test_a_name_that_is_wider_than_the_picture_is_shortened_and_escaped_in_the_legend() -> None:
    drawn, _ = draw_legend([LegendEntry("<b>" * 100, "c0", True)], top=10, width=420)
    assert "<b>" not in drawn
    assert drawn.count("&lt;b&gt;") < 25
    assert "stroke-dasharray" in drawn


def test_an_interval_beyond_the_axis_ends_in_an_arrow_and_not_as_if_it_ended_there() -> None:
    def path(low: float, high: float, across: bool) -> str:
        plot = Plot("one", Axis("x", Scale(0, 10)), Axis("y", Scale(0, 10)))
        if across:
            plot.estimate(5, (low, high), 5, "ink", "marked")
        else:
            plot.whisker(5, (low, high), "ink", "marked")
        parsed = ET.fromstring(plot.svg())
        (marked,) = (one for one in parsed.iter() if one.findtext(f"{SVG}title") == "marked")
        return next(one.attrib["d"] for one in marked.iter() if "d" in one.attrib)

    for across, cap in ((True, "v8"), (False, "h8")):
        for low, high, caps in ((2, 8, 2), (-1, 8, 1), (2, 11, 1), (-1, math.inf, 0)):
            drawn = path(low, high, across)
            assert drawn.count(cap) == caps, (across, low, high)
            assert drawn.count("l") == 2 * (2 - caps), "an arrow has two strokes"
