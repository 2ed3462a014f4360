"""What each layer counted is what was added between the readings around it."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.trace import BY_LAYER, BY_PHASE, PHASES
from pytest_mlms.trace.builder import TraceBuilder
from pytest_mlms.trace.counters import (
    CounterRow,
    PhaseRow,
    counter_rows,
    phase_rows,
)
from pytest_mlms.trace.runs import TraceRun
from pytest_mlms.trace.spans import CounterSeries, Trace, Track

Readings = list[tuple[int, float]]


def counted(level: str, *requests: tuple[list[tuple[str, int, int]], Readings]) -> Trace:
    """A run of requests, each with its layers (name, start, end) and its readings (time, value)."""
    builder = TraceBuilder()
    builder.add_run(TraceRun(level))
    track = builder.track(Track(0, 1, 1, "main", "thread"))
    for number, (layers, readings) in enumerate(requests):
        on = {"track": track, "run": 0, "request": number}
        builder.add(
            level=1, name=builder.text("predict"), start=[layers[0][1]], end=[layers[-1][2]], **on
        )
        for name, start, end in layers:
            builder.add(
                level=2,
                name=builder.text(name),
                type=builder.text("T"),
                start=[start],
                end=[end],
                **on,
            )
        times, values = (np.array(each) for each in zip(*readings, strict=True))
        builder.count(CounterSeries("faults", "count", 0, rising=True), times, values)
        builder.count(CounterSeries("power", "W", 0), times, values)
    return builder.build()


def rows(trace: Trace) -> list[CounterRow]:
    return counter_rows(trace)


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


def test_a_call_counts_what_was_added_around_it_whatever_was_read_inside_and_states_are_told_as_they_were() -> (
    None
):
    first = ([("conv", 10, 20)], [(5, 100.0), (15, 103.0), (25, 107.0)])
    second = ([("conv", 60, 70)], [(55, 200.0), (75, 201.0)])
    assert phase_rows(counted("hardware", first, second)) == [
        PhaseRow("predict", "faults", "count", 4.0, None, None, None, 5),
        PhaseRow("predict", "power", "W", None, 100.0, pytest.approx(711 / 5), 201.0, 5),
    ]
    assert phase_rows(counted("layer", first)) == []


def test_phases_of_this_side_have_their_own_counts_in_the_order_of_a_request() -> None:
    builder = TraceBuilder()
    builder.runs += [TraceRun("hardware"), TraceRun(BY_PHASE)]
    track = builder.track(Track(1, 1, 1, "pytest", "thread"))
    for index, (name, at) in enumerate(zip(("decode", *PHASES), (11, 10, 20, 30), strict=True)):
        builder.add(
            level=0,
            name=builder.text(name),
            start=[at],
            end=[at + 9 - index],
            track=track,
            run=1,
            request=0,
        )
    builder.count(
        CounterSeries("faults", "count", 1, rising=True),
        np.array([9, 20, 29, 39]),
        np.array([0.0, 5.0, 6.0, 9.0]),
    )
    assert [(row.phase, row.per_call) for row in phase_rows(builder.build())] == [
        (PHASES[0], 5.0),
        (PHASES[1], 1.0),
        (PHASES[2], 3.0),
    ]
