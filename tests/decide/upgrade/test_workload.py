"""Upgrades that get worse for a part of the workload, with known truth; no process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.decision import compare_stalls
from pytest_mlms.decide.upgrade.figures import figures_of
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.rounds import Round, Side
from tests.support.paced import Pace, compared_as, paced_upgrade, verdict_on

seeds = pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(20), marks=pytest.mark.slow)], ids=["few", "all"]
)
SHORT, LONG = 16, 512
FEW_LONG = [np.zeros(LONG if n % 20 == 0 else SHORT, np.float32) for n in range(200)]
ALIKE = [np.full(8, n, np.float32) for n in range(60)]


def pace(
    long: float = 1.0, few: float = 1.0, stall: float = 0.0, noise: float = 0.01, base: float = 3e-3
) -> Pace:
    """Return a pace by the length of an input, with noise of 1 %.

    Inputs of ``LONG`` take ``long`` times as long as on the other side, and those of numbers
    divisible by 20 ``few`` times. A share ``stall`` of the calls takes 20 times as long.
    """

    def seconds(array: Any, call: int, random: np.random.Generator) -> float:
        size = array.shape[-1]
        found = base * (10 * long if size == LONG else 1)
        if size == 8 and array.flat[0] % 20 == 0:
            found *= few
        if stall and random.random() < stall:
            found *= 20
        return float(found * np.exp(noise * random.standard_normal()))

    return seconds


def regressed(result: UpgradeResult) -> set[str]:
    return {compared.quantity for compared in result.regressed}


@seeds
def test_three_times_slower_on_the_few_long_inputs_is_found_on_every_seed(seeds: range) -> None:
    for seed in seeds:
        result = paced_upgrade(FEW_LONG, pace(), pace(long=3), seed, pairs=30)
        assert verdict_on(result, "group_latency") is Verdict.REGRESSED, seed
    worst = compared_as(result, "group_latency")
    assert worst is not None
    assert worst.ratio == pytest.approx(3, rel=0.02)
    assert worst.about == "inputs of shape 512, 5 % of all"
    assert [group.name for group in result.input_groups] == ["16", "512"]
    assert result.input_groups[0].verdict is Verdict.PASSED


def test_the_latency_of_an_upgrade_is_that_of_the_mix() -> None:
    result = paced_upgrade(FEW_LONG, pace(), pace(), seed=1, pairs=30)
    latency = compared_as(result, "latency")
    assert latency is not None
    assert latency.a == pytest.approx(0.95 * 3e-3 + 0.05 * 30e-3, rel=0.02)


@seeds
def test_equal_sides_are_not_worse_on_any_group_input_or_call(seeds: range) -> None:
    for seed in seeds:
        noisy = pace(stall=0.01, noise=0.02)
        for elements in (FEW_LONG, ALIKE):
            result = paced_upgrade(elements, noisy, noisy, seed, pairs=30)
            assert not regressed(result), seed


@seeds
def test_a_few_inputs_that_nothing_tells_from_others_are_found_and_named(seeds: range) -> None:
    for seed in seeds:
        result = paced_upgrade(ALIKE, pace(), pace(few=3), seed)
        assert "slow_inputs" in regressed(result), seed
    named = {line.partition(" of ")[0] for line in result.slow_inputs}
    assert named
    assert named <= {"row 0", "row 20", "row 40"}


@seeds
def test_stalls_of_one_call_of_300_are_found(seeds: range) -> None:
    for seed in seeds:
        result = paced_upgrade(
            ALIKE, pace(base=2e-4), pace(stall=1 / 300, base=2e-4), seed, pairs=150
        )
        assert "stalls" in regressed(result), seed
        assert "latency" not in regressed(result)


@seeds
def test_rare_slow_calls_that_are_more_on_one_side_are_found(seeds: range) -> None:
    def rare(share: float) -> Pace:
        def seconds(array: Any, call: int, random: np.random.Generator) -> float:
            noise = np.exp(0.01 * random.standard_normal())
            return float(4e-4 * noise * (4 if random.random() < share else 1))

        return seconds

    for seed in seeds:
        result = paced_upgrade(ALIKE, rare(0.01), rare(0.04), seed, pairs=150)
        assert {"stalls", "latency_p99"} & regressed(result), seed


@seeds
def test_the_start_of_turns_is_not_timed_and_a_slow_one_is_named(seeds: range) -> None:
    cold = {"a": [2.5, 2.6], "b": [1.2, 1.05]}
    for seed in seeds:
        slower = pace(base=260e-6)
        result = paced_upgrade(ALIKE, pace(base=220e-6), slower, seed, starts=cold)
        signs = {compared.quantity: compared.verdict for compared in result.comparisons}
        assert Verdict.IMPROVED not in signs.values()
        assert {"latency", "latency_p90", "throughput"} <= regressed(result)
        assert all(record.skipped >= 2 for record in result.rounds)
        assert result.rounds[0].starts["a"] == pytest.approx(2.5, rel=0.1)


def test_a_candidate_that_works_while_nothing_is_called_regresses() -> None:
    result = paced_upgrade(ALIKE, pace(), pace(), seed=1, idle=(0.0, 0.2))
    assert regressed(result) == {"idle_cpu"}


@pytest.mark.parametrize("kind", ["bursts", "processes"])
def test_stalls_that_are_not_independent_are_no_regression(kind: str) -> None:
    random = np.random.default_rng(7)

    def side() -> Any:
        seconds = 1e-5 * (1 + 0.05 * random.random((100, 20)))
        share = 0.005 * random.gamma(1)
        if kind == "bursts":
            seconds[random.random(100) < 0.001] *= 5
        else:
            seconds[random.random(seconds.shape) < share] *= 5
        return Side(seconds, None, seconds.mean(axis=1), None, 0.1, 0.01, None)

    for _ in range(40):
        figures = [figures_of(Round(side(), side()), "wall", 1) for _ in range(9)]
        for count in range(1, 10):
            compared = compare_stalls(figures[:count])
            assert compared is None or compared.verdict is not Verdict.REGRESSED


@seeds
def test_noise_beyond_a_narrow_tolerance_makes_no_input_slow(seeds: range) -> None:
    for seed in seeds:
        noisy = pace(noise=0.05)
        result = paced_upgrade(
            ALIKE[:16], noisy, noisy, seed, tolerances={"slow_inputs": 0.05}, pairs=100
        )
        assert verdict_on(result, "slow_inputs") is not Verdict.REGRESSED, seed


def test_stalls_leave_no_other_row_without_its_rounds() -> None:
    result = paced_upgrade(ALIKE, pace(base=2e-4), pace(stall=0.01, base=2e-4), 1, pairs=150)
    assert "stalls" in regressed(result)
    assert not [c.quantity for c in result.comparisons if c.lacking.startswith("needs")]


def test_late_calls_go_as_far_as_the_calls_of_turns_take_not_the_first_ones_of_each() -> None:
    def later(array: Any, call: int, random: np.random.Generator) -> float:
        return (2e-4 + (5e-4 if call > 1500 else 0)) * float(np.exp(0.01 * random.normal()))

    cold = {"a": [2.5], "b": [2.5]}
    result = paced_upgrade(ALIKE, pace(base=2e-4), later, seed=1, pairs=30, starts=cold)
    assert "late_latency" in regressed(result)


@pytest.mark.parametrize("sizes", [(8, 16), (8, 8)])
def test_late_calls_of_inputs_of_which_some_take_longer_keep_to_their_time(
    sizes: tuple[int, int],
) -> None:
    """Most calls were short, and 2,000 more of both kinds took 13 s of each side in each round."""
    made = []

    def mixed(array: Any, call: int, random: np.random.Generator) -> float:
        made.append(call)
        return (2e-2 if array.max() else 1e-4) * float(np.exp(0.01 * random.normal()))

    elements = [np.full(sizes[n % 3 == 0], n % 3 == 0, np.float32) for n in range(60)]
    tolerances = {"late_latency": 0.1}
    paced_upgrade(elements, mixed, mixed, seed=1, pairs=12, tolerances=tolerances)
    assert max(made) < 2000
