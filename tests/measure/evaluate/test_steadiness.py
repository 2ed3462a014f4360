"""Plateaus of latency, and growth of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.core.statistics import Array
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.steadiness import (
    SETTLED,
    Settling,
    growth_between,
    settling_of,
    slope_of,
    watch_growth,
)
from tests.support.load_agents import open_agent
from tests.support.project import launch

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


MIB = 1 << 20
CALLS = np.arange(0, 2400, 100)
IMAGES = {"image": np.zeros((1, 1, 8, 8), np.float32)}


def test_a_leak_is_its_bytes_a_call_although_memory_comes_in_pages() -> None:
    pages = -(-(1000 * CALLS) // 4096) * 4096
    assert slope_of(CALLS, 50 * MIB + pages) == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("at", range(1, 24))
def test_a_step_is_no_leak_wherever_it_is(at: int) -> None:
    assert slope_of(CALLS, np.where(np.arange(24) < at, 0, MIB)) == 0


def test_memory_that_warms_up_or_shrinks_does_not_leak() -> None:
    assert slope_of(CALLS, np.minimum(CALLS, 1000) * 4096) == 0
    assert slope_of(CALLS, -CALLS * 4096) == 0


def test_what_a_process_takes_once_is_no_growth() -> None:
    assert growth_between(MIB, MIB + 24576, 10) == 0
    assert growth_between(MIB, MIB + 1_032_768, 1000) == 1000
    assert growth_between(MIB, 0, 1000) == 0


def growth_of(folder: Path, **env: str) -> float:
    """Return the growth of the predictor ``leaky`` in an agent of its own."""
    variables = {f"LEAKY_{name.upper()}": value for name, value in env.items()}
    start = replace(launch(), env={**launch().env, **variables})
    with open_agent(folder, "leaky", start) as predictor:
        predictor.bind([IMAGES])
        return watch_growth(predictor, call_seconds=1e-5, seconds=5.0)


@pytest.mark.parametrize("by", ["python", "c"])
@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_leak_of_a_kilobyte_and_more_is_found(tmp_path: Path, by: str, size: int) -> None:
    assert growth_of(tmp_path, by=by, bytes=str(size)) == pytest.approx(size, rel=0.25)


def test_a_leak_into_memory_that_was_freed_before_is_found(tmp_path: Path) -> None:
    assert growth_of(tmp_path, by="reused", bytes="1000") == pytest.approx(1000, rel=0.25)


@pytest.mark.parametrize(
    ("by", "size"), [("python", 0), ("cycles", 1000), ("steps", 1), ("warm", 4000)]
)
def test_a_clean_process_does_not_grow(tmp_path: Path, by: str, size: int) -> None:
    assert growth_of(tmp_path, by=by, bytes=str(size)) < 100


class Slow:
    """A predictor that counts its calls, and whose memory does not grow."""

    calls = 0

    def turn(self, count: int) -> None:
        self.calls += count

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(memory=MIB, device_memory=None, threads=1, descriptors=3)


@pytest.mark.parametrize(("call_seconds", "calls"), [(2.0, 6), (0.5, 10), (0.05, 120)])
def test_slow_calls_are_watched_for_few_of_them(call_seconds: float, calls: int) -> None:
    slow = Slow()
    assert watch_growth(cast(Predictor, slow), call_seconds, seconds=5.0) == 0
    assert slow.calls == calls
