"""Tests of what a bundle is held against, which follows from an item's line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.expectation import can_replay, expectation_of
from tests.support.result_lines import broken_limit, line_of


def upgrade(verdict: str = "REGRESSED", **fields: Any) -> dict[str, Any]:
    line = line_of(1, verdict, kind="upgrade", comparisons=[], machine={"host": "somebody"})
    return {**line, **fields}


def comparison(quantity: str, **fields: Any) -> dict[str, Any]:
    found = {
        "quantity": quantity,
        "verdict": "REGRESSED",
        "a": 1e-3,
        "b": 1.1e-3,
        "unit": "s",
        "of": "rounds",
        "ratio": 1.1,
        "low": 1.08,
        "high": 1.12,
        "tolerance": 0.03,
        "gate": True,
        "replicates": 5,
        "lacking": "",
    }
    return {**found, **fields}


def test_a_slower_upgrade_is_a_ratio_with_its_tolerance() -> None:
    expected = expectation_of(upgrade(comparisons=[comparison("latency")]))
    assert (expected.kind, expected.quantity, expected.better) == ("ratio", "latency", "lower")
    assert (expected.ratio, expected.low, expected.tolerance) == (1.1, 1.08, 0.03)
    assert "latency 1.00 ms → 1.10 ms, ×1.100 (×1.080 to ×1.120); 3 %" in expected.summary


def test_outputs_that_differ_come_before_times() -> None:
    outputs = comparison("agreement", of="outputs", a=None, b=None, ratio=math.inf)
    line = upgrade(comparisons=[comparison("latency"), outputs])
    expected = expectation_of(line)
    assert (expected.kind, expected.ratio) == ("outputs", None)
    assert expectation_of(line, "latency").kind == "ratio"


def test_a_crash_is_told_without_paths_and_host() -> None:
    message = (
        "models/m.yaml:9: digits: candidate here: the agent (process 7) ended while it did 'load': "
        "killed by SIGSEGV; see /home/somebody/x.log on somebody\n  its log"
    )
    expected = expectation_of(upgrade("ERROR", message=message))
    assert (expected.kind, expected.crash) == ("crash", "SIGSEGV")
    assert "somebody" not in expected.summary


@pytest.mark.parametrize(
    ("advice", "kept"),
    [
        ("it was built for numpy 1; write numpy<2 into the requirements at /x/stacks.yaml:9", True),
        ("change its requirements at /x/stacks.yaml:9", False),
    ],
)
def test_a_crash_is_told_without_what_to_change_in_files_of_the_run(
    advice: str, kept: bool
) -> None:
    problem = f"onnxruntime can't be imported in stack new; {advice}: 'hello' raised ImportError"
    line = upgrade("ERROR", message=f"m.yaml:9: d: candidate here: {problem} (log: /x/b.log)")
    why = "; it was built for numpy 1" * kept
    assert expectation_of(line).summary == (
        f"the new side fails: onnxruntime can't be imported in stack new{why}: "
        "'hello' raised ImportError"
    )


@pytest.mark.parametrize("verdict", ["REGRESSED", "FAILED", "ERROR"])
def test_a_soak_is_run_again_as_a_replay_has_too_few_calls(verdict: str) -> None:
    crash = comparison("crash", lacking="the agent (process 7) ended while it did 'run'")
    line = upgrade(verdict, kind="soak", comparisons=[crash], reproduce="pytest --mlms-soak=9s")
    with pytest.raises(MlmsError, match="too few calls .*; run it again: pytest --mlms-soak=9s"):
        expectation_of(line)


def test_an_error_of_the_framework_is_its_class() -> None:
    message = "m.yaml:9: digits: candidate here: 'load' raised Fail: no such operator (log: x)"
    assert expectation_of(upgrade("ERROR", message=message)).crash == "Fail"


def test_an_error_of_the_manifest_is_no_crash() -> None:
    message = "m.yaml:9: digits: candidate here: the model takes another input"
    with pytest.raises(MlmsError, match="an error that is not the framework's"):
        expectation_of(upgrade("ERROR", message=message))


@pytest.mark.parametrize("verdict", ["PASSED", "INCONCLUSIVE", "IMPROVED"])
def test_what_did_not_fail_can_not_be_reproduced(verdict: str) -> None:
    line = upgrade(verdict, comparisons=[comparison("latency", verdict=verdict)])
    with pytest.raises(MlmsError, match=f"is {verdict}: there is no failure to reproduce"):
        expectation_of(line)


def test_a_broken_limit_is_held_against_one_side() -> None:
    expected = expectation_of(broken_limit())
    assert (expected.kind, expected.quantity, expected.limit) == ("limit", "latency_p50", 0.001)
    assert expected.scenario == "single_stream"
    assert expectation_of(broken_limit(scenario="offline")).scenario == "offline"


def test_a_limit_under_load_is_not_judged_by_calls_one_after_the_other() -> None:
    with pytest.raises(MlmsError, match="latency_p50 under load"):
        expectation_of(broken_limit(load={"percentile": 99}))


def test_a_quantity_that_no_replay_measures_is_refused() -> None:
    with pytest.raises(MlmsError, match="can't measure query_latency"):
        expectation_of(upgrade(comparisons=[comparison("query_latency")]))


@pytest.mark.parametrize("quantity", ["energy_per_input", "memory_growth", "start_time"])
def test_what_rounds_compare_can_be_replayed(quantity: str) -> None:
    assert can_replay(quantity, "rounds")
    assert expectation_of(upgrade(comparisons=[comparison(quantity)])).quantity == quantity


def test_a_tolerance_of_the_least_change_is_that_of_the_machine_that_replays() -> None:
    wide = comparison("latency", tolerance=0.06, asked=0.03, least_change=0.6e-6)
    expected = expectation_of(upgrade(comparisons=[wide]))
    assert expected.tolerance == 0.03


@pytest.mark.parametrize("quantity", ["throughput", "cpu_time", "load_time"])
def test_a_tolerance_that_latency_widened_stays_as_it_was(quantity: str) -> None:
    wide = comparison(quantity, tolerance=0.4, asked=0.03, least_change=0.6e-6)
    expected = expectation_of(upgrade(comparisons=[wide]))
    assert expected.tolerance == 0.4


@pytest.mark.parametrize(
    ("text", "crash", "at_exit"),
    [
        ("failed at its exit: killed by SIGABRT (look)", "SIGABRT", True),
        ("had not ended 10 s after its last answer, and was killed", "hang", True),
        ("'load' raised Fail: no operator\n  child ended with exit status 7", "Fail", False),
        ("'load' raised RuntimeError: g++ was killed by SIGKILL", "RuntimeError", False),
    ],
)
def test_how_a_side_ended_is_in_the_first_line_of_its_error(
    text: str, crash: str, at_exit: bool
) -> None:
    expected = expectation_of(upgrade("ERROR", message=f"m.yaml:9: d: candidate here: {text}"))
    assert (expected.crash, expected.at_exit) == (crash, at_exit)


def outputs(**fields: Any) -> dict[str, Any]:
    compared = comparison("agreement", of="outputs", a=None, b=None, ratio=2.0)
    found = {"beyond": 0, "elsewhere": [], "repeated": {"a": [700, 0], "b": [700, 100]}}
    return upgrade(comparisons=[compared], outputs={**found, **fields})


def test_outputs_of_every_seventh_call_are_asked_for_often_enough() -> None:
    assert expectation_of(outputs()).calls == 28
    both = {"a": [700, 100], "b": [700, 100]}
    assert expectation_of(outputs(repeated=both)).calls == 1
    assert expectation_of(outputs(repeated={"a": [0, 0], "b": [0, 0]})).calls == 1


def test_a_failure_at_some_exits_is_waited_for_often_enough() -> None:
    reason = (
        "m.yaml:9: d: candidate here: the agent (process 7) failed at its exit: killed by SIGABRT\n"
        "of 32 exits of each side B failed in 8, A in 0"
    )
    crash = comparison("crash", of="processes", lacking=reason, ratio=None)
    expected = expectation_of(upgrade(comparisons=[crash]))
    assert (expected.crash, expected.at_exit, expected.calls) == ("SIGABRT", True, 16)


def test_an_error_that_tells_of_an_exit_is_one_of_a_call() -> None:
    message = "m.yaml:9: d: candidate here: 'load' raised OSError: the compiler had not ended"
    expected = expectation_of(upgrade("ERROR", message=message))
    assert (expected.crash, expected.at_exit) == ("OSError", False)


def test_pictures_that_stacks_decode_otherwise_are_no_bundle() -> None:
    with pytest.raises(MlmsError, match="decode other pictures"):
        expectation_of(outputs(elsewhere=["the decoded pictures"]))
    assert expectation_of(outputs(elsewhere=["the decoded pictures"], beyond=1)).kind == "outputs"


def test_a_quantity_that_did_not_regress_is_told_with_its_own_verdict() -> None:
    open_one = comparison("latency", verdict="INCONCLUSIVE", lacking="needs 6 rounds, had 1")
    line = outputs()
    line["comparisons"].append(open_one)
    with pytest.raises(
        MlmsError, match=r"latency of .* is INCONCLUSIVE \(the outputs differ.*\); leave out"
    ):
        expectation_of(line, "latency")
