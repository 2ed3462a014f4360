"""Observers of pipeline steps."""

from __future__ import annotations

import time

import pytest

from pytest_mlms.measure.pipeline.observers import observe, step

Step = tuple[str, int, int]


class Recorder:
    """An observer that keeps the steps."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, name: str, start: int, end: int) -> None:
        self.steps.append((name, start, end))


def test_a_step_is_reported_at_its_end_with_its_times() -> None:
    recorder = Recorder()
    before = time.perf_counter_ns()
    with observe(recorder), step("resize"):
        assert recorder.steps == []
    after = time.perf_counter_ns()
    ((name, start, end),) = recorder.steps
    assert name == "resize"
    assert before <= start <= end <= after


def test_a_step_that_fails_is_reported_too() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="broken"), observe(recorder), step("decode"):
        raise ValueError("broken")
    assert [name for name, _, _ in recorder.steps] == ["decode"]


def test_nested_steps_are_reported_from_the_inside() -> None:
    recorder = Recorder()
    with observe(recorder), step("outer"), step("inner"):
        pass
    assert [name for name, _, _ in recorder.steps] == ["inner", "outer"]


def test_every_observer_is_called() -> None:
    first = Recorder()
    second = Recorder()
    with observe(first), observe(second), step("crop"):
        pass
    assert first.steps == second.steps
    assert len(first.steps) == 1


def test_steps_outside_of_the_block_are_not_reported() -> None:
    recorder = Recorder()
    with observe(recorder):
        pass
    with step("crop"):
        pass
    assert recorder.steps == []
