"""Judgements from lines of results.jsonl."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.explain.bisect.judgement import judgement_of
from pytest_mlms.explain.bisect.search import Outcome


def compared(quantity: str, verdict: str, of: str = "rounds", **fields: Any) -> dict[str, Any]:
    values = {"a": 1.0, "b": 1.1, "unit": "s", "ratio": 1.1, "low": 1.09, "high": 1.11}
    rule = {"tolerance": 0.03, "gate": True, "replicates": 5, "lacking": ""}
    return {"quantity": quantity, "verdict": verdict, "of": of, **rule, **values, **fields}


def line(verdict: str, *comparisons: dict[str, Any], **fields: Any) -> dict[str, Any]:
    stacks = {"stack": {"name": "new"}, "against": {"name": "old"}}
    return {"verdict": verdict, "comparisons": list(comparisons), **stacks, **fields}


def failed(message: str, verdict: str = "ERROR") -> dict[str, Any]:
    return line(verdict, message=f"m.yaml:3: digits new-vs-old-cpu-b8: {message}\nmore")


OUTCOMES = {
    "REGRESSED": Outcome.BAD,
    "PASSED": Outcome.GOOD,
    "IMPROVED": Outcome.GOOD,
    "INCONCLUSIVE": Outcome.UNDECIDED,
}


@pytest.mark.parametrize("verdict", OUTCOMES)
def test_the_verdict_on_the_quantity_decides_not_that_on_the_item(verdict: str) -> None:
    item = line("REGRESSED", compared("cpu_time", "REGRESSED"), compared("latency", verdict))
    assert judgement_of(item, "latency").outcome is OUTCOMES[verdict]


def test_layers_are_those_of_the_upgrade() -> None:
    layers = [["conv", "Conv", 0.001, 0.002, 0.001, 1.0], ["all layers", "", 1, 2, 1, 1.0]]
    item = line("REGRESSED", compared("latency", "REGRESSED"), layers=layers)
    assert judgement_of(item, "latency").layers == tuple(map(tuple, layers))


@pytest.mark.parametrize(
    ("regressed", "quantity"),
    [
        (["peak_memory", "latency", "agreement"], "agreement"),
        (["peak_memory", "latency"], "latency"),
        (["top1", "peak_memory"], "top1"),
        ([], "latency"),
    ],
)
def test_without_a_quantity_the_first_one_that_regressed_is_judged(
    regressed: list[str], quantity: str
) -> None:
    comparisons = [compared(name, "REGRESSED") for name in regressed]
    if not regressed:
        comparisons = [compared("latency", "PASSED")]
    assert judgement_of(line("REGRESSED", *comparisons), None).quantity == quantity


@pytest.mark.parametrize("quantity", ["crash", None])
def test_a_crash_of_the_later_stack_is_bad(quantity: str | None) -> None:
    judged = judgement_of(failed("candidate new: the agent died with signal 9"), quantity)
    assert (judged.outcome, judged.quantity) == (Outcome.BAD, "crash")
    assert judged.reason == "the agent died with signal 9"


@pytest.mark.parametrize("message", ["baseline old: the agent died", "no space is left"])
def test_other_errors_decide_nothing(message: str) -> None:
    for quantity in ("crash", "latency"):
        judged = judgement_of(failed(message), quantity)
        assert judged.outcome is Outcome.UNDECIDED
        assert message in judged.reason


@pytest.mark.parametrize(("gate", "outcome"), [(True, Outcome.UNDECIDED), (False, Outcome.GOOD)])
def test_exits_that_fail_now_and_then_are_no_crash(gate: bool, outcome: Outcome) -> None:
    exits = compared("crash", "INCONCLUSIVE", "processes", gate=gate, lacking="2 of 7 exits")
    item = line("PASSED", compared("latency", "PASSED"), exits)
    assert judgement_of(item, "crash").outcome is outcome
    assert judgement_of(item, "latency").outcome is Outcome.GOOD


def test_a_crash_decides_nothing_of_speed() -> None:
    judged = judgement_of(failed("candidate new: the agent died"), "latency")
    assert judged.outcome is Outcome.UNDECIDED


def test_a_run_that_cannot_be_trusted_decides_nothing_although_it_has_figures() -> None:
    item = line("INVALID", compared("latency", "REGRESSED"), message="throttled")
    assert judgement_of(item, "latency").outcome is Outcome.UNDECIDED
    assert judgement_of(item, "crash").outcome is Outcome.UNDECIDED


def test_a_stack_that_runs_to_its_end_has_not_crashed() -> None:
    judged = judgement_of(line("REGRESSED", compared("latency", "REGRESSED")), "crash")
    assert judged.outcome is Outcome.GOOD


@pytest.mark.parametrize(
    ("quantity", "change", "outcome"),
    [
        ("top1", 0.0, Outcome.GOOD),
        ("top1", 0.01, Outcome.GOOD),
        ("top1", -0.01, Outcome.UNDECIDED),
        ("wer", -0.01, Outcome.GOOD),
        ("wer", 0.01, Outcome.UNDECIDED),
    ],
)
def test_few_inputs_that_are_answered_no_worse_are_good(
    quantity: str, change: float, outcome: Outcome
) -> None:
    item = line("PASSED", compared(quantity, "INCONCLUSIVE", of="inputs", ratio=change))
    assert judgement_of(item, quantity).outcome is outcome


def test_outputs_that_differ_are_the_reason_why_speed_is_undecided() -> None:
    outputs = compared("agreement", "REGRESSED", of="outputs")
    missing = compared("latency", "INCONCLUSIVE", lacking="needs 3 rounds, had 1")
    judged = judgement_of(line("REGRESSED", outputs, missing), "latency")
    assert judged.outcome is Outcome.UNDECIDED
    assert "bisect --quantity agreement" in judged.reason


def test_an_interval_that_decides_nothing_names_the_tolerance_that_it_straddles() -> None:
    wider: dict[str, Any] = {"tolerance": 0.057, "asked": 0.03, "least_change": 6e-7}
    judged = judgement_of(line("PASSED", compared("latency", "INCONCLUSIVE", **wider)), "latency")
    reason = "the interval straddles the tolerance of 5.7 % (instead of 3 %: 600 ns is the least"
    assert judged.reason.startswith(reason)


def test_a_quantity_that_was_not_compared_decides_nothing() -> None:
    judged = judgement_of(line("PASSED", compared("latency", "PASSED")), "top1")
    assert (judged.outcome, judged.reason) == (
        Outcome.UNDECIDED,
        "the upgrade did not compare top1",
    )


@pytest.mark.parametrize(
    ("quantity", "low", "high", "is_worse"),
    [
        ("latency", 1.001, 1.04, True),
        ("latency", 0.999, 1.04, False),
        ("latency", 1.01, None, False),
        ("throughput", 0.95, 0.999, True),
        ("throughput", 1.01, 1.04, False),
    ],
)
def test_a_stack_is_surely_worse_where_the_interval_leaves_out_no_change(
    quantity: str, low: float, high: float | None, is_worse: bool
) -> None:
    item = line("INCONCLUSIVE", compared(quantity, "INCONCLUSIVE", low=low, high=high))
    judged = judgement_of(item, quantity)
    assert judged.outcome is Outcome.UNDECIDED
    assert judged.is_worse is is_worse


def test_outputs_and_inputs_have_no_ratio_to_be_worse_by() -> None:
    item = line("INCONCLUSIVE", compared("top1", "INCONCLUSIVE", of="inputs"))
    assert not judgement_of(item, "top1").is_worse
