"""Order of begins and ends, and lanes of spans that overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.trace.exporters.perfetto_events import event_order, lanes

Interval = tuple[int, int]

pairs = st.tuples(st.integers(0, 30), st.integers(0, 15))
intervals = st.lists(pairs.map(lambda pair: (pair[0], pair[0] + pair[1])), min_size=1, max_size=30)


def lanes_of(rows: list[Interval]) -> list[int]:
    start, end = np.array(rows).T
    found: list[int] = lanes(start, end).tolist()
    return found


def events_of(rows: list[Interval]) -> list[str]:
    """Return the events in their order: ``+0`` is the begin of span 0, ``-0`` its end."""
    start, end = np.array(rows).T
    order = event_order(start, end)
    events = []
    for span, begins in zip(order.span, order.begins, strict=True):
        sign = "+" if begins else "-"
        events.append(f"{sign}{span}")
    return events


def test_an_inner_span_begins_after_an_outer_one_at_the_same_time() -> None:
    assert events_of([(0, 10), (0, 20)]) == ["+1", "+0", "-0", "-1"]


def test_an_inner_span_ends_before_an_outer_one_at_the_same_time() -> None:
    assert events_of([(5, 20), (0, 20)]) == ["+1", "+0", "-0", "-1"]


def test_a_span_ends_before_the_next_begins_at_the_same_time() -> None:
    assert events_of([(10, 20), (0, 10)]) == ["+1", "-1", "+0", "-0"]


def test_a_span_of_no_length_begins_and_ends_inside_of_those_around_it() -> None:
    assert events_of([(10, 10), (10, 20)]) == ["+1", "+0", "-0", "-1"]


@given(intervals)
@settings(max_examples=200, deadline=None)
def test_spans_of_one_lane_never_cross(rows: list[Interval]) -> None:
    found = lanes_of(rows)
    for one, (start, end) in enumerate(rows):
        for other, (later_start, later_end) in enumerate(rows):
            crosses = start < later_start < end < later_end
            assert not crosses or found[one] != found[other]


def test_nested_and_consecutive_spans_share_the_first_lane() -> None:
    assert lanes_of([(0, 10), (2, 8), (10, 20)]) == [0, 0, 0]


def test_a_lane_is_used_again_once_it_is_free() -> None:
    assert lanes_of([(0, 10), (5, 15), (20, 30), (25, 35)]) == [0, 1, 0, 1]
