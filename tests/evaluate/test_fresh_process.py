"""Tests of the measurement of one fresh process."""

from __future__ import annotations

import pytest

from pytest_mlms.evaluate import fresh_process
from tests.support.processes import plan, scenario_run


def test_a_single_stream_counts_the_calls_alone() -> None:
    run = scenario_run([0.010] * 100, gap=0.010)
    seconds = fresh_process._seconds_per_input(plan(batch_size=4), run)
    assert seconds == pytest.approx(0.010 / 4)


def test_offline_counts_the_gaps_between_calls_too() -> None:
    run = scenario_run([0.010] * 100, gap=0.010)
    seconds = fresh_process._seconds_per_input(plan(scenario="offline", batch_size=4), run)
    assert seconds == pytest.approx(1.99 / 400)
