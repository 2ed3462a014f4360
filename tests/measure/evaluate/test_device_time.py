"""The time of a call on a GPU, apart from the whole call's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pytest_mlms.core.quantities.quantity import DeviceTime
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, Turn
from pytest_mlms.measure.evaluate.fresh_process import _device_time
from pytest_mlms.measure.evaluate.timed_inputs import Mix, TimedBatches
from tests.support.processes import result_of, scenario_run


def predictor(**told: Any) -> Predictor:
    """Return a predictor on a GPU, each of whose calls takes a millisecond there by plain events."""
    found = {"device": "cuda:0", "clock": True, "events": None, **told}

    def turn(count: int, memory: bool) -> Turn:
        return Turn({"device": np.full(count, 0.001)}, {}, 1, event_times=found["events"])

    made = SimpleNamespace(
        device=found["device"],
        bind=lambda batches, order: Clocks(wait=True, device=found["clock"], stoppable=True),
        turn=turn,
    )
    return cast(Predictor, made)


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ({"events": (0.001, 0.0004)}, DeviceTime(0.0004, "events with a head start")),
        ({"events": (0.001, None)}, DeviceTime(0.001, "events")),
        ({}, DeviceTime(0.001, "events")),
        ({"clock": False}, None),
        ({"device": "cpu"}, None),
    ],
)
def test_launches_are_left_out_where_they_can_have_a_head_start(
    told: dict[str, Any], time: DeviceTime | None
) -> None:
    assert _device_time(predictor(**told), result_of(scenario_run([0.002] * 9))) == time


@pytest.mark.parametrize(("second", "seconds"), [(0, 0.0004), (1, 0.001)])
def test_inputs_of_several_shapes_have_not_the_time_of_the_first(
    second: int, seconds: float
) -> None:
    mix = Mix(("short", "long"), (0.5, 0.5))
    batches = TimedBatches([{}, {}], [(0,), (1,)], [0, second], mix, [0, 1])
    result = replace(result_of(scenario_run([0.002] * 9)), batches=batches)
    found = _device_time(predictor(events=(0.001, 0.0004)), result)
    assert found is not None
    assert found.seconds == seconds
