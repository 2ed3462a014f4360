"""What each layer counted is what was added between the readings around it."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.trace.counters import BY_LAYER, CounterRow, counter_rows
from pytest_mlms.trace.spans import Builder, Series, Trace, Track
from pytest_mlms.trace.tables import parents_of

Readings = list[tuple[int, float]]


def counted(level: str, *requests: tuple[list[tuple[str, int, int]], Readings]) -> Trace:
    """A run of requests, each with its layers (name, start, end) and its readings (time, value)."""
    builder = Builder()
    builder.runs.append({"level": level})
    track = builder.track(Track(0, 1, 1, "main", "thread"))
    for number, (layers, readings) in enumerate(requests):
        on = {"track": track, "run": 0, "request": number}
        builder.add(level=1, name=builder.text("predict"), start=[layers[0][1]], end=[layers[-1][2]], **on)
        for name, start, end in layers:
            builder.add(level=2, name=builder.text(name), type=builder.text("T"), start=[start], end=[end], **on)
        times, values = (np.array(each) for each in zip(*readings, strict=True))
        builder.count(Series("faults", "count", 0), times, values)
    return builder.build()


def rows(trace: Trace) -> list[CounterRow]:
    return counter_rows(trace, parents_of(trace))


def test_a_layer_counts_what_was_added_between_the_readings_around_it() -> None:
    first = ([("conv", 10, 20), ("relu", 30, 40)], [(5, 100.0), (25, 107.0), (45, 109.0)])
    second = ([("conv", 60, 70), ("relu", 80, 90)], [(55, 200.0), (75, 201.0), (95, 201.0)])
    assert rows(counted(BY_LAYER, first, second)) == [
        CounterRow(0, "conv", "T", "faults", "count", 4.0, 2),
        CounterRow(1, "relu", "T", "faults", "count", 1.0, 2),
    ]


def test_a_layer_with_a_reading_inside_of_it_or_none_around_it_is_left_out() -> None:
    layers = [("early", 10, 20), ("split", 30, 50), ("good", 60, 70), ("late", 80, 90)]
    found = rows(counted(BY_LAYER, (layers, [(25, 1.0), (40, 2.0), (55, 3.0), (75, 8.0)])))
    assert [(row.index, row.layer, row.per_call) for row in found] == [(2, "good", 5.0)]


@pytest.mark.parametrize("level", ["layer", "hardware"])
def test_other_runs_have_no_counts_by_layer(level: str) -> None:
    assert rows(counted(level, ([("conv", 10, 20)], [(5, 1.0), (25, 2.0)]))) == []
