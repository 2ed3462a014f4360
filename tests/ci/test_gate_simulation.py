"""Simulation of the upgrade gate: a small one keeps what docs/methodology.md promises."""

from __future__ import annotations

import sys

import pytest

from pytest_mlms.records import Verdict
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from gate_noise import NOISES
from gate_simulation import Decision, Simulation, SimulationPlan, process_rows

PLAN = SimulationPlan(decisions=80, library=12)
BY_NAME = {noise.name: noise for noise in NOISES}


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


@pytest.mark.parametrize("name", ["bimodal, 5 to 15 % slow", "one process in 12 at 1.4"])
def test_an_identical_candidate_is_not_flagged(name: str) -> None:
    found = Simulation.of(BY_NAME[name], PLAN).items(0.0)
    assert count(found, Verdict.REGRESSED) <= 1
    assert count(found, Verdict.PASSED) >= 70


def test_there_is_a_row_for_each_quantity_that_a_process_has_once() -> None:
    rows = process_rows(SimulationPlan(decisions=20))
    names = ["start_time", "load_time", "first_inference", "peak_memory", "energy_per_input"]
    assert [row[0] for row in rows] == names
    assert all(row[2] == "0 of 20" for row in rows)
