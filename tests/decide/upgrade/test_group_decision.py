"""The decision on groups of inputs."""

from __future__ import annotations

import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds
from pytest_mlms.decide.upgrade.group_decision import compare_groups
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
