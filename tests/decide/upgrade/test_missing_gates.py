"""Gates that nothing measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.decision import compare_rounds, is_decided, verdict_of
from pytest_mlms.decide.upgrade.explanation import explain_upgrade
from pytest_mlms.decide.upgrade.missing_gates import MISSING, missing_gates
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_record import SideRecord
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from tests.support.labour import LabourUpgrade
from tests.support.upgrades import ROUND_RECORD, SIDE_RECORD, alike, setting

GATES = ("latency", "ap", "top1", "peak_memory", "latency_p99")
CRITERIA = Criteria(dict.fromkeys(GATES, 0.03), GATES)
WORSE = {"work": 8, "sleep": 0.1, "slow": 2, "import": 1, "hoard": 200, "leak": 9000}


def test_a_gate_without_a_comparison_leaves_an_upgrade_undecided_and_says_why() -> None:
    measured = compare_rounds(alike(0.0), CRITERIA.tolerances, GATES)
    assert verdict_of(measured) is Verdict.PASSED
    comparisons = [*measured, *missing_gates(CRITERIA, measured)]
    assert verdict_of(comparisons) is Verdict.INCONCLUSIVE
    assert is_decided(comparisons, 8), "no further round measures it"
    result = UpgradeResult(rounds=[ROUND_RECORD] * 8, complete=True, comparisons=comparisons)
    text = explain_upgrade(result, setting())
    reason = "the model's outputs and labels don't give it"
    assert f"INCONCLUSIVE ap: not measured: {reason}" in text
    assert "INCONCLUSIVE peak_memory: not measured: this kernel can't reset the peak" in text
    assert (
        "latency_p99: not measured: it takes 299 calls of a side in a round; raise --mlms-b" in text
    )
    assert "try: name no gate that isn't measured here: ap, top1, peak_memory, latency_p99" in text


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (None, None, "a runs on the CPU, B runs on the CPU"),
        (DeviceBytes({}, "no NVML"), DeviceBytes({}, "refused"), "A doesn't tell it: no NVML, B"),
        (DeviceBytes({"pool": 1}), DeviceBytes({}, "refused"), "A tells it by pool, B doesn't"),
        (DeviceBytes({"x": 1, "y": 1}), DeviceBytes({"z": 1}), "A tells it by x and y, B tells"),
    ],
)
@pytest.mark.parametrize("gate", [True, False])
def test_memory_of_a_gpu_that_no_counter_tells_of_both_sides_says_why(
    a: DeviceBytes | None, b: DeviceBytes | None, reason: str, gate: bool
) -> None:
    sides: dict[SideName, SideRecord] = {
        "a": replace(SIDE_RECORD, device_memory=a),
        "b": replace(SIDE_RECORD, device_memory=b),
    }
    criteria = Criteria({"device_memory": 0.1}, ("device_memory",) if gate else ())
    found = missing_gates(criteria, [], [replace(ROUND_RECORD, sides=sides)])
    assert [one.gate for one in found] == [gate] * (gate or a is not None)
    for compared in found:
        assert reason.lower() in compared.lacking.lower()
        assert compared.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(("a", "b", "silent"), [(None, 1, "A"), (1, None, "B"), (None, None, "")])
@pytest.mark.parametrize(
    ("name", "field", "reason"),
    [
        ("peak_memory", "peak_bytes", "can't reset the peak"),
        ("start_time", "interpreter_seconds", "has another clock"),
    ],
)
def test_what_only_one_side_tells_is_no_silence(
    name: str, field: str, reason: str, a: int | None, b: int | None, silent: str, gate: bool
) -> None:
    told: Any = {"a": {field: a}, "b": {field: b}}
    known = replace(SIDE_RECORD, peak_bytes=1, interpreter_seconds=1.0)
    sides: dict[SideName, SideRecord] = {side: replace(known, **told[side]) for side in SIDES}
    criteria = Criteria({name: 0.1}, (name,) if gate else ())
    found = missing_gates(criteria, [], [replace(ROUND_RECORD, sides=sides)])
    assert [(one.quantity, one.gate) for one in found] == [(name, gate)] * (gate or a != b)
    for compared in found:
        assert (f"not measured: {silent} {reason}" in compared.lacking) == bool(silent)


def test_a_gate_that_is_measured_is_not_missing() -> None:
    measured = compare_rounds(alike(0.0), {}, ("latency",))
    assert missing_gates(Criteria({"latency": 0.03}), measured) == []


@pytest.mark.slow
def test_every_gate_of_an_upgrade_holds_and_breaks_or_says_why_not(tmp_path: Path) -> None:
    upgrade = LabourUpgrade(tmp_path)
    upgrade.gates = tuple(upgrade_rules(None))
    upgrade.tolerances = dict.fromkeys(upgrade.gates, 1.0)
    found = {}
    for candidate in ({"version": 2}, WORSE):
        upgrade.run({}, candidate)
        found[len(candidate)] = {one.quantity: one for one in upgrade.result.comparisons}
    same, worse = found.values()
    missing = {name for name, one in same.items() if one.of == MISSING}
    measured = set(upgrade.gates) - missing
    assert set(upgrade.gates) <= set(same)
    assert {"latency", "throughput", "peak_memory", "start_time", "memory_growth"} <= measured
    for name in measured - {"agreement"}:
        assert same[name].verdict in (Verdict.PASSED, Verdict.IMPROVED), name
    for name in ("latency", "cpu_time", "wall_time", "throughput", "latency_p90", "load_time"):
        assert worse[name].verdict is Verdict.REGRESSED, name
    for name in ("start_time", "peak_memory", "memory_growth"):
        assert worse[name].verdict is Verdict.REGRESSED, name
