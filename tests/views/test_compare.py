"""Comparison of two runs, and of two stacks of a run."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.records import Verdict
from pytest_mlms.views.compare import compare_runs, compare_stacks
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


def test_two_stacks_of_a_run_are_matched_by_their_cases(tmp_path: Path) -> None:
    old = line_of(1, stack={"name": "old"}, nodeid="m.yaml::test[old]")
    new = line_of(1, stack={"name": "new"}, nodeid="m.yaml::test[new]")
    compared = compare_stacks(read_lines(tmp_path, [old, new]), "old", "new")
    assert [(item.a.stack.name, item.b.stack.name) for item in compared.items] == [("old", "new")]
    assert (compared.only_a, compared.only_b) == ((), ())
