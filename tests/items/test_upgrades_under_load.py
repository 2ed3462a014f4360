"""Upgrades of a model under load, with real agents whose calls sleep."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.files import read_arrays
from tests.items.test_load import loads, write_manifest
from tests.support.project import Project

__all__ = ["loads"]

STACKS = """
old: {framework: server, interpreter: current, env: {SERVER_FACTOR: "1.0"}}
new: {framework: server, interpreter: current, env: {SERVER_FACTOR: "1.3"}}
"""
UPGRADE = ("--mlms-stack=new", "--mlms-against=old", "-k", "upgrade")
SERVER = "server: {rate: 60 /s, latency: 1 s, percentile: 90}"


@pytest.fixture
def stacks(loads: Project) -> Project:
    """A project with two stacks, whose calls differ by 30 %."""
    (loads.folder / "stacks.yaml").write_text(STACKS)
    return loads


def by_quantity(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {compared["quantity"]: compared for compared in item["comparisons"]}


@pytest.mark.slow(seconds=100)
def test_a_server_is_compared_under_the_same_arrivals(stacks: Project) -> None:
    write_manifest(stacks, "single_stream", SERVER, options="seconds: 0.008")
    result = stacks.run(*UPGRADE, "--mlms-budget=120", "-k", "upgrade and server")
    result.assert_outcomes(failed=1)
    (item,) = stacks.items()
    assert item["nodeid"].endswith("::test_upgrade[new-vs-old-cpu-b1-server-60-1000ms-p90]")
    assert item["scenario"] == "server-60-1000ms-p90"
    assert item["terms"]["gates"] == ["query_latency"]
    compared = by_quantity(item)
    assert compared["query_latency"]["gate"]
    assert not compared["latency"]["gate"]
    assert compared["query_latency"]["ratio"] > 1
    assert "REGRESSED in " in result.stdout.str()
    run = stacks.path / "mlms-results" / "latest"
    for index, record in enumerate(item["rounds"]):
        arrays = read_arrays(run / item["artifacts"][f"pairs-{index}.npz"])
        scheduled = arrays["query_scheduled_a"]
        assert np.array_equal(scheduled, arrays["query_scheduled_b"])
        assert record["loads"]["a"]["queries"] == len(scheduled)
        assert record["loads"]["a"]["seed"] == record["loads"]["b"]["seed"]
    seeds = {record["loads"]["a"]["seed"] for record in item["rounds"]}
    assert len(seeds) == len(item["rounds"])
    judged = stacks.pytester.run(sys.executable, "-m", "pytest_mlms", "judge", str(run))
    assert judged.ret == 1
    assert "0 of 1 would have been decided otherwise" in judged.stdout.str()


def test_a_share_of_the_budget_that_is_too_small_is_an_error(stacks: Project) -> None:
    write_manifest(stacks, "server: {rate: 10 /s, latency: 1 s}")
    result = stacks.run(*UPGRADE, "-k", "upgrade and server", "--mlms-budget=60")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "p99 takes 459 queries in each process, 46 s at 10 /s" in text
    assert "raise --mlms-budget" in text


@pytest.mark.slow
def test_both_peaks_are_searched_in_each_round(stacks: Project) -> None:
    write_manifest(
        stacks, "peak: {latency: 20 ms, percentile: 50}", SERVER, options="seconds: 0.005"
    )
    stacks.run(*UPGRADE, "--mlms-budget=20", "-k", "upgrade and peak")
    (item,) = stacks.items()
    assert item["nodeid"].endswith("::test_upgrade[new-vs-old-cpu-b1-peak-20ms-p50]")
    assert item["terms"]["gates"] == ["peak_rate"]
    assert by_quantity(item)["peak_rate"]["gate"]
    run = stacks.path / "mlms-results" / "latest"
    for index, record in enumerate(item["rounds"]):
        arrays = read_arrays(run / item["artifacts"][f"pairs-{index}.npz"])
        tried = [rate for peak in record["peaks"].values() for rate in peak["tried"]]
        assert len(record["loads"]) == len(tried) == sum("query_done" in name for name in arrays)
        assert len({load["seed"] for load in record["loads"].values()}) == 1
        assert len({load["queries"] for load in record["loads"].values()}) == 1
    judged = stacks.pytester.run(sys.executable, "-m", "pytest_mlms", "judge", str(run))
    assert "0 of 1 would have been decided otherwise" in judged.stdout.str()


def test_a_candidate_whose_calls_break_the_limit_has_regressed_at_once(stacks: Project) -> None:
    write_manifest(stacks, "peak: {latency: 46 ms, percentile: 50}", options="seconds: 0.04")
    result = stacks.run(*UPGRADE, "--mlms-budget=60", "-k", "upgrade and peak")
    result.assert_outcomes(failed=1)
    assert "REGRESSED in peak_rate" in result.stdout.str()
    assert "B meets the limit of 46.0 ms at no rate" in result.stdout.str()
    (item,) = stacks.items()
    assert len(item["rounds"]) == 1
    judged = stacks.pytester.run(
        sys.executable, "-m", "pytest_mlms", "judge", "mlms-results/latest"
    )
    assert "0 of 1 would have been decided otherwise" in judged.stdout.str()


def test_a_peak_that_the_budget_can_not_have_is_an_error(stacks: Project) -> None:
    write_manifest(stacks, "peak: {latency: 1 s}", options="seconds: 0.01")
    result = stacks.run(*UPGRADE, "--mlms-budget=60", "-k", "upgrade and peak")
    result.assert_outcomes(failed=1)
    assert "p99 takes" in result.stdout.str()
    assert "of which --mlms-budget allows 5 s; raise it to" in result.stdout.str()


@pytest.mark.parametrize(
    ("fault", "more", "text"),
    [
        ("SERVER_RACE", "  instances: 2", "B against itself under load, outputs differ by"),
        (
            "SERVER_MIX",
            "  batcher: {max_batch: 32, max_delay: 300 ms}",
            "in the batches that queries under load were joined to, outputs differ by",
        ),
    ],
)
def test_outputs_that_are_wrong_under_load_alone_regress(
    stacks: Project, fault: str, more: str, text: str
) -> None:
    new = f'new: {{framework: server, interpreter: current, env: {{{fault}: "8"}}}}'
    (stacks.folder / "stacks.yaml").write_text(f"{STACKS.splitlines()[1]}\n{new}\n")
    server = "server: {rate: 100 /s, latency: 10 s, percentile: 50}"
    write_manifest(stacks, server, options="seconds: 0.03", more=more)
    result = stacks.run(*UPGRADE, "-k", "upgrade and server", "--mlms-budget=20")
    result.assert_outcomes(failed=1)
    (item,) = stacks.items()
    found = by_quantity(item)["agreement"]
    assert found["verdict"] == "REGRESSED"
    assert text in found["told"]
