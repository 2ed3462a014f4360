"""Plans of traces."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.trace.runner import TracePlan, probes_of


def plan(*levels: str, **facts: tuple[str, ...]) -> TracePlan:
    return TracePlan(levels, duration=2, budget=60, **facts)


def test_each_level_has_a_run_after_that_of_the_model() -> None:
    assert plan("layer").runs == ["model", "layer"]
    assert plan("hardware", "kernel").runs == ["model", "kernel", "hardware"]


def test_layers_with_counters_have_one_more_run() -> None:
    runs = plan("hardware", "layer", "model").runs
    assert runs == ["model", "layer", "hardware", "layer+hardware"]


def test_a_run_has_its_share_of_the_budget_and_traces_for_a_quarter_of_it_at_most() -> None:
    long = plan("layer")
    assert long.longest == 30
    assert long.seconds == 2
    short = TracePlan(("layer",), duration=20, budget=60)
    assert short.seconds == pytest.approx(7.5)


def test_bpftrace_runs_only_for_given_functions() -> None:
    assert plan("library").probes("library") == ["cupti", "kineto"]
    with_functions = plan("library", functions=("libm:exp",))
    assert "bpftrace" in with_functions.probes("library")


def test_the_probes_of_a_run_are_those_that_serve_its_level() -> None:
    assert probes_of("model") == []
    assert probes_of("kernel") == ["cupti", "kineto"]
    assert set(probes_of("hardware")) == {
        "gpm",
        "hwmon",
        "io",
        "memory",
        "nvml",
        "perf",
        "rapl",
    }
    assert probes_of("layer+hardware") == ["perf"]
