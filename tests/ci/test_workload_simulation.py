"""Tests of the simulation of upgrades that get slower for a part of their inputs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "ci"))

from workload_simulation import CELLS, Cell, decide

from pytest_mlms.core.records import Verdict


@pytest.mark.parametrize("cell", [cell for cell in CELLS if not cell.share])
def test_equal_sides_pass(cell: Cell) -> None:
    assert decide(cell, [1, 2]).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("one_shape", "quantity"), [(True, "group_latency"), (False, "slow_inputs")]
)
def test_few_slow_inputs_are_found(one_shape: bool, quantity: str) -> None:
    found = decide(Cell(300, 0.05, one_shape), [1, 2])
    assert found.verdict is Verdict.REGRESSED
    assert quantity in found.regressed
