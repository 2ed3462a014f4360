"""Acceptance criteria and run parameters of an upgrade."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import InvalidRun
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.criteria import Criteria, criteria_of, interleave_plan_of
from tests.support.upgrade_case import NEW, OLD, case_of, options


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
