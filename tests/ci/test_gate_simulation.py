"""Simulation of the upgrade gate: a small one keeps what docs/methodology.md promises."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from pytest_mlms.records import Verdict
from pytest_mlms.upgrade.round_estimate import RoundSpan
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from gate_noise import NOISES, UNLIKE_NOISES
from gate_simulation import START, TURNS, Decision, Simulation, SimulationPlan, process_rows

PLAN = SimulationPlan(decisions=80, library=12)
BY_NAME = {noise.name: noise for noise in (*NOISES, *UNLIKE_NOISES)}


def count(decisions: list[Decision], verdict: Verdict) -> int:
    return sum(decision.verdict is verdict for decision in decisions)


@pytest.mark.parametrize("name", ["slow drift", "processes differ by 3 %"])
def test_a_candidate_at_the_edge_is_seldom_judged_either_way(name: str) -> None:
    found = Simulation.of(BY_NAME[name], PLAN).items(0.03)
    assert count(found, Verdict.REGRESSED) <= 3
    assert count(found, Verdict.PASSED) <= 9


def test_five_percent_are_found_in_ten_seconds_where_processes_are_alike() -> None:
    simulation = Simulation.of(BY_NAME["independent"], PLAN)
    assert sum(decision.is_soon for decision in simulation.items(0.05)) >= 79


@pytest.mark.parametrize(
    ("name", "passed"), [("bimodal, 5 to 15 % slow", 70), ("one process in 12 at 1.4", 45)]
)
def test_an_identical_candidate_is_not_flagged(name: str, passed: int) -> None:
    found = Simulation.of(BY_NAME[name], PLAN).items(0.0)
    assert count(found, Verdict.REGRESSED) <= 1
    assert count(found, Verdict.PASSED) >= passed


@pytest.mark.parametrize("name", ["B by a coin x 1.2", "first side + 1.5 %"])
def test_what_one_side_alone_has_is_seldom_passed_or_flagged_at_the_edge(name: str) -> None:
    simulation = Simulation.of(BY_NAME[name], PLAN)
    found = simulation.gates("latency", 0.03)
    assert count(found, Verdict.REGRESSED) <= 3
    assert count(found, Verdict.PASSED) <= 10
    beyond = simulation.gates("latency", 0.095)
    assert count(beyond, Verdict.PASSED) <= 5


def test_a_kind_of_process_that_six_rounds_may_not_show_takes_more() -> None:
    noise = BY_NAME["B in 0.25 x 1.2"]
    more = replace(PLAN, decisions=40, span=RoundSpan(11, 12))
    beyond = Simulation.of(noise, more).gates("latency", 0.047)
    assert count(beyond, Verdict.PASSED) <= 6


def test_rounds_are_in_full_where_the_gate_is_a_percentile() -> None:
    simulation = Simulation.of(BY_NAME["independent"], replace(PLAN, decisions=10))
    ended = simulation.gates("latency", 0.0)
    in_full = simulation.gates("latency_p95", 0.0)
    assert min(one.seconds / one.rounds for one in in_full) >= START + TURNS
    assert max(one.seconds / one.rounds for one in ended) < START + TURNS / 2


def test_there_is_a_row_for_each_quantity_that_a_process_has_once() -> None:
    rows = process_rows(SimulationPlan(decisions=20))
    names = ["start_time", "load_time", "first_inference", "peak_memory", "energy_per_input"]
    assert [row[0] for row in rows] == names
    assert all(row[2] == "0 of 20" for row in rows)
    found = {row[0]: float(row[4].rpartition(" ")[2]) for row in rows}
    assert all(found[name] >= 60 for name in ("start_time", "peak_memory", "energy_per_input"))
