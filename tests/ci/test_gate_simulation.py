"""Simulation of the upgrade gate: a small one keeps what docs/methodology.md promises."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.interleave import MeasuredRound, run_interleaved
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.round_estimate import RoundSpan
from pytest_mlms.decide.upgrade.round_record import RoundRecord
from tests.support.fake_agents import FakePair
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from gate_noise import NOISES, TURNS, UNLIKE_NOISES, EqualRound, Noise
from gate_simulation import (
    START,
    Decision,
    Rounds,
    SimulatedRound,
    Simulation,
    SimulationPlan,
    decide,
    process_rows,
)

PLAN = SimulationPlan(decisions=80, library=12)
BY_NAME = {noise.name: noise for noise in (*NOISES, *UNLIKE_NOISES)}


def run_of(fakes: FakePair) -> RoundRecord:
    """Return the record of a real round of these agents."""
    measured: list[MeasuredRound] = []

    @contextlib.contextmanager
    def open_pair(order: Any, cores: Any) -> Iterator[AgentPair]:
        yield fakes.pair()

    def after_round(index: int, found: MeasuredRound, pair: AgentPair) -> bool:
        measured.append(found)
        return True

    plan = InterleavePlan(seconds=0.0, budget=60.0, seed=1)
    run_interleaved(plan, open_pair, lambda predictor: [{"x": np.zeros(1)}], after_round)
    return measured[0].record


def count(decisions: list[Decision], verdict: Verdict) -> int:
    return sum(decision.verdict is verdict for decision in decisions)


@pytest.mark.parametrize("name", ["slow drift", "processes differ by 3 %"])
def test_a_candidate_at_the_edge_is_seldom_judged_either_way(name: str) -> None:
    found = Simulation(BY_NAME[name], PLAN).items(0.03)
    assert count(found, Verdict.REGRESSED) <= 3
    assert count(found, Verdict.PASSED) <= 9


def test_five_percent_are_found_in_ten_seconds_where_processes_are_alike() -> None:
    simulation = Simulation(BY_NAME["independent"], PLAN)
    assert sum(decision.is_soon for decision in simulation.items(0.05)) >= 79


@pytest.mark.parametrize(
    ("name", "passed"), [("bimodal, 5 to 15 % slow", 70), ("one process in 12 at 1.4", 45)]
)
def test_an_identical_candidate_is_not_flagged(name: str, passed: int) -> None:
    found = Simulation(BY_NAME[name], PLAN).items(0.0)
    assert count(found, Verdict.REGRESSED) <= 1
    assert count(found, Verdict.PASSED) >= passed


@pytest.mark.parametrize("name", ["B by a coin x 1.2", "first side + 1.5 %"])
def test_what_one_side_alone_has_is_seldom_passed_or_flagged_at_the_edge(name: str) -> None:
    simulation = Simulation(BY_NAME[name], PLAN)
    found = simulation.gates("latency", 0.03)
    assert count(found, Verdict.REGRESSED) <= 3
    assert count(found, Verdict.PASSED) <= 10
    beyond = simulation.gates("latency", 0.095)
    assert count(beyond, Verdict.PASSED) <= 5


def test_a_kind_of_process_that_six_rounds_may_not_show_takes_more() -> None:
    noise = BY_NAME["B in 0.25 x 1.2"]
    more = replace(PLAN, decisions=40, span=RoundSpan(11, 12))
    beyond = Simulation(noise, more).gates("latency", 0.047)
    assert count(beyond, Verdict.PASSED) <= 6


def test_rounds_are_in_full_where_the_gate_is_a_percentile() -> None:
    simulation = Simulation(BY_NAME["independent"], replace(PLAN, decisions=10))
    ended = simulation.gates("latency", 0.0)
    in_full = simulation.gates("latency_p95", 0.0)
    assert min(one.seconds / one.rounds for one in in_full) >= START + TURNS
    assert max(one.seconds / one.rounds for one in ended) < START + 0.6 * TURNS


def test_turns_end_as_those_of_an_item_whose_gates_are_latency_and_the_quantity() -> None:
    simulation = Simulation(BY_NAME["independent"], replace(PLAN, decisions=10))
    of_cpu = simulation.gates("cpu_time", 0.0)
    assert max(one.seconds / one.rounds for one in of_cpu) < START + 0.6 * TURNS


def test_a_simulated_pair_of_turns_takes_the_time_of_a_real_one() -> None:
    real = run_of(FakePair(0.001, 0.001))
    drawn = EqualRound(BY_NAME["independent"], np.random.default_rng(1))
    look, seconds, of_call = drawn.end(InterleavePlan(TURNS, 60.0, seed=0))
    pairs = look.figures["latency"].calls / real.calls
    assert seconds / pairs == pytest.approx(2 * 0.001 * (real.calls + real.skipped), rel=0.02)
    assert of_call * real.calls == pytest.approx(seconds / pairs)
    assert TURNS <= seconds < TURNS + 2 * seconds / pairs


def rarely_slow(generator: np.random.Generator, count: int) -> Any:
    return np.where(generator.random(count) < 0.01, 1.2, 1.0)


def test_rounds_last_longer_once_the_candidate_had_more_slow_calls() -> None:
    noise = Noise("a steady call, seldom slow", own=rarely_slow, step=1e-9)
    found = Simulation(noise, PLAN).gates("latency", 0.0)
    seconds = [one.seconds / one.rounds - START for one in found]
    assert max(seconds) > 2 * min(seconds)


def test_stalls_of_the_candidate_alone_make_an_item_regress() -> None:
    def rounds() -> Rounds:
        while True:
            stalls = Figure(0.0, 0.1, math.log(12.5 / 0.5), 0.0, 120)
            yield SimulatedRound({"latency": Figure(1.0, 1.0, 0.0, 0.0), "stalls": stalls})

    found = decide(rounds(), ("latency",))
    assert (found.verdict, found.regressed) == (Verdict.REGRESSED, ["stalls"])


def test_there_is_a_row_for_each_quantity_that_a_process_has_once() -> None:
    rows = process_rows(SimulationPlan(decisions=20))
    names = ["start_time", "load_time", "first_inference", "peak_memory", "energy_per_input"]
    assert [row[0] for row in rows] == names
    assert all(row[2] == "0 of 20" for row in rows)
    found = {row[0]: float(row[4].rpartition(" ")[2]) for row in rows}
    assert all(found[name] >= 60 for name in ("start_time", "peak_memory", "energy_per_input"))
