"""The calls under load whose outputs are held."""

from __future__ import annotations

import numpy as np
import pytest
from mlms_predictors._run.served import LoadCalls, ServedCalls

MEGABYTE = 1 << 20


def outputs(value: float, size: int = 4) -> list[np.ndarray]:
    return [np.full(size // 4, value, np.float32)]


def test_calls_are_spread_over_the_load_with_the_last_one() -> None:
    served = ServedCalls()
    for number in range(10_001):
        served.add([number], outputs(number))
    numbers = [samples[0] for samples, _ in served.calls]
    assert 256 < len(numbers) <= 513
    assert numbers[0] == 0
    assert numbers[-1] == 10_000
    assert np.ptp(np.diff(numbers[:-1])) == 0


def test_what_is_held_does_not_grow_with_the_outputs() -> None:
    served = ServedCalls()
    for number in range(100):
        served.add([number], outputs(number, MEGABYTE // 10))
    assert 4 < len(served.calls) <= 11
    assert served.bytes <= MEGABYTE
    for number in range(100):
        served.add([number], outputs(number, MEGABYTE))
    assert served.calls[-1][0] == (99,), "of outputs that are larger there is the last one alone"
    assert served.bytes <= MEGABYTE


def test_a_call_that_gave_something_else_once_is_told_first() -> None:
    served = ServedCalls()
    for number in range(400):
        served.add([number % 20], outputs(number % 20 if number != 123 else -1))
    told = LoadCalls(served.calls).most_telling()
    assert len(told) == 8
    assert [call.samples for call in told[:2]] == [(3,), (3,)]
    assert {float(call.outputs[0][0]) for call in told[:2]} == {3.0, -1.0}


def test_a_call_that_is_wrong_is_told_though_rounding_makes_each_call_another() -> None:
    """It was one of 512 that all differed, of which the first eight were told."""
    random = np.random.default_rng(0)
    for wrong in (np.nan, -1):
        served = ServedCalls()
        for number in range(400):
            noise = 1 + 1e-6 * random.integers(3)
            served.add(
                [number % 20], outputs((1 + number % 20) * noise if number != 323 else wrong)
            )
        told = LoadCalls(served.calls).most_telling()
        assert [call.samples for call in told[:2]] == [(3,), (3,)]
        assert float(told[1].outputs[0][0]) == pytest.approx(wrong, nan_ok=True)


def test_a_call_that_gave_nan_is_told_though_none_had_the_same_samples() -> None:
    calls = [((n, n + 1), outputs(np.nan if n == 300 else n)) for n in range(400)]
    told = LoadCalls(calls).most_telling()
    assert told[0].samples == (300, 301)


def test_larger_batches_are_told_before_single_queries() -> None:
    calls = [((0,), outputs(0)), ((1, 2), outputs(1)), ((1,), outputs(2)), ((2, 0), outputs(3))]
    told = LoadCalls(calls).most_telling()
    assert [call.samples for call in told] == [(1, 2), (2, 0), (0,), (1,)]


def test_outputs_that_a_framework_writes_to_the_same_memory_are_those_of_their_own_calls() -> None:
    buffer = np.zeros(2, np.float32)
    served = ServedCalls()
    for sample in range(3):
        buffer[:] = sample
        served.add((sample,), [buffer])
    told = {samples[0]: float(outputs[0][0]) for samples, outputs in served.calls}
    assert told == {0: 0.0, 1: 1.0, 2: 2.0}


def test_all_calls_that_are_held_are_counted_each_once() -> None:
    served = ServedCalls()
    for number in range(400):
        served.add([number % 20], outputs(-1 if number in (3, 43, 67) else number % 20))
    held = LoadCalls(served.calls)
    assert (held.count, held.others) == (400, 3)
    assert held.held == [20] * 20
    assert [place for place, number in enumerate(held.differing) if number] == [3, 7]
    assert held.differing[3] == 2


def test_even_calls_are_half_of_those_that_differ_and_half_of_the_usual_ones() -> None:
    served = ServedCalls()
    for number in range(400):
        served.add([number % 20], outputs(number % 20 if number % 8 else number))
    held = LoadCalls(served.calls)
    assert held.others == 47, "three of 50 gave what is usual"
    told = held.fair(32)
    usual = [call for call in told if call.usual]
    assert sum(call.picks for call in usual) == 16
    assert len({call.samples for call in usual}) == 16
    others = {call.samples for call in told if not call.usual}
    assert sum(call.picks for call in told) - 16 == 16
    assert others == {(0,), (4,), (8,), (12,), (16,)}
    assert sum(call.picks for call in held.fair(1000)) == 400
    assert LoadCalls([]).fair(32) == LoadCalls([]).most_telling() == []
