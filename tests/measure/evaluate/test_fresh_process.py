"""Tests of the measurement of one fresh process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.records import Limit, Place
from pytest_mlms.measure.evaluate import fresh_process
from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.evaluate.output_sweep import OutputFinding, OutputSweep
from pytest_mlms.measure.evaluate.rows import ByBatch
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


@pytest.mark.parametrize(
    ("unjudged", "ratio", "found"), [(4, 0.0, 0.0), (5, 0.0, None), (5, 2.0, None), (5, 4.0, 4.0)]
)
def test_a_limit_by_the_size_of_the_batch_judges_nothing_where_rounding_decides_most(
    tmp_path: Any, unjudged: int, ratio: float, found: float | None
) -> None:
    """With all eight not judged the difference was 0, and any limit PASSED."""
    names = [f"input {number}" for number in range(unjudged)]
    sweep = OutputSweep({"y": Rule()}, inputs=8, unjudged=names)
    sweep.outputs["y"] = OutputFinding("y", ratio)
    limits = (Limit("batch_agreement", 3.0, Place(tmp_path / "m.yaml", 1)),)
    sizes: Any = SimpleNamespace(compare=lambda predictor: ByBatch(sweep))
    predictor: Any = FakePredictor(lambda done: 0.010)
    asked = plan(limits=limits, batch_sizes=sizes)
    result = fresh_process.measure_process(asked, predictor, [{"x": np.zeros(1)}], early=False)
    assert result.record.batch_agreement == found
    if found is None:
        assert "rounding decides the outputs for 5 of 8 inputs" in result.record.batch_missing


def test_a_peak_in_another_unit_than_what_was_held_before_is_an_error() -> None:
    """It was below 0, which meets any limit."""
    predictor: Any = FakePredictor(lambda done: 0.010)
    predictor.rss_before = 1 << 30
    with pytest.raises(AgentError, match=r"1073741824 before the model .* both are to be bytes"):
        fresh_process.measure_process(plan(), predictor, [{"x": np.zeros(1)}], early=False)
