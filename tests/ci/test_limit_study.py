"""Study of the limits of performance items."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from limit_noise import NOISES, Noise
from limit_study import Cell, Setting, parse_options, study_cell, true_value

SETTING = Setting(decisions=15, processes=100)
BY_NAME = {noise.name: noise for noise in NOISES}


def cell(noise: Noise, ratio: float, early: int = 3) -> Cell:
    truth = true_value(noise, SETTING, np.random.default_rng(1))
    return study_cell(noise, ratio, truth, early, SETTING)


@pytest.mark.parametrize(
    ("name", "ratio"), [("drift", 1.0), ("settling", 0.9), ("two states, ±20 %", 1.0)]
)
def test_what_a_short_time_can_not_tell_is_not_decided_early(name: str, ratio: float) -> None:
    assert cell(BY_NAME[name], ratio).ended_early == 0


@pytest.mark.parametrize("name", ["heavy tails", "processes differ by 2 %"])
def test_a_true_value_at_the_limit_is_decided_as_seldom_as_in_full(name: str) -> None:
    early = cell(BY_NAME[name], 1.0)
    assert early.share("PASSED") <= 0.1
    assert early.share("FAILED") <= 0.1
    assert early.ended_early == 0


def test_processes_in_two_states_seldom_pass_or_fail_wrongly() -> None:
    few = replace(SETTING, decisions=10)
    two_states = study_cell(BY_NAME["two states, ±20 %"], 1.0, truth=1e-3, early=3, setting=few)
    assert two_states.share("INCONCLUSIVE") >= 0.8


def test_an_item_ends_with_its_budget_of_simulated_seconds() -> None:
    few = replace(SETTING, decisions=3, budget=6.0)
    found = study_cell(BY_NAME["two states, ±20 %"], 1.0, truth=1e-3, early=0, setting=few)
    assert found.seconds <= 6
    assert found.endings["budget"] == 3


def test_a_limit_that_is_far_away_takes_half_of_the_time() -> None:
    noise = BY_NAME["processes differ by 1 %"]
    early = cell(noise, 0.5)
    assert early.share("PASSED") == 1
    assert early.ended_early == 1
    assert early.seconds < 0.55 * cell(noise, 0.5, early=0).seconds


def test_options_are_read_with_units() -> None:
    setting = parse_options(["--call", "200 ms", "--quantity", "latency_p90", "--early", "2"])
    assert setting.call == 0.2
    assert setting.early == 2
