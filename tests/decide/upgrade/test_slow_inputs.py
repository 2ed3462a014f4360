"""Inputs that got slower, on rounds whose times are known, and the decision on groups of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds
from pytest_mlms.decide.upgrade.rounds import Array, Round, RoundInputs, Side
from pytest_mlms.decide.upgrade.slow_inputs import SlowInputs, compare_groups
from pytest_mlms.measure.evaluate.timed_inputs import Mix
from tests.support.upgrades import alike, changed

MIX = Mix(("128", "512"), (0.99, 0.01))


@pytest.mark.parametrize(
    ("timed", "verdict"), [(0, "INCONCLUSIVE"), (1, "INCONCLUSIVE"), (8, "PASSED")]
)
def test_a_group_that_no_two_rounds_timed_is_not_shown_to_be_fine(timed: int, verdict: str) -> None:
    (latency, *_) = compare_rounds(alike(0.0), {})
    groups = [{"128": changed(0.001 * (-1) ** index)} for index in range(8)]
    for index in range(timed):
        groups[index]["512"] = changed(0.001 * (-1) ** index)
    found = compare_groups(MIX, groups, latency, gate=True)
    assert found is not None
    assert found.worst.verdict is Verdict(verdict)
    lacking = "inputs of shape 512 were timed in less than two rounds"
    assert found.worst.lacking == ("" if timed == 8 else lacking)


def side(seconds: Array) -> Side:
    wall = seconds[:, None]
    return Side(wall, None, wall[:, 0], None, 0.1, 0.01, None)


def add_round(slow_inputs: SlowInputs, slow: Mapping[int, float], inputs: Sequence[int]) -> None:
    """Add a round that times ``inputs``, of which those in ``slow`` take so many times as long."""
    watched = [elements[0] for elements in slow_inputs.watch]
    timed = [*inputs, *watched]
    times = np.array([slow.get(each, 1.0) for each in timed])
    again = np.repeat(np.arange(len(inputs), len(timed)), 3)
    slow_inputs.add(
        RoundInputs(
            numbers=np.arange(len(inputs))[:, None],
            groups=np.zeros(len(timed), int),
            elements=[(each,) for each in timed],
            again=Round(side(np.ones(len(again))), side(times[again])) if watched else None,
            numbers_again=again.tolist(),
        ),
        Round(side(np.ones(len(inputs))), side(times[: len(inputs)])),
        "wall",
    )


def test_inputs_within_the_tolerance_do_not_keep_a_slower_one_from_being_timed_again() -> None:
    slow_inputs = SlowInputs()
    slow = {**dict.fromkeys(range(20), 1.35), 99: 3.0}
    for _ in range(3):
        add_round(slow_inputs, slow, range(90))
    assert len(slow_inputs.watch) == 16
    add_round(slow_inputs, slow, range(30, 100))
    assert (99,) in slow_inputs.watch
    for _ in range(4):
        add_round(slow_inputs, slow, range(30, 90))
    found = slow_inputs.compare()
    assert found is not None
    assert found.verdict is Verdict.REGRESSED
    assert list(slow_inputs.confirmed) == [(99,)]


def test_a_gate_on_slow_inputs_is_open_until_what_looks_slower_was_timed_again() -> None:
    slow_inputs = SlowInputs(0.5)
    add_round(slow_inputs, {}, range(60))
    passed = slow_inputs.compare()
    assert passed is not None
    assert passed.verdict is Verdict.PASSED
    add_round(slow_inputs, {7: 3.0}, range(60))
    open_gate = slow_inputs.compare()
    assert open_gate is not None
    assert open_gate.verdict is Verdict.INCONCLUSIVE
    assert math.isnan(open_gate.ratio)
    assert open_gate.lacking == "1 of 60 inputs looked slower and weren't timed again"
    add_round(slow_inputs, {}, range(60))
    again = slow_inputs.compare()
    assert again is not None
    assert again.verdict is Verdict.PASSED
    assert again.about == "0 of 60 inputs that were timed"
