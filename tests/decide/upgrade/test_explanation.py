"""Text of an upgrade's result."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.records import Comparison, LayerChange, Verdict
from pytest_mlms.decide.upgrade.decision import compare_accuracy, compare_rounds
from pytest_mlms.decide.upgrade.explanation import explain_upgrade, layer_table
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.labels import tolerance_label
from pytest_mlms.decide.upgrade.output_check import check_outputs
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_record import SideRecord
from pytest_mlms.decide.upgrade.rounds import SideName
from tests.support.upgrades import (
    ROUND_RECORD,
    SIDE_RECORD,
    alike,
    changed,
    latencies,
    result_of,
    setting,
)

SAME = changed(0.0)
ONE = {"y": np.ones(3)}
WRONG = check_outputs(ONE, {"y": np.full(3, 2.0)})
CONV = LayerChange("conv", "Conv", 5e-6, 9e-6, 4e-6, 1.0)
TOTAL = LayerChange("all layers", "", 7e-6, 11e-6, 4e-6, 1.0)


def explain(result: UpgradeResult, **fields: Any) -> list[str]:
    """Return the lines of the text."""
    return explain_upgrade(result, setting(**fields)).splitlines()


def line_with(words: str, lines: list[str]) -> str:
    (found,) = [line.strip() for line in lines if words in line]
    return found


@pytest.mark.parametrize(
    ("value", "short", "summary"),
    [
        (0.0, [], "PASSED"),
        (-0.2, [], "IMPROVED"),
        (0.2, ["latency ×1.221 (1.216 to 1.225), tolerance 3 %"], "REGRESSED in latency"),
        (
            0.03,
            ["latency ×1.030 (1.026 to 1.033), tolerance 3 %"],
            "INCONCLUSIVE, the measurements do not decide it",
        ),
    ],
)
def test_the_headline_names_both_stacks_and_the_verdict_below_the_figures_that_decided(
    value: float, short: list[str], summary: str
) -> None:
    lines = explain(result_of(alike(value)))
    assert lines[: len(short) + 1] == [*short, f"new (B) against old (A): {summary}"]


def test_of_several_quantities_the_first_line_counts_the_others_and_stays_short() -> None:
    figures = {"latency": changed(0.2), "peak_memory": changed(1.0, a=1e8)}
    first, *_ = explain(result_of(8 * [figures]))
    assert first.startswith("latency ×1.221 (1.2")
    assert first.endswith("), tolerance 3 %, and 1 more")
    told = f"outputs differ by 5 times (worst: {'row 1, ' * 30})"
    first, *_ = explain(result_of(alike(0.0), comparisons=[WRONG.but(told=told)]))
    assert first == "outputs differ by 5 times"


def test_the_versions_of_both_sides_are_named() -> None:
    result = result_of(alike(0.0))
    assert line_with("both sides:", explain(result)) == "both sides: labour 1.0, Python 3.11.7"
    newer = replace(ROUND_RECORD.sides["b"], versions={"labour": "1.1"})
    rounds = [replace(ROUND_RECORD, sides={**ROUND_RECORD.sides, "b": newer})]
    lines = explain(replace(result, rounds=rounds))
    assert line_with("labour 1.0", lines) == "A: labour 1.0, Python 3.11.7"
    assert line_with("labour 1.1", lines) == "B: labour 1.1, Python 3.11.7"


def test_without_any_comparison_the_verdict_is_inconclusive() -> None:
    lines = explain(result_of(latencies(0.0), comparisons=[]))
    assert "INCONCLUSIVE" in lines[0]


def test_a_wrong_candidate_that_is_faster_is_faster_because_it_is_wrong() -> None:
    result = result_of(alike(-0.2))
    wrong = replace(result, comparisons=[WRONG, *result.comparisons])
    lines = explain(wrong)
    assert lines[1].endswith(
        "REGRESSED, B computes something else, and is faster because it is wrong"
    )
    assert "outputs differ by up to 10,000 times what is allowed" in lines[2]
    assert "no tolerance of speed matters here" in lines[-1]


def test_a_wrong_candidate_says_how_wrong_it_is() -> None:
    right = np.ones(600, bool)
    top1 = compare_accuracy("top1", right, np.arange(600) >= 400, 0.01)
    lines = explain(result_of(alike(0.0), comparisons=[WRONG, top1]))
    assert lines[1].endswith("REGRESSED, B computes something else (top1 100.00 % -> 33.33 %)")
    assert [line.split()[1] for line in lines[2:4]] == ["agreement:", "top1:"]


def test_outputs_that_differ_and_have_no_accuracy_say_both() -> None:
    wrong = WRONG.but(lacking="candidate new: NaN for 3 inputs")
    lines = explain(result_of(alike(0.0), comparisons=[wrong]))
    both = "on 3 of 3 inputs (worst: row 2, row 1, row 0); candidate new: NaN"
    assert both in lines[2]


def test_the_worst_quantities_come_first() -> None:
    figures = {"latency": SAME, "peak_memory": changed(1.0, a=1e8)}
    lines = explain(result_of(8 * [figures]))
    assert lines[2].startswith("  REGRESSED    peak_memory: ")
    assert lines[3].startswith("  PASSED       latency: A 1.00 ms, B 1.00 ms, ×1.000 (")
    assert lines[3].endswith("), tolerance 3 %")


def test_a_tolerance_that_is_wider_than_the_one_asked_for_names_both_and_the_reason() -> None:
    short = Figure(6e-6, 6e-6, 0.0, 0.002, 400)
    lines = explain(result_of([{"latency": short}] * 8))
    reason = "600 ns is the least change that is judged"
    assert lines[1].endswith(f", tolerance 10 % (instead of 3 %: {reason})")
    wide = compare_rounds([{"latency": SAME, "cpu_time": SAME}] * 8, {"latency": 0.2})
    assert list(map(tolerance_label, wide)) == [
        "20 %",
        "20 % (instead of 3 %: it is as wide as that of latency)",
    ]


def test_guards_that_lack_rounds_are_summed_up_in_a_line() -> None:
    figures = {"latency": SAME, "cpu_time": SAME, "throughput": SAME}
    lines = explain(result_of([figures]))
    assert "  not judged after 1 round: cpu_time, throughput" in lines
    assert "; needs 6 rounds, had 1" in line_with("latency:", lines)


def test_an_undecided_guard_says_that_it_does_not_count() -> None:
    rounds = [{**figures, "cpu_time": figures["latency"]} for figures in alike(0.03)]
    lines = explain(result_of(rounds))
    assert line_with("cpu_time:", lines).endswith("(a guard: fails only if surely worse)")


def test_accuracy_is_shown_as_a_difference_of_shares() -> None:
    right = np.ones(600, bool)
    top1 = compare_accuracy("top1", right, np.arange(600) >= 7, 0.01)
    lines = explain(result_of(alike(0.0), comparisons=[top1]))
    line = line_with("top1:", lines)
    assert "A 100.00 %, B 98.83 %, -1.17 (" in line
    assert " %) of 600 inputs, tolerance 1 %" in line


@pytest.mark.parametrize(
    ("inputs", "label"), [(60, "not shown to be worse"), (6000, "PASSED      ")]
)
def test_accuracy_of_too_few_inputs_is_not_said_to_have_passed(inputs: int, label: str) -> None:
    right = np.ones(inputs, bool)
    top1 = compare_accuracy("top1", right, right, 0.01)
    line = line_with("top1:", explain(result_of(alike(0.0), comparisons=[top1])))
    assert line.startswith(f"{label} top1: A 100.00 %, B 100.00 %, +0.00 (")
    assert line.endswith("a larger dataset would show more") is (inputs == 60)


def test_a_start_is_shown_with_its_parts() -> None:
    figures = {"latency": SAME, "start_time": Figure(0.7, 4.7, 1.8, 0.0)}
    result = result_of(5 * [figures])
    assert "interpreter" not in line_with("start_time: A", explain(result))
    sides: dict[SideName, SideRecord] = {
        "a": replace(SIDE_RECORD, interpreter_seconds=0.25, import_seconds=0.25),
        "b": replace(SIDE_RECORD, interpreter_seconds=0.25, import_seconds=4.25),
    }
    rounds = [replace(record, sides=sides) for record in result.rounds]
    line = line_with("start_time: A", explain(replace(result, rounds=rounds)))
    assert line.endswith(
        "(interpreter 250 ms -> 250 ms, import 250 ms -> 4.25 s, load 200 ms -> 200 ms, "
        "first call 10.0 ms -> 10.0 ms)"
    )


def test_the_base_of_a_start_up_time_is_shown_with_its_ratio() -> None:
    figures = {"latency": SAME, "first_inference": Figure(7e-4, 5e-4, -0.018, 0.0)}
    lines = explain(result_of(8 * [figures]))
    line = line_with("first_inference:", lines)
    assert "A 700 µs, B 500 µs, judged with 25.0 ms added to both: ×0.982" in line
    assert line.endswith("), tolerance 20 %")


def test_the_precision_is_that_of_latency() -> None:
    line = line_with("noise floor", explain(result_of(alike(0.0))))
    assert line.startswith("noise floor of this item: ±")
    assert "the smallest slowdown that it would have found" in line


def test_the_precision_is_unknown_without_an_interval() -> None:
    without = result_of(alike(0.0, error=math.inf))
    assert "noise floor: unknown, there is no interval" in explain(without)[3]


@pytest.mark.parametrize(
    ("calls", "turns"),
    [((1, 1), "turns of a call"), ((4, 4), "turns of 4 calls"), ((4, 6), "turns of 4 to 6 calls")],
)
def test_the_method_says_how_much_was_measured(calls: tuple[int, ...], turns: str) -> None:
    rounds = [replace(ROUND_RECORD, calls=count) for count in calls]
    lines = explain(result_of(alike(0.0), rounds=rounds))
    expected = (
        f"80 pairs ({turns}) in 2 rounds of fresh processes; "
        f"clock: adj (wall time less the calling thread's wait for a core)"
    )
    assert line_with("pairs", lines) == expected


def test_the_machine_is_described_with_what_disturbed_it() -> None:
    disturbed = replace(ROUND_RECORD, cores=[3], steady=False, turns_exclusive=False)
    result = result_of(alike(0.0), rounds=[ROUND_RECORD, disturbed])
    lines = explain(
        result,
        machine={"cpu": {"model": "EPYC"}, "load_average": [0.5, 1, 2]},
        cpu_shares={"busy": 0.42, "steal": None},
        gpu_notes=["GPU 1980 MHz"],
    )
    assert line_with("machine:", lines) == (
        "machine: EPYC, cores 0, 3, load 0.5, busy 42 %, the waiting side could not be stopped, "
        "warm-up did not reach a steady state, GPU 1980 MHz"
    )


def test_a_machine_that_tells_nothing_has_only_its_cores() -> None:
    rounds = [replace(ROUND_RECORD, cores=[])] * 2
    lines = explain(result_of(alike(0.0), rounds=rounds))
    assert line_with("machine:", lines) == "machine: not held to cores"


def test_the_layers_of_a_regression_are_shown() -> None:
    slower = [layer._replace(b=2.5e-4, change=2.4e-4) for layer in (CONV, TOTAL)]
    lines = explain(result_of(alike(0.2), layers=slower))
    first = lines.index("  layers that changed (in a traced pass of its own; µs a call):")
    assert lines[first + 2].split() == ["conv", "(Conv)", "5.0", "250.0", "+240.0", "100", "%"]
    assert not any("no layer explains" in line for line in lines)


def test_layers_that_got_faster_do_not_explain_a_regression() -> None:
    faster = [CONV._replace(change=-1e-6), TOTAL._replace(change=-1e-6)]
    lines = explain(result_of(alike(0.2), layers=faster))
    assert line_with("no layer explains", lines).startswith("no layer explains the change")
    assert not any("layers that changed" in line for line in lines)


def test_layers_that_got_slower_by_far_less_than_the_latency_do_not_explain_it() -> None:
    lines = explain(result_of(alike(0.2), layers=[CONV, TOTAL]))
    found = "no layer explains the change: traced, all of them take 4.00 µs longer in B"
    assert line_with("no layer explains", lines) == found
    assert not any("layers that changed" in line for line in lines)


def test_layers_are_shown_where_another_quantity_than_latency_got_worse() -> None:
    result = result_of([{"cpu_time": changed(0.2)}] * 8, layers=[CONV, TOTAL])
    result = replace(result, comparisons=[result.comparisons[0].but(verdict=Verdict.REGRESSED)])
    assert result.comparisons[0].quantity == "cpu_time"
    assert any("layers that changed" in line for line in explain(result))


def test_what_else_differs_than_versions_is_told() -> None:
    lines = explain(result_of(alike(0.2)), differences=["option mode fast → safe", "$A none → 1"])
    expected = "what else differs (A → B): option mode fast → safe, $A none → 1"
    assert line_with("what else differs", lines) == expected


def test_the_reason_is_shown_where_there_are_no_layers() -> None:
    lines = explain(result_of(alike(0.2), layers_lacking="no profiler"))
    assert "  no layer times: no profiler" in lines


def test_layers_are_not_shown_of_a_result_that_passed() -> None:
    lines = explain(result_of(alike(0.0), layers=[CONV, TOTAL]))
    assert not any("layers" in line for line in lines)


def test_the_table_of_layers_leaves_out_those_that_did_not_change() -> None:
    still = LayerChange("still", "Conv", 5e-6, 5e-6, 1e-9, 0.0)
    assert layer_table([still, CONV, TOTAL]) == [
        "layer          A     B     Δ  share",
        "conv (Conv)  5.0   9.0  +4.0  100 %",
        "all layers   7.0  11.0  +4.0  100 %",
    ]


def test_a_long_name_of_a_layer_keeps_its_end() -> None:
    name = "x" * 30 + "/block_5/Conv2D"
    long = CONV._replace(name=name, b=None, share=None)
    cells = layer_table([long, TOTAL])[1]
    assert cells.startswith("…xxxx")
    assert "xx/block_5/Conv2D  5.0     -  +4.0      -" in cells


def test_a_wrong_output_has_its_own_reason() -> None:
    missing: Comparison = check_outputs(ONE, {})
    assert missing.verdict is Verdict.REGRESSED
    lines = explain(result_of(alike(0.0), comparisons=[missing]))
    assert (
        lines[2] == "  REGRESSED    agreement: 'y' is absent, and (3,) of the baseline, for row 0"
    )
