"""The scenarios' loops, with calls that advance a clock of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mlms_predictors._run import scenarios
from mlms_predictors._run.scenarios import (
    CAPACITY,
    SCENARIOS,
    Samples,
    Stop,
    TurnRequest,
    offline,
    single_stream,
    turn,
)

Call = Callable[[], str]


class Clock:
    """A clock that a call of ``seconds`` advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[str] = []

    def read(self) -> float:
        return self.now

    def call(self, name: str, seconds: float) -> Call:
        def call() -> str:
            self.now += seconds
            self.calls.append(name)
            return f"{name} {len(self.calls)}"

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scenarios._loop, "__defaults__", (clock.read,))
    monkeypatch.setattr(scenarios, "cpu_time", clock.read)
    return clock


def arrays_of(samples: Samples) -> dict[str, list[float]]:
    return {name: list(values) for name, values in samples.arrays()}


def test_a_run_ends_once_the_time_and_the_calls_are_reached(clock: Clock) -> None:
    samples = Samples()
    single_stream([clock.call("a", 0.5)], Stop(seconds=2, least=1, longest=60), samples)
    assert len(clock.calls) == 4
    single_stream([clock.call("a", 0.5)], Stop(seconds=0, least=3, longest=60), samples)
    assert len(clock.calls) == 4 + 3


def test_a_run_ends_after_the_longest_time_and_has_at_least_one_call(clock: Clock) -> None:
    samples = Samples()
    single_stream([clock.call("a", 0.5)], Stop(seconds=0, least=100, longest=2), samples)
    assert len(clock.calls) == 4
    single_stream([clock.call("a", 0.5)], Stop(seconds=0, least=1, longest=0), samples)
    assert len(clock.calls) == 4 + 1


def test_a_run_ends_when_the_samples_are_full(clock: Clock) -> None:
    samples = Samples()
    offline([clock.call("a", 1e-6)], Stop(seconds=60, least=1, longest=60), samples)
    assert len(arrays_of(samples)["start"]) == CAPACITY


def test_calls_are_used_in_turn_and_the_last_outputs_kept(clock: Clock) -> None:
    samples = Samples()
    calls = [clock.call("a", 1), clock.call("b", 2), clock.call("c", 4)]
    single_stream(calls, Stop(seconds=0, least=4, longest=60), samples)
    assert clock.calls == ["a", "b", "c", "a"]
    assert samples.outputs == ["a 4", "b 2", "c 3"]
    arrays = arrays_of(samples)
    assert arrays["start"] == [100, 101, 103, 107]
    assert arrays["end"] == [101, 103, 107, 108]


def test_a_call_that_is_not_used_has_no_output(clock: Clock) -> None:
    samples = Samples()
    calls = [clock.call("a", 1), clock.call("b", 1)]
    single_stream(calls, Stop(seconds=0, least=1, longest=60), samples)
    assert samples.outputs == ["a 1", None]


@pytest.mark.parametrize(
    ("scenario", "seconds", "at"),
    [
        ("single_stream", 0.01, [0, 1, 2, 3, 4]),
        ("single_stream", 6e-5, [0, 2, 4]),
        ("single_stream", 4e-5, [0, 3, 4]),
        ("offline", 0.01, [0, 4]),
    ],
)
def test_counters_are_read_at_both_ends_and_as_the_scenario_says(
    clock: Clock, scenario: str, seconds: float, at: list[int]
) -> None:
    samples = Samples()
    stop = Stop(seconds=0, least=4, longest=60)
    SCENARIOS[scenario]([clock.call("a", seconds)], stop, samples)
    arrays = arrays_of(samples)
    assert arrays["at"] == at
    assert len(arrays["wait"]) == len(at)
    assert arrays["cpu"] == pytest.approx([100 + count * seconds for count in at])


def test_a_turn_begins_with_a_call_and_skips_some(clock: Clock) -> None:
    samples = Samples()
    calls = [clock.call("a", 1), clock.call("b", 1), clock.call("c", 1)]
    turn(calls, TurnRequest(first=2, skip=1, timed=3), samples)
    assert clock.calls == ["c", "c", "a", "b"]
    assert arrays_of(samples)["start"] == [101, 102, 103]
    assert samples.outputs[0] == "c 2", "outputs begin with those of the first call"


def test_samples_are_used_again(clock: Clock) -> None:
    samples = Samples()
    single_stream([clock.call("a", 1)], Stop(0, 5, 60), samples)
    single_stream([clock.call("a", 1)], Stop(0, 2, 60), samples)
    assert len(arrays_of(samples)["start"]) == 2
