"""Times on one clock."""

from __future__ import annotations

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Layer
from mlms_predictors._run import timeline
from mlms_predictors._run.timeline import TimedLayer, in_queue, in_turn, wall_offset

SECONDS = st.floats(0, 10)


@given(SECONDS, SECONDS, st.lists(SECONDS))
def test_layers_follow_each_other_inside_their_call(
    start: float, length: float, durations: list[float]
) -> None:
    layers: list[TimedLayer] = []
    for number, seconds in enumerate(durations):
        layers.append((str(number), "any", seconds, None, None))
    profile = in_turn(start, start + length, layers)
    now = start
    for layer, seconds in zip(profile.layers, durations, strict=True):
        assert layer.start == now
        assert layer.end - layer.start == pytest.approx(seconds, abs=1e-9)
        now = layer.end
    assert profile.start == start
    assert profile.end == max(start + length, now)


@given(st.lists(st.tuples(SECONDS, SECONDS, st.none() | SECONDS), max_size=9))
def test_layers_of_a_queue_take_their_kernels_time_and_overlap_nothing(
    launches: list[tuple[float, float, float | None]],
) -> None:
    free = 0.0
    for start, length, on_device in sorted(launches, key=lambda launch: launch[0]):
        layer = in_queue(Layer("x", "x", start, start + length, None, None), on_device, free)
        assert layer.start >= max(start, free)
        if on_device is not None:
            assert layer.end - layer.start == pytest.approx(on_device, abs=1e-9)
        assert layer.end >= layer.start
        free = layer.end


def test_the_offset_of_the_wall_clock_is_that_of_the_closest_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    walls = iter([100.0, 102.0, 103.0, 105.0, 107.0])
    clocks = types.SimpleNamespace(
        perf_counter=lambda: next(readings),
        time=lambda: next(walls),
    )
    monkeypatch.setattr(timeline, "time", clocks)
    assert wall_offset() == 102 * 10**9 - int(2.25 * 10**9)
