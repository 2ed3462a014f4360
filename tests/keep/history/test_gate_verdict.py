"""The cause of a change, from what an upgrade between the stacks on both sides says of it."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.keep.history.changes import Change
from pytest_mlms.keep.history.gate_verdict import (
    Circumstances,
    Finding,
    cause_without_software,
    decide,
    gate_of,
)

NOTHING_ELSE = Circumstances()


def change(quantity: str = "latency_p50", ratio: float = 1.3, better: str = "lower") -> Change:
    """Return an open change of a quantity."""
    levels: dict[str, Any] = {"before": 1.0, "after": ratio, "ratio": ratio, "low": None}
    runs: dict[str, Any] = {"first_run": "b", "started": "", "found_run": "b", "undone_run": None}
    undecided: dict[str, Any] = dict.fromkeys(
        ("high", "cause", "confirmed_by", "reason", "decided", "decided_by")
    )
    return Change(
        id=7,
        series=1,
        parts={},
        quantity=quantity,
        unit="s",
        better=better,
        control=False,
        kind="step",
        status="open",
        is_worse=(ratio > 1) == (better == "lower"),
        **levels,
        **runs,
        **undecided,
    )


def compared(quantity: str, verdict: str, of: str = "rounds", low: float = 1.2) -> dict[str, Any]:
    """Return a comparison as results have it."""
    values = {"a": 1.0, "b": 1.3, "unit": "s", "ratio": 1.3, "low": low, "high": 1.4}
    rule = {"tolerance": 0.03, "gate": True, "replicates": 5, "lacking": ""}
    return {"quantity": quantity, "verdict": verdict, "of": of, **rule, **values}


def upgrade(*comparisons: dict[str, Any], verdict: str = "REGRESSED") -> dict[str, Any]:
    """Return the line of an upgrade."""
    found = list(comparisons)
    return {"run": "gate", "verdict": verdict, "comparisons": found, "message": None}


def found(
    of: Change, *comparisons: dict[str, Any], beside: Circumstances = NOTHING_ELSE
) -> Finding:
    return decide(of, upgrade(*comparisons), beside)


def test_a_regressed_upgrade_confirms_the_software_as_the_cause() -> None:
    finding = found(change(), compared("latency", "REGRESSED"))
    assert (finding.cause, finding.run) == ("software", "gate")
    assert finding.reason == "REGRESSED in latency, ×1.300 (1.200 to 1.400)"


def test_a_gain_is_confirmed_by_an_improvement_only() -> None:
    gain = change(ratio=0.8)
    assert found(gain, compared("latency", "IMPROVED")).cause == "software"
    assert found(gain, compared("latency", "REGRESSED")).cause == "noise"
    assert found(change(), compared("latency", "IMPROVED")).cause == "noise"


def test_a_rate_is_worse_where_it_is_lower() -> None:
    slower = change("throughput", 0.8, "higher")
    assert found(slower, compared("throughput", "REGRESSED")).cause == "software"


def test_a_significant_gain_of_right_answers_confirms_the_software_as_the_cause() -> None:
    gain = change("top1", 1.1, "higher")
    better = compared("top1", "PASSED", of="inputs", low=0.02)
    assert found(gain, better).cause == "software"
    same = compared("top1", "PASSED", of="inputs", low=-0.01)
    assert found(gain, same).cause == "noise"
    fewer_errors = {**compared("wer", "PASSED", of="inputs", low=-0.03), "high": -0.01}
    assert found(change("wer", 0.9, "lower"), fewer_errors).cause == "software"


@pytest.mark.parametrize(
    ("beside", "cause"),
    [
        (NOTHING_ELSE, "noise"),
        (Circumstances(control="latency_p50 ×1.1"), "machine"),
        (Circumstances(plugin="0.1.0 → 0.2.0"), "method"),
        (Circumstances(plugin="0.1.0 → 0.2.0", control="latency_p50 ×1.1"), "method"),
    ],
)
def test_a_passed_upgrade_leaves_method_machine_or_noise_as_the_cause(
    beside: Circumstances, cause: str
) -> None:
    assert found(change(), compared("latency", "PASSED"), beside=beside).cause == cause
    assert cause_without_software(beside)[0] == cause


def test_an_inconclusive_upgrade_leaves_the_change_open() -> None:
    finding = found(change(), compared("latency", "INCONCLUSIVE"))
    assert finding.cause is None
    assert "the interval straddles the tolerance of 3 %; confirm it again" in finding.reason


def test_outputs_that_ended_the_upgrade_confirm_the_software_as_the_cause() -> None:
    outputs = compared("agreement", "REGRESSED", of="values")
    undecided = compared("latency", "INCONCLUSIVE")
    finding = found(change(), undecided, outputs)
    assert finding.cause == "software"
    assert finding.reason == "REGRESSED in agreement: the stacks compute different outputs"
    assert found(change(), compared("latency", "PASSED"), outputs).cause == "noise"


@pytest.mark.parametrize("quantity", ["stalls", "slow_inputs"])
def test_calls_that_regressed_are_no_other_outputs(quantity: str) -> None:
    of_calls = compared(quantity, "REGRESSED", of="calls")
    finding = found(change(), compared("latency", "INCONCLUSIVE"), of_calls)
    assert finding.cause is None
    assert finding.reason.startswith("INCONCLUSIVE in latency")


@pytest.mark.parametrize("verdict", ["ERROR", "INVALID", "SKIPPED"])
def test_an_upgrade_without_measurements_leaves_the_change_open_with_the_reason(
    verdict: str,
) -> None:
    line = {**upgrade(verdict=verdict), "message": "the agent died\nlog: a.log"}
    finding = decide(change(), line, NOTHING_ELSE)
    assert finding.cause is None
    assert finding.reason == f"the upgrade is {verdict}: the agent died"


def test_a_quantity_that_the_upgrade_did_not_compare_stays_open() -> None:
    finding = found(change("peak_memory"), compared("latency", "PASSED"))
    assert (finding.cause, finding.reason) == (None, "the upgrade did not compare peak_memory")


@pytest.mark.parametrize(
    ("quantity", "ratio", "expected"),
    [
        ("latency_p50", 1.3, ("latency", 0.03)),
        ("latency_mean", 1.04, ("latency", pytest.approx(0.0198, abs=1e-4))),
        ("latency_p50", 1 / 1.04, ("latency", pytest.approx(0.0198, abs=1e-4))),
        ("latency_p50", 1.01, ("latency", 0.01)),
        ("throughput", 0.5, ("throughput", 0.05)),
        ("peak_memory", 0.0, ("peak_memory", 0.1)),
        ("top1", 0.9, ("top1", None)),
        ("auc", 0.9, ("auc", 0.01)),  # which upgrades compare where it is asked for
        ("deviation", 9.0, ("agreement", None)),
    ],
)
def test_the_tolerance_is_at_most_half_of_the_change(
    quantity: str, ratio: float, expected: tuple[str, float]
) -> None:
    assert gate_of(change(quantity, ratio), {}) == expected


def test_the_manifests_tolerance_is_used_where_it_is_less_than_half_of_the_change() -> None:
    assert gate_of(change(), {"latency": 0.1}) == ("latency", 0.1)


@pytest.mark.parametrize("quantity", ["kl_max", "rmse_of_mine"])
def test_a_quantity_that_upgrades_do_not_compare_has_no_gate(quantity: str) -> None:
    assert gate_of(change(quantity), {}) is None
