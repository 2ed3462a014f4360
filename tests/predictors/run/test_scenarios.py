"""The scenarios' loops, with calls that advance a clock of their own."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from mlms_predictors._run import scenarios
from mlms_predictors._run.repeats import MOST_BYTES
from mlms_predictors._run.scenarios import (
    CAPACITY,
    SCENARIOS,
    Samples,
    Stop,
    TurnRequest,
    turn,
)

START = 100.0
MINUTE = 60.0


class Clock:
    """A clock that calls advance, and the names of the calls that were made."""

    def __init__(self) -> None:
        self.now = START
        self.made: list[str] = []

    def read(self) -> float:
        return self.now

    def call(self, name: str, seconds: float) -> Callable[[], str]:
        """Return a call that takes so long; its output has its name and its number."""

        def call() -> str:
            self.now += seconds
            self.made.append(name)
            return f"{name} {len(self.made)}"

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scenarios._loop, "__defaults__", (False, clock.read))
    monkeypatch.setattr(scenarios, "cpu_time", clock.read)
    return clock


@pytest.fixture
def samples() -> Samples:
    return Samples()


def array(samples: Samples, name: str) -> list[float]:
    arrays = dict(samples.arrays())
    return list(arrays[name])


@pytest.mark.parametrize(
    ("stop", "count"),
    [
        (Stop(seconds=2, least=1, longest=MINUTE), 4),
        (Stop(seconds=0, least=3, longest=MINUTE), 3),
        (Stop(seconds=2, least=10, longest=MINUTE), 10),
        (Stop(seconds=0, least=100, longest=2), 4),
        (Stop(seconds=0, least=1, longest=0), 1),
    ],
)
def test_a_run_ends_by_its_stop_rule(
    clock: Clock, samples: Samples, stop: Stop, count: int
) -> None:
    call = clock.call("a", 0.5)
    SCENARIOS["single_stream"]([call], stop, samples)
    assert len(clock.made) == count
    assert len(array(samples, "start")) == count


def test_a_run_ends_when_the_samples_are_full(clock: Clock, samples: Samples) -> None:
    call = clock.call("a", 1e-6)
    SCENARIOS["offline"]([call], Stop(MINUTE, 1, MINUTE), samples)
    assert len(array(samples, "start")) == CAPACITY


def test_calls_are_used_in_turn_and_timed(clock: Clock, samples: Samples) -> None:
    calls = [clock.call("a", 1), clock.call("b", 2), clock.call("c", 4)]
    SCENARIOS["single_stream"](calls, Stop(0, 4, MINUTE), samples)
    assert clock.made == ["a", "b", "c", "a"]
    assert array(samples, "start") == [100, 101, 103, 107]
    assert array(samples, "end") == [101, 103, 107, 108]


def test_the_last_outputs_of_each_call_are_kept(clock: Clock, samples: Samples) -> None:
    calls = [clock.call("a", 1), clock.call("b", 1)]
    SCENARIOS["single_stream"](calls, Stop(0, 3, MINUTE), samples)
    assert samples.outputs == ["a 3", "b 2"]
    SCENARIOS["single_stream"](calls, Stop(0, 1, MINUTE), samples)
    assert samples.outputs == ["a 4", None]


def test_samples_are_used_again(clock: Clock, samples: Samples) -> None:
    call = clock.call("a", 1)
    for count in (5, 2):
        SCENARIOS["single_stream"]([call], Stop(0, count, MINUTE), samples)
        assert len(array(samples, "start")) == count


@pytest.mark.parametrize(
    ("scenario", "seconds", "at"),
    [
        ("single_stream", 0.01, [0, 1, 2, 3, 4]),
        ("single_stream", 3e-4, [0, 2, 4]),
        ("single_stream", 2e-4, [0, 3, 4]),
        ("offline", 0.01, [0, 4]),
    ],
)
def test_counters_are_read_at_both_ends_and_as_the_scenario_says(
    clock: Clock, samples: Samples, scenario: str, seconds: float, at: list[int]
) -> None:
    call = clock.call("a", seconds)
    SCENARIOS[scenario]([call], Stop(0, 4, MINUTE), samples)
    expected = [START + count * seconds for count in at]
    assert array(samples, "at") == at
    assert array(samples, "cpu") == pytest.approx(expected)
    assert len(array(samples, "wait")) == len(at)


def test_a_turn_begins_with_a_call_and_skips_some(clock: Clock, samples: Samples) -> None:
    calls = [clock.call("a", 1), clock.call("b", 1), clock.call("c", 1)]
    turn(calls, TurnRequest(first=2, skip=1, timed=3, cycle=3), samples)
    assert clock.made == ["c", "c", "a", "b"]
    assert array(samples, "start") == [101, 102, 103]
    assert samples.of_turn(3)[0] == "c 2", "outputs begin with those of the first call"


def test_a_call_behind_the_cycle_is_made_by_itself(clock: Clock, samples: Samples) -> None:
    calls = [clock.call("a", 1), clock.call("b", 1), clock.call("c", 1)]
    turn(calls, TurnRequest(first=2, skip=1, timed=2, cycle=2), samples)
    turn(calls, TurnRequest(first=1, skip=0, timed=2, cycle=2), samples)
    assert clock.made == ["c", "c", "c", "b", "a"]


def test_a_turn_tells_the_last_outputs_of_the_calls_that_it_made(
    clock: Clock, samples: Samples
) -> None:
    calls = [clock.call("a", 1), clock.call("b", 1), clock.call("c", 1)]
    turn(calls, TurnRequest(first=0, skip=0, timed=5, cycle=3), samples)
    assert samples.of_turn(3) == ["a 4", "b 5", "c 3"]
    turn(calls, TurnRequest(first=1, skip=0, timed=2, cycle=3), samples)
    assert samples.of_turn(3) == ["b 6", "c 7", None]


def test_a_turn_holds_as_many_outputs_as_are_compared(samples: Samples) -> None:
    large = np.zeros(MOST_BYTES // 2, np.uint8)
    calls = [lambda: [large.copy()]] * 5
    turn(calls, TurnRequest(first=0, skip=0, timed=1, cycle=5), samples)
    samples.of_turn(5)
    turn(calls, TurnRequest(first=0, skip=0, timed=5, cycle=5), samples)
    told = samples.of_turn(5)
    assert sum(each is not None for each in told) == 2


@pytest.mark.parametrize(
    ("cycle", "timed", "size"),
    [
        pytest.param(200, 200, 8, id="more calls than are held"),
        pytest.param(100, 200, 8, id="turns that go round the cycle"),
        pytest.param(8, 8, MOST_BYTES + 1, id="outputs of which one is held"),
        pytest.param(16, 4, MOST_BYTES // 2, id="a few calls of a cycle, of which two are held"),
    ],
)
def test_turns_that_all_begin_with_the_same_calls_tell_the_outputs_of_each(
    samples: Samples, cycle: int, timed: int, size: int
) -> None:
    calls = [lambda number=number: [np.full(1, number), Sized(size)] for number in range(cycle)]
    told = set()
    for number in range(60):
        request = TurnRequest(first=number * timed % cycle, skip=1, timed=timed, cycle=cycle)
        turn(calls, request, samples)
        for place, output in enumerate(samples.of_turn(cycle)):
            if output is not None:
                assert output[0][0] == (request.first + place) % cycle
                told.add((request.first + place) % cycle)
    assert told == set(range(cycle))


class Sized:
    """An output of so many bytes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_what_is_held_is_bounded_by_the_largest_outputs_of_a_cycle(samples: Samples) -> None:
    sizes = [8, *[MOST_BYTES // 2] * 7]
    calls = [lambda size=size: [Sized(size)] for size in sizes]
    for timed in (1, 8, 8, 8):
        turn(calls, TurnRequest(first=0, skip=0, timed=timed, cycle=8), samples)
        samples.of_turn(8)
    assert sum(output is not None for output in samples.outputs) <= 3


def test_a_model_with_small_outputs_after_one_with_large_outputs_has_all_told(
    samples: Samples,
) -> None:
    for size in (MOST_BYTES, 8):
        samples.clear()
        calls = [lambda size=size: [Sized(size)]] * 8
        for timed in (1, 8):
            turn(calls, TurnRequest(first=0, skip=0, timed=timed, cycle=8), samples)
            told = samples.of_turn(8)
    assert None not in told


_TURNS = """
import resource, numpy
from mlms_predictors._run.scenarios import Samples, TurnRequest, turn
samples = Samples()
calls = [lambda: [numpy.ones(1 << 16)]] * 8
for _ in range(12):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    turn(calls, TurnRequest(first=0, skip=4, timed=8, cycle=8), samples)
    samples.of_turn(8)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES = (8 << 16) // resource.getpagesize()


def test_a_turn_takes_no_new_pages_for_its_outputs() -> None:
    """What earlier turns held is not freed at once, or the timed calls would wait for pages."""
    done = subprocess.run(
        [sys.executable, "-c", _TURNS], capture_output=True, text=True, check=True
    )
    faults = [int(line) for line in done.stdout.split()]
    assert faults[0] >= 8 * _PAGES, "the first turn has all of them"
    assert max(faults[6:]) < _PAGES


def test_a_run_holds_the_outputs_of_its_first_and_of_its_last_call_only(
    clock: Clock, samples: Samples
) -> None:
    calls = [clock.call(name, 1) for name in "abcdefgh"]
    SCENARIOS["single_stream"](calls, Stop(0, 11, MINUTE), samples)
    assert samples.outputs == ["a 9", "c 11"]
