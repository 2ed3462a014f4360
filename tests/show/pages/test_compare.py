"""Comparison of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.compare import compare_runs
from tests.support.report_runs import read_lines
from tests.support.result_lines import broken_limit, estimate, line_of


def test_items_are_matched_by_their_node_ids(tmp_path: Path) -> None:
    a = read_lines(tmp_path / "a", [line_of(1, batch_size=1), line_of(2, batch_size=2)])
    b = read_lines(tmp_path / "b", [line_of(1, batch_size=1), line_of(3, batch_size=3)])
    compared = compare_runs(a, b)
    assert [(item.a.case, item.b.case) for item in compared.items] == [("here-cpu-b1",) * 2]
    assert compared.only_a == ("digits: here-cpu-b2",)
    assert compared.only_b == ("digits: here-cpu-b3",)


def test_intervals_that_overlap_are_no_change(tmp_path: Path) -> None:
    near = {"latency_p50": estimate(0.0045, 0.0042, 0.0055)}
    far = {"latency_p50": estimate(0.008, 0.007, 0.009)}
    a = read_lines(tmp_path / "a", [line_of(1)])
    assert not compare_runs(a, read_lines(tmp_path / "b", [line_of(1, estimates=near)])).changed
    (changed,) = compare_runs(a, read_lines(tmp_path / "c", [line_of(1, estimates=far)])).changed
    (moved,) = changed.moved
    assert (moved.change, moved.apart, moved.better) == ("+100 %", True, False)


def test_values_that_unlike_counters_tell_are_shown_and_not_compared(tmp_path: Path) -> None:
    runs = []
    for counter, value in (("pool", 1e8), ("NVML", 6e8)):
        told = {**estimate(value, value, value), "unit": "B", "counter": counter}
        lines = [line_of(1, estimates={"device_memory": told})]
        runs.append(read_lines(tmp_path / counter, lines))
    assert not compare_runs(*runs).changed
    (compared,) = compare_runs(*runs).items
    (moved,) = compared.moved
    assert (moved.change, moved.apart) == ("-", False)


def test_another_verdict_is_a_change_and_the_worst_comes_first(tmp_path: Path) -> None:
    a = read_lines(tmp_path / "a", [line_of(1), line_of(2)])
    b = read_lines(tmp_path / "b", [line_of(1, "INCONCLUSIVE"), broken_limit(2)])
    verdicts = [item.b.verdict for item in compare_runs(a, b).changed]
    assert verdicts == [Verdict.FAILED, Verdict.INCONCLUSIVE]


def test_an_interval_without_an_end_is_never_surely_apart(tmp_path: Path) -> None:
    unbounded = {"latency_p50": estimate(0.9, 0.8, None)}
    a = read_lines(tmp_path / "a", [line_of(1)])
    b = read_lines(tmp_path / "b", [line_of(1, estimates=unbounded)])
    assert not compare_runs(a, b).changed


def of_stack(name: str) -> dict[str, Any]:
    return line_of(1, stack={"name": name}, case=f"{name}-b1", nodeid=f"m.yaml::test[{name}]")


def test_the_only_stack_of_each_run_is_matched_by_its_case(tmp_path: Path) -> None:
    a = read_lines(tmp_path / "a", [of_stack("old")])
    compared = compare_runs(a, read_lines(tmp_path / "b", [of_stack("new")]))
    (item,) = compared.items
    assert item.title == "digits: old-b1 → digits: new-b1"
    assert (compared.only_a, compared.only_b) == ((), ())


def test_stacks_of_which_nobody_knows_which_belong_together_are_not_joined(tmp_path: Path) -> None:
    a = read_lines(tmp_path / "a", [of_stack("1.30"), of_stack("1.31")])
    compared = compare_runs(a, read_lines(tmp_path / "b", [of_stack("1.32")]))
    assert compared.items == ()
    assert compared.only_a == ("digits: 1.30-b1", "digits: 1.31-b1")
    assert compared.only_b == ("digits: 1.32-b1",)


def test_items_that_measure_something_else_are_told_and_not_compared(tmp_path: Path) -> None:
    slow = {"latency_p50": estimate(0.8, 0.7, 0.9)}
    a = read_lines(tmp_path / "a", [line_of(1, definition="0" * 16)])
    b = read_lines(tmp_path / "b", [line_of(1, definition="1" * 16, estimates=slow)])
    (changed,) = compare_runs(a, b).changed
    assert changed.title == "digits: here-cpu-b1, which measures something else"
    assert changed.moved == ()
    older = read_lines(tmp_path / "c", [line_of(1, estimates=slow)])
    assert [moved.change for moved in compare_runs(older, b).items[0].moved] == ["+0 %"]


def under_load(scenario: str, **load: Any) -> dict[str, Any]:
    case = f"here-cpu-b1-{scenario}"
    load = {"percentile": 99.0, "instances": 1, "batcher": None, **load}
    return line_of(1, scenario=scenario, load=load, case=case, nodeid=f"m.yaml::test[{case}]")


def test_a_load_is_matched_whatever_ids_call_it_and_its_limit(tmp_path: Path) -> None:
    older = read_lines(tmp_path / "a", [under_load("server", rate=200.0, latency=0.015)])
    limit = read_lines(tmp_path / "b", [under_load("server-200-20ms", rate=200.0, latency=0.02)])
    assert len(compare_runs(older, limit).items) == 1
    rate = read_lines(tmp_path / "c", [under_load("server-300-20ms", rate=300.0, latency=0.02)])
    assert compare_runs(limit, rate).items == ()
    assert compare_runs(older, rate).items == ()
    peak = under_load("peak-20ms", latency=0.02, precision=0.05)
    other = {**peak, "load": {**peak["load"], "latency": 0.03}, "nodeid": "m.yaml::test[other]"}
    peaks = [read_lines(tmp_path / name, [line]) for name, line in (("d", peak), ("e", other))]
    assert compare_runs(*peaks).items == ()
    more = [under_load("server-200", rate=200.0, instances=count) for count in (1, 2)]
    (paired,) = compare_runs(*(read_lines(tmp_path / "f", [line]) for line in more)).items
    assert paired.differs
