"""The decisions that an item must make, by its kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.quantities.table import SOAK_LIMITS
from pytest_mlms.core.records import Kind
from pytest_mlms.decide.expected import expected
from pytest_mlms.manifest import load
from pytest_mlms.provide.cases import Case, cases_of
from tests.support.project import copy_digits
from tests.support.upgrade_case import NEW, case_of, options

LIMITS = """
thresholds:
  top1: {min: 0.9}
  latency_p90: {max: 5 ms, batch_sizes: [8]}
  query_rate: {min: 10 /s}
  soak_threads: {max: 3}
  upgrade: {query_rate: 5 %, throughput: 250 %}
"""


def cases(folder: Path, kind: Kind, scenarios: str = "[single_stream]") -> list[Case]:
    path = copy_digits(folder / "digits")
    text = path.read_text().partition("thresholds:")[0]
    text = text.replace("[single_stream, offline]", scenarios).replace("[1, 8, 64]", "[8]")
    limits = LIMITS if "server" in scenarios else LIMITS.replace("  query_rate: {min: 10 /s}\n", "")
    limits = limits if "server" in scenarios else limits.replace("query_rate: 5 %, ", "")
    path.write_text(text + limits)
    return cases_of(load(path), kind, lambda framework: [NEW], lambda framework: None)


def names(case: Case, **asked: Any) -> list[str]:
    return [limit.quantity for limit in expected(case, options(**asked))]


@pytest.mark.parametrize(
    ("kind", "quantities"),
    [("accuracy", ["top1"]), ("performance", ["latency_p90"]), ("soak", list(SOAK_LIMITS))],
)
def test_an_item_must_decide_the_limits_that_judge_it(
    tmp_path: Path, kind: Kind, quantities: list[str]
) -> None:
    (case,) = cases(tmp_path, kind)
    assert sorted(names(case)) == sorted(quantities)


def test_the_limit_of_a_scenario_must_be_decided_too(tmp_path: Path) -> None:
    scenarios = "[{server: {rate: 10 /s, latency: 1 s}}, {peak: {latency: 1 s}}]"
    server, peak = cases(tmp_path, "performance", scenarios)
    own, *_ = expected(server, options())
    assert ([own], own.value) == ([*server.own_limits], 1.0)
    assert set(names(server)) == {"query_latency", "query_rate", "latency_p90"}
    assert names(peak) == []


def test_an_upgrade_must_decide_its_gates_and_the_agreement(tmp_path: Path) -> None:
    case = case_of(tmp_path, "{peak_memory: 5 %}")
    found = names(case, gate=("top1=0%", "ap=1%"), tolerance=0.1)
    assert found == ["agreement", "latency", "peak_memory", "top1", "ap"]


def test_memory_of_a_gpu_is_decided_on_gpus_alone(tmp_path: Path) -> None:
    path = copy_digits(tmp_path / "digits")
    kept = path.read_text().partition("thresholds:")[0].replace("[cpu]", "[cpu, cuda]")
    limits = "device_memory: {max: 1 GiB}\n  upgrade: {device_memory: 5 %}"
    path.write_text(f"{kept}thresholds:\n  {limits}\n")
    kinds: dict[Kind, int] = {"performance": 1, "upgrade": 3}
    for kind, on_gpu in kinds.items():
        found = cases_of(load(path), kind, lambda framework: [NEW], lambda framework: None)
        for case in found:
            is_gpu = case.device == "cuda"
            assert ("device_memory" in names(case)) is is_gpu
            assert len(names(case)) == (on_gpu if is_gpu else on_gpu - 1)


def test_gates_that_only_other_cases_of_the_model_measure_are_left_out(tmp_path: Path) -> None:
    scenarios = "[{server: {rate: 10 /s, latency: 1 s}}]"
    calls, load_case = cases(tmp_path, "upgrade", scenarios)
    assert set(names(calls)) == {"agreement", "latency", "throughput"}
    assert set(names(load_case)) == {"agreement", "query_latency", "query_rate", "throughput"}


def test_a_tolerance_of_the_command_line_is_that_of_what_the_upgrade_is_about(
    tmp_path: Path,
) -> None:
    scenarios = "[{server: {rate: 10 /s, latency: 1 s}}]"
    values = []
    for case in cases(tmp_path, "upgrade", scenarios):
        found = expected(case, options(tolerance=2.5))
        values.append({limit.quantity: limit.value for limit in found})
    assert values[0]["latency"] == values[1]["query_latency"] == 2.5
    assert values[0]["throughput"] == 2.5, "of the manifest"


def test_accuracy_is_not_a_gate_of_drawn_inputs_beside_a_dataset(tmp_path: Path) -> None:
    case = replace(case_of(tmp_path, "{top1: 1 %}"), shape="short")
    assert names(case) == ["agreement", "latency"]
