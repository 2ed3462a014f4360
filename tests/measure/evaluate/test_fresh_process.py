"""Tests of the measurement of one fresh process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.evaluate import fresh_process
from tests.support.processes import FakePredictor, plan, scenario_run


def test_a_single_stream_counts_the_calls_alone() -> None:
    run = scenario_run([0.010] * 100, gap=0.010)
    seconds = fresh_process._seconds_per_input(plan(batch_size=4), run)
    assert seconds == pytest.approx(0.010 / 4)


def test_offline_counts_the_gaps_between_calls_too() -> None:
    run = scenario_run([0.010] * 100, gap=0.010)
    seconds = fresh_process._seconds_per_input(plan(scenario="offline", batch_size=4), run)
    assert seconds == pytest.approx(1.99 / 400)


def test_the_first_inference_includes_what_the_framework_does_before_it() -> None:
    predictor: Any = FakePredictor(lambda done: 0.010)
    predictor.bind_seconds = 1.5
    batches = [{"x": np.zeros(1)}]
    result = fresh_process.measure_process(plan(), predictor, batches, early=False)
    assert result.record.first_seconds == pytest.approx(1.51)
