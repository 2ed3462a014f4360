"""Late calls of the rounds of an upgrade."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.figures import count_stalls
from pytest_mlms.decide.upgrade.late_calls import LateCalls
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from pytest_mlms.measure.agent.predictor import Turn


class Pair:
    """A pair of agents whose device says how long the calls of a side take."""

    def __init__(self, b: float) -> None:
        self.order = [0]
        self.groups = [0]
        self.stalls = dict.fromkeys(SIDES, 0)
        self.cold = dict.fromkeys(SIDES, 1.0)
        self.clocks = {side: SimpleNamespace(device=True) for side in SIDES}
        self.calls = 0
        self._seconds = {"a": 1e-4, "b": b}

    def turn(self, side: SideName, plan: TurnPlan) -> Turn:
        made = plan.skip + plan.count
        self.calls += made
        times = np.full(made, self._seconds[side])
        times[0] *= self.cold[side]
        times[10 : 10 + 20 * self.stalls[side] : 20] *= 50
        return Turn({"device": times[plan.skip :]}, {}, None)


@pytest.mark.parametrize(
    ("is_gate", "slower", "slowest", "rounds"),
    [
        (False, 1.2, 1e-4, [True, True, True]),
        (False, 1.02, 1e-4, [False, False, False]),
        (True, 1.02, 1e-4, [True, True, True]),
        (True, 1.2, 1e-2, [False, False, False]),
    ],
)
def test_rounds_have_late_calls_where_the_first_shows_them_or_a_gate_asks(
    is_gate: bool, slower: float, slowest: float, rounds: list[bool]
) -> None:
    late = LateCalls(is_gate)
    pair = Pair(1e-4 * slower)
    found = []
    calls = []
    for _ in rounds:
        told = late.run(cast(AgentPair, pair), TurnPlan(3, 1), slowest, 0.0, lambda: SIDES)
        found.append("b" in told.seconds)
        calls.append(pair.calls)
    assert found == rounds
    assert (calls[-1] > calls[0]) == rounds[-1], "others make no calls after the first round"


def test_a_round_of_slow_calls_leaves_it_to_the_next_to_show_late_ones() -> None:
    late = LateCalls()
    pair = cast(AgentPair, Pair(2e-4))
    of_busy_round = late.run(pair, TurnPlan(), 0.1, 0.0, lambda: SIDES)
    assert not of_busy_round.seconds
    assert late.run(pair, TurnPlan(), 1e-4, 0.0, lambda: SIDES).seconds["b"] == 2e-4


def test_calls_of_a_fifth_of_a_millisecond_go_as_far_as_shorter_ones() -> None:
    made = []
    for slowest in (1e-5, 2e-4):
        pair = Pair(slowest)
        LateCalls().run(cast(AgentPair, pair), TurnPlan(3, 1), slowest, 0.0, lambda: SIDES)
        made.append(pair.calls)
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("stalls", "rounds"),
    [
        ([(0, 6)], [True, True, True]),
        ([(6, 6)], [True, False, False]),
        ([(0, 3), (0, 3)], [True, True, True]),
        ([(0, 3), (3, 0)], [True, True, False]),
    ],
)
def test_rounds_count_stalls_while_b_seems_to_have_more(
    stalls: list[tuple[int, int]], rounds: list[bool]
) -> None:
    late = LateCalls()
    pair = Pair(1e-4)
    found = []
    for index in range(len(rounds)):
        a, b = stalls[min(index, len(stalls) - 1)]
        pair.stalls = {"a": a, "b": b}
        told = late.run(cast(AgentPair, pair), TurnPlan(3, 1), 1e-4, 0.0, lambda: SIDES)
        found.append("b" in told.all_times)
        assert not told.seconds, "B is as fast late as in turns, whatever stalls"
    assert found == rounds


def test_the_first_call_of_a_turn_which_finds_cold_caches_is_no_stall() -> None:
    pair = Pair(1e-4)
    pair.cold = {"a": 2.5, "b": 3.5}
    late = LateCalls(is_gate=True)
    told = late.run(cast(AgentPair, pair), TurnPlan(20, 1), 1e-4, 0.0, lambda: SIDES)
    assert [count_stalls(told.all_times[side]) for side in SIDES] == [0, 0]
