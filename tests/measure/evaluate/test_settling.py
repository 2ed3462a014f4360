"""Tests of the plateaus of a process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.statistics import Array
from pytest_mlms.measure.evaluate.settling import SETTLED, Settling, settling_of

seeds = st.integers(0, 10**6)


def noisy(levels: Array, seed: int = 0, scatter: float = 0.05) -> Array:
    generator = np.random.default_rng(seed)
    return np.asarray(levels * np.exp(scatter * generator.normal(size=len(levels))))


@given(seeds, st.sampled_from([16, 64, 1000, 10_000]))
def test_calls_of_one_level_are_settled(seed: int, count: int) -> None:
    settling = settling_of([noisy(np.ones(50), seed), noisy(np.ones(count), seed + 1, 0.02)])
    assert settling.is_settled


def test_equal_calls_are_settled() -> None:
    assert settling_of([np.ones(8), np.ones(100)]) == SETTLED


@given(seeds, st.floats(0.2, 0.8), st.floats(1.1, 10), st.booleans())
def test_a_step_inside_of_the_run_is_found(
    seed: int, place: float, factor: float, rises: bool
) -> None:
    levels = np.where(np.arange(1000) < 1000 * place, 1.0, factor if rises else 1 / factor)
    settling = settling_of([np.ones(50), noisy(levels, seed)])
    assert not settling.is_settled
    assert settling.change == pytest.approx(factor if rises else 1 / factor, rel=0.05)


@given(seeds)
def test_a_step_between_the_warm_up_and_the_run_is_none(seed: int) -> None:
    assert settling_of([noisy(np.full(200, 5.0), seed), noisy(np.ones(1000), seed)]).is_settled


def test_a_plateau_of_few_calls_is_found_by_those_of_the_warm_up() -> None:
    run = np.array([5.0] * 3 + [1.0] * 13)
    assert settling_of([np.full(10, 5.0), run]).change == pytest.approx(0.2)


def test_a_slow_decay_falls() -> None:
    levels = 1 + 9 * np.exp(-np.arange(1000) / 1000)
    settling = settling_of([levels[:100], noisy(levels[100:])])
    assert settling.change < 0.8
    assert settling.rise == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_single_slow_calls_are_no_plateau(share: float) -> None:
    slow = np.random.default_rng(1).random(2000) < share
    assert settling_of([np.ones(50), noisy(np.where(slow, 20.0, 1.0))]).is_settled


def test_runs_that_come_back_are_within_reach_of_both_sides() -> None:
    levels = np.repeat([1.0, 1.2, 1.0], [400, 300, 300])
    settling = settling_of([np.ones(50), noisy(levels, scatter=0.01)])
    assert settling.fall == pytest.approx(1 / 1.2, rel=0.02)
    assert settling.reach.lowest < 1 / 1.2


def test_calls_that_only_waited_for_a_core_say_nothing_of_a_change() -> None:
    waited = np.full(500, np.nan)
    run = noisy(np.ones(500))
    assert settling_of([np.ones(8), np.concatenate([run, waited])]).is_settled
    assert settling_of([waited, np.concatenate([waited, run])]).is_settled
    assert settling_of([np.ones(8), waited]) == SETTLED


def test_a_change_that_goes_on_for_several_runs_reaches_further() -> None:
    assert Settling(0.9, 1.0).reach.lowest == pytest.approx(0.9**4)
    assert Settling(0.9, 1.0, runs=3).reach.lowest == pytest.approx(0.9**12)
    assert Settling(0.9, 1.0).reach.room == pytest.approx(0.9**-4)
    assert SETTLED.reach.room == 1
