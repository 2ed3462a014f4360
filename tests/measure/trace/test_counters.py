"""Counters by layer and by phase."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pytest_mlms.measure.trace import BY_LAYER, BY_PHASE, PHASES
from pytest_mlms.measure.trace.counters import CounterRow, PhaseRow, counter_rows, phase_rows
from pytest_mlms.measure.trace.spans import Trace
from tests.support.traces import TraceWriter


class Request(NamedTuple):
    """Layers (name, start, end) of a request, and readings (time, value) of its counters."""

    layers: list[tuple[str, int, int]]
    readings: list[tuple[int, float]]


FIRST = Request(
    layers=[("conv", 10, 20)],
    readings=[(5, 100.0), (15, 103.0), (25, 107.0)],
)
SECOND = Request(
    layers=[("conv", 60, 70)],
    readings=[(55, 200.0), (75, 201.0)],
)


def counted(level: str, *requests: Request) -> Trace:
    """A run whose requests count page faults, which rise, and read the power, which is a state."""
    writer = TraceWriter()
    run = writer.run(level)
    for number, request in enumerate(requests):
        run.request = number
        run.predict(request.layers[0][1], request.layers[-1][2])
        for name, start, end in request.layers:
            run.layer(name, start, end)
        run.count("faults", "count", request.readings, rising=True)
        run.count("power", "W", request.readings)
    return writer.build()


def test_a_layer_counts_the_difference_of_the_readings_around_it() -> None:
    first = Request(
        layers=[("conv", 10, 20), ("relu", 30, 40)],
        readings=[(5, 100.0), (25, 107.0), (45, 109.0)],
    )
    second = Request(
        layers=[("conv", 60, 70), ("relu", 80, 90)],
        readings=[(55, 200.0), (75, 201.0), (95, 201.0)],
    )
    assert counter_rows(counted(BY_LAYER, first, second)) == [
        CounterRow(0, "conv", "T", "faults", "count", 4.0, 2),
        CounterRow(1, "relu", "T", "faults", "count", 1.0, 2),
    ]


def test_a_layer_with_a_reading_inside_of_it_or_without_one_around_it_is_left_out() -> None:
    layers = [("early", 10, 20), ("split", 30, 50), ("good", 60, 70), ("late", 80, 90)]
    readings = [(25, 1.0), (40, 2.0), (55, 3.0), (75, 8.0)]
    (row,) = counter_rows(counted(BY_LAYER, Request(layers, readings)))
    assert row.index == 2
    assert row.layer == "good"
    assert row.per_call == 5.0


def test_a_layer_beside_a_reading_that_was_left_out_is_not_counted() -> None:
    layers = [("one", 10, 20), ("two", 30, 40), ("three", 50, 60), ("four", 70, 80)]
    writer = TraceWriter()
    run = writer.run(BY_LAYER)
    run.request = 0
    run.predict(10, 80)
    for layer in layers:
        run.layer(*layer)
    whole = [(5, 0.0), (25, 1.0), (45, 2.0), (65, 3.0), (85, 4.0)]
    run.count("clock", "ns", whole, rising=True)
    run.count("misses", "count", [whole[0], (25, 10.0), (85, 90.0)], rising=True)
    found = {(row.layer, row.counter): row.per_call for row in counter_rows(writer.build())}
    assert found == {
        **{(name, "clock"): 1.0 for name, *_ in layers},
        ("one", "misses"): 10.0,
    }


def test_counters_that_were_left_out_at_different_times_keep_their_own_readings() -> None:
    layers = [("one", 10, 20), ("two", 30, 40), ("three", 50, 60), ("four", 70, 80)]
    whole = [(5, 0.0), (25, 1.0), (45, 2.0), (65, 3.0), (85, 4.0)]
    writer = TraceWriter()
    run = writer.run(BY_LAYER)
    run.request = 0
    run.predict(10, 80)
    for layer in layers:
        run.layer(*layer)
    for number in (1, 3):
        run.count(f"without {number}", "count", whole[:number] + whole[number + 1 :], rising=True)
    found = {(row.layer, row.counter): row.per_call for row in counter_rows(writer.build())}
    assert found == {
        ("three", "without 1"): 1.0,
        ("four", "without 1"): 1.0,
        ("one", "without 3"): 1.0,
        ("two", "without 3"): 1.0,
    }


@pytest.mark.parametrize("level", ["layer", "hardware"])
def test_other_runs_have_no_counters_by_layer(level: str) -> None:
    assert counter_rows(counted(level, FIRST)) == []


def test_calls_count_what_rises_around_them_and_have_the_range_of_states() -> None:
    faults, power = phase_rows(counted("hardware", FIRST, SECOND))
    assert faults == PhaseRow("predict", "faults", "count", 4.0, None, None, None, 5)
    assert power.per_call is None
    assert power.least == 100.0
    assert power.most == 201.0
    assert power.readings == 5
    assert power.mean == pytest.approx(711 / 5)


def test_runs_without_counters_have_no_phases() -> None:
    assert phase_rows(counted("layer", FIRST)) == []


def test_phases_of_a_request_count_in_the_order_of_a_request() -> None:
    writer = TraceWriter()
    writer.run("hardware")
    run = writer.run(BY_PHASE)
    run.span("application", "decode", 11, 20)
    for phase, start in zip(PHASES, (10, 20, 30), strict=True):
        run.span("application", phase, start, start + 8)
    readings = [(9, 0.0), (20, 5.0), (29, 6.0), (39, 9.0)]
    run.count("faults", "count", readings, rising=True)
    rows = phase_rows(writer.build())
    assert [row.phase for row in rows] == list(PHASES)
    assert [row.per_call for row in rows] == [5.0, 1.0, 3.0]
