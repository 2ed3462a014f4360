"""Simulation of the comparison of outputs: a small one keeps what docs/methodology.md promises."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from output_simulation import FAULTS, OUTPUTS, Sides, sides_of, verdict_on


@pytest.mark.parametrize("output", list(OUTPUTS))
def test_rounding_passes_and_a_fault_on_any_input_regresses(output: str) -> None:
    random = np.random.default_rng(5)
    sides = sides_of(output, random)
    assert (sides.a != sides.b).any()
    assert verdict_on(sides) is Verdict.PASSED
    for fault in FAULTS:
        wrong = sides.b.copy()
        row = random.integers(len(wrong))
        wrong[row] = fault(wrong[row], random)
        assert verdict_on(Sides(sides.a, wrong)) is Verdict.REGRESSED
