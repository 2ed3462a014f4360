"""Chart of a request over time."""

from __future__ import annotations

from pytest_mlms.show.pages.traces import Timeline, TimelineSpan, timeline_chart
from tests.support.result_lines import HOSTILE
from tests.support.svg import marks


def test_a_timeline_has_a_bar_for_each_span_with_its_times() -> None:
    spans = [
        TimelineSpan(0, 0, 100, "predict", ""),
        TimelineSpan(1, 10, 60, f"conv {HOSTILE}", "Conv"),
    ]
    svg = timeline_chart(Timeline("layer", 3, 100, ["model", "layer"], spans), {"Conv": "c0"})
    assert len(marks(svg, "rect")) == 2
    titles = [title.text or "" for title in marks(svg, "title")]
    assert "predict: 100 µs from 0 s" in titles
    assert any(title.endswith(": 50.0 µs from 10.0 µs, Conv") for title in titles)
    assert "<script>" not in svg
