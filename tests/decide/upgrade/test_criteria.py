"""Acceptance criteria and run parameters of an upgrade, and gates that nothing measured."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.errors import InvalidRun
from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.criteria import (
    MISSING,
    Criteria,
    criteria_of,
    interleave_plan_of,
    missing_gates,
)
from pytest_mlms.decide.upgrade.decision import compare_rounds, is_decided, verdict_of
from pytest_mlms.decide.upgrade.explanation import explain_upgrade
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_record import SideRecord
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from tests.support.labour import LabourUpgrade
from tests.support.upgrade_case import NEW, OLD, case_of, options
from tests.support.upgrades import ROUND_RECORD, SIDE_RECORD, alike, setting


def test_the_default_tolerance_is_that_of_the_registry(tmp_path: Path) -> None:
    criteria = criteria_of(case_of(tmp_path), options())
    assert criteria == Criteria({"latency": 0.03}, ("latency",), None)


def test_the_manifest_sets_the_tolerance_of_latency(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{tolerance: 7 %}")
    criteria = criteria_of(case, options())
    assert criteria.tolerances == {"latency": 0.07}
    assert re.fullmatch(r"\S+\.yaml:\d+", criteria.places["latency"])


def test_the_agreement_of_the_manifest_has_its_place(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{}\n  agreement: {rtol: 1e-3, atol: 1e-5, reference: onnxruntime}")
    assert re.fullmatch(r"\S+\.yaml:\d+", criteria_of(case, options()).places["agreement"])


def test_the_command_line_overrides_the_manifest(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{tolerance: 7 %}")
    criteria = criteria_of(case, options(tolerance=0.02))
    assert criteria.tolerances == {"latency": 0.02}
    assert criteria.places == {"latency": "--mlms-tolerance"}


def test_quantities_that_the_manifest_names_are_gates(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{peak_memory: 5 %, top1: 2 %}")
    criteria = criteria_of(case, options(clock="wall"))
    assert criteria.tolerances == {"latency": 0.03, "peak_memory": 0.05, "top1": 0.02}
    assert set(criteria.gates) == {"latency", "peak_memory", "top1"}
    assert criteria.clock == "wall"


def test_the_command_line_makes_quantities_gates(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{latency_p90: 9 %}")
    criteria = criteria_of(case, options(gate=("latency_p90=0.02", "throughput=0.04")))
    assert criteria.tolerances == {"latency": 0.03, "latency_p90": 0.02, "throughput": 0.04}
    assert criteria.places == {"latency_p90": "--mlms-gate", "throughput": "--mlms-gate"}
    assert set(criteria.gates) == {"latency", "latency_p90", "throughput"}


def test_criteria_have_the_keys_that_results_document() -> None:
    assert to_plain(Criteria({"latency": 0.03})) == {
        "tolerances": {"latency": 0.03},
        "gates": ["latency"],
        "clock": None,
        "places": {},
        "rounds": {"least": 6, "most": 12},
    }


@pytest.mark.parametrize(
    ("upgrade", "asked", "precision"),
    [
        ("{}", {}, 0.006),
        ("{tolerance: 10 %, peak_memory: 5 %}", {}, 0.02),
        ("{tolerance: 10 %}", {"full": True}, 0.0),
        ("{latency_p90: 9 %}", {}, 0.0),
        ("{throughput: 9 %}", {}, 0.0),
        ("{stalls: 100 %}", {}, 0.0),
    ],
)
def test_rounds_may_be_short_where_latency_alone_is_to_be_shown(
    tmp_path: Path, upgrade: str, asked: dict[str, Any], precision: float
) -> None:
    plan = interleave_plan_of(case_of(tmp_path, upgrade), options(**asked))
    assert plan.precision == pytest.approx(precision)


@pytest.mark.parametrize(
    ("asked", "span"),
    [(None, (6, 12)), ((None, 24), (6, 24)), ((11, 24), (11, 24)), ((None, 4), (4, 4))],
)
def test_the_command_line_sets_how_many_rounds_there_are(
    tmp_path: Path, asked: tuple[int | None, int] | None, span: tuple[int, int]
) -> None:
    case = case_of(tmp_path)
    assert criteria_of(case, options(rounds=asked)).rounds == span
    assert interleave_plan_of(case, options(rounds=asked)).rounds == span


@pytest.mark.parametrize(
    ("old", "new", "threads"), [(1, 1, 1), (1, 4, 4), (None, 4, None), (None, None, None)]
)
def test_a_run_uses_the_threads_of_the_side_with_more(
    tmp_path: Path, old: int | None, new: int | None, threads: int | None
) -> None:
    baseline = replace(OLD, threads=old)
    candidate = replace(NEW, threads=new)
    case = case_of(tmp_path, old=baseline, new=candidate)
    plan = interleave_plan_of(case, options())
    assert plan.threads == threads


def test_both_sides_together_take_three_quarters_of_the_duration_a_round(tmp_path: Path) -> None:
    plan = interleave_plan_of(case_of(tmp_path), options(duration=2.0, budget=30.0))
    assert (plan.seconds, plan.budget) == (1.5, 30.0)


@pytest.mark.parametrize("gates", ["{}", "{late_latency: 5 %}", "{memory_growth: 5 %}"])
def test_what_few_rounds_have_is_measured_in_each_where_it_is_a_gate(
    tmp_path: Path, gates: str
) -> None:
    plan = interleave_plan_of(case_of(tmp_path, gates), options())
    assert (plan.watches_late, plan.watches_growth) == ("late" in gates, "growth" in gates)


def test_each_run_has_a_seed_of_its_own(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    seeds = {interleave_plan_of(case, options()).seed for _ in range(5)}
    assert len(seeds) > 1


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may use cores 0 to 3."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)


@pytest.mark.usefixtures("four_cores")
def test_the_cores_are_those_that_both_stacks_may_use(tmp_path: Path) -> None:
    case = case_of(tmp_path, old=replace(OLD, cores=(1, 2, 9)))
    plan = interleave_plan_of(case, options())
    assert list(plan.cores) == [1, 2]


@pytest.mark.usefixtures("four_cores")
def test_stacks_without_cores_of_their_own_use_all(tmp_path: Path) -> None:
    plan = interleave_plan_of(case_of(tmp_path), options())
    assert list(plan.cores) == [0, 1, 2, 3]


@pytest.mark.usefixtures("four_cores")
def test_stacks_without_a_common_core_are_invalid(tmp_path: Path) -> None:
    old = replace(OLD, cores=(0,))
    new = replace(NEW, cores=(1,))
    case = case_of(tmp_path, old=old, new=new)
    with pytest.raises(InvalidRun, match="new and old have no core in common that this process"):
        interleave_plan_of(case, options())


def test_a_system_that_does_not_tell_its_cores_has_none_to_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    plan = interleave_plan_of(case_of(tmp_path), options())
    assert list(plan.cores) == []


@pytest.mark.parametrize(
    ("gates", "covers"),
    [("{}", False), ("{latency_p95: 9 %}", False), ("{group_latency: 3 %}", True)],
)
def test_rounds_time_all_groups_where_these_are_a_gate(
    tmp_path: Path, gates: str, covers: bool
) -> None:
    assert interleave_plan_of(case_of(tmp_path, gates), options()).covers_batches is covers


@pytest.mark.parametrize(
    ("upgrade", "calls"),
    [
        ("{}", 30),
        ("{latency_p90: 9 %}", 30),
        ("{latency_p95: 9 %}", 59),
        ("{latency_p99: 9 %}", 299),
    ],
)
def test_a_round_has_the_calls_that_its_gates_need(
    tmp_path: Path, upgrade: str, calls: int
) -> None:
    assert interleave_plan_of(case_of(tmp_path, upgrade), options()).least_calls == calls


def test_the_plan_has_the_inputs_of_a_call(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    assert interleave_plan_of(replace(case, batch_size=8), options()).batch_size == 8


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
