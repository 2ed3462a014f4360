"""The share of inputs that calls under load are wrong for, with calls as an agent holds them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mlms_predictors._run.served import LoadCalls

from pytest_mlms.core.statistics import binomial_bounds
from pytest_mlms.decide.upgrade.served_share import FAIR_CALLS, ServedShare, bounds_of_shares
from pytest_mlms.measure.agent.predictor import ServedCall, ServedCalls

BATCHES = 32
ROUNDS = 8
RUNS = 12

Fault = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Gives what is added to the output of each sample of a call."""


def decided(
    fault: Fault, calls: int, joined: int, seed: int, rounds: int = ROUNDS
) -> ServedShare | None:
    """Return what calls of some rounds came to when more than 1 % were wrong, None if never."""
    random = np.random.default_rng(seed)
    found = ServedShare()
    for number in range(1, rounds + 1):
        held = []
        for _ in range(calls):
            samples = tuple(random.integers(BATCHES, size=joined).tolist())
            held.append((samples, [np.array(samples) + fault(random, samples)]))
        of_load = LoadCalls(held)
        told = [
            ServedCall(list(call.samples), {"y": call.outputs[0]}, call.usual, call.picks)
            for call in of_load.fair(FAIR_CALLS)
        ]
        wrong = [(np.abs(call.outputs["y"] - call.samples) > 1e-6).astype(float) for call in told]
        numbers = of_load.count, of_load.others, of_load.held, of_load.differing
        inputs = [(number, sample) for sample in range(BATCHES)]
        found.add(ServedCalls(told, *numbers), inputs, wrong)
        if found.bounds(0.01, 0.05).low > 0.01:
            return found
    return None


def race(share: float) -> Fault:
    return lambda random, samples: np.full(len(samples), random.random() < share) * random.random()


def of_inputs(*wrong: int) -> Fault:
    return lambda random, samples: np.isin(samples, wrong).astype(float)


def with_rounding(fault: Fault) -> Fault:
    return lambda random, samples: fault(random, samples) + 1e-9 * random.random(len(samples))


SIZES = [(256, 1), (256, 8), (20, 8)]
"""Calls of a round, and the samples of each."""


@pytest.mark.parametrize(("calls", "joined"), SIZES)
@pytest.mark.parametrize("fault", [race(0.003), with_rounding(race(0.003))])
def test_a_race_within_the_share_that_may_differ_is_not_found_to_be_beyond_it(
    fault: Fault, calls: int, joined: int
) -> None:
    assert not any(decided(fault, calls, joined, seed) for seed in range(RUNS))


@pytest.mark.parametrize("fault", [race(0.08), with_rounding(race(0.2)), race(0.5), race(1.0)])
@pytest.mark.parametrize(("calls", "joined"), SIZES)
def test_a_race_beyond_the_share_is_found(fault: Fault, calls: int, joined: int) -> None:
    assert sum(decided(fault, calls, joined, seed) is not None for seed in range(RUNS)) > RUNS / 2


def test_one_input_that_is_always_wrong_is_one_of_all_inputs_and_not_one_of_many_calls() -> None:
    """It is 1 of 32 inputs, which 1 % of all may well have among them, in 8 of 256 calls."""
    assert decided(of_inputs(7), 256, 1, 0, rounds=1) is None
    assert decided(of_inputs(7, 20), 256, 1, 0), "and 16 of 256 inputs are no chance"


def test_all_that_is_held_is_told_exactly_where_all_of_it_is_compared() -> None:
    found = decided(race(0.5), 20, 1, 0)
    assert found is not None
    wrong = int(found.told.split()[1])
    assert found.told == f"in {wrong} of 20 calls"
    assert 5 <= wrong <= 15


def test_shares_that_are_even_count_as_many_trials_and_all_or_none_as_one_each() -> None:
    one_of_16 = bounds_of_shares([1.0] + 15 * [0.0], 0.01, 0.05)
    assert one_of_16.low == pytest.approx(1 - 0.99 ** (1 / 16))
    even = bounds_of_shares(16 * [1 / 16], 0.01, 0.05)
    assert even.low == pytest.approx(binomial_bounds(16, 256, 0.01, 0.05).low)
    assert bounds_of_shares([], 0.01, 0.05) == (0.0, 1.0)
    assert bounds_of_shares([0.0, 0.0], 0.01, 0.05).low == 0
