"""Runs that compare two hosts as the two sides of an upgrade."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.config import Config
from pytest_mlms.distribute.cross_host_plugin import CrossHostComparison
from tests.support.project import Project

A = "gpu=old"
B = "gpu=new"
WORKERS = [f"--tx=popen//env:MLMS_LABELS={label}" for label in (A, B)]
SIDES = [
    f"--mlms-stack={B}",
    f"--mlms-against={A}",
    "--dist=load",
]


def lines_of_sides(project: Project) -> list[dict[str, Any]]:
    return [line for line in project.lines() if line["type"] == "sides"]


def is_regressed(project: Project) -> bool:
    """Return whether a comparison of the last run is REGRESSED, as can be on a busy machine."""
    verdicts = set()
    for line in lines_of_sides(project):
        for comparison in line["comparisons"]:
            verdicts.add(comparison["verdict"])
    return "REGRESSED" in verdicts


@pytest.mark.slow
def test_each_side_runs_on_hosts_of_its_label_and_a_resumed_run_compares_all(
    project: Project,
) -> None:
    project.use_faulty()
    result = project.run(*SIDES, *WORKERS)
    items = [item for item in project.items() if item["kind"] == "performance"]
    assert len(items) == 6
    labels_by_worker: dict[str, set[str]] = {}
    for item in items:
        label, _, _ = item["stack"]["name"].partition("#")
        labels = labels_by_worker.setdefault(item["worker"], set())
        labels.add(label)
    assert labels_by_worker == {"gw0": {A}, "gw1": {B}}
    (line,) = lines_of_sides(project)
    assert line["a"] == A
    assert line["b"] == B
    assert result.ret == is_regressed(project)
    result.stdout.fnmatch_lines(
        [
            "*mlms: gpu=new (B) against gpu=old (A), on different hosts*",
            "The sides are unpaired*Outputs are not compared*",
        ]
    )
    project.cut_off(3)
    resumed = project.run(*SIDES, *WORKERS, "--mlms-resume")
    assert resumed.ret == is_regressed(project)
    (line,) = lines_of_sides(project)
    for comparison in line["comparisons"]:
        assert comparison["replicates"] == 3


def test_a_label_without_the_other_side_is_refused(project: Project) -> None:
    result = project.run("--mlms-stack=gpu=new")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: gpu=new is a label of hosts: name one with --mlms-stack and one with *gpu==new)"]
    )


def test_a_run_with_a_side_that_no_host_carries_fails(project: Project) -> None:
    project.use_faulty()
    result = project.run(*SIDES, WORKERS[0])
    verdicts_of_b = set()
    for item in project.items():
        if B in item["stack"]["name"]:
            verdicts_of_b.add(item["verdict"])
    assert verdicts_of_b == {"SKIPPED"}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["mlms: nothing was compared: no case was measured on both sides"])


def noted(plugin: CrossHostComparison) -> tuple[list[dict[str, Any]], int]:
    """End the session; return the comparisons of the only case, and the exit status."""
    notes: list[dict[str, Any]] = []
    reporter = SimpleNamespace(note=lambda kind, **fields: notes.append(fields))
    plugins = SimpleNamespace(getplugin=lambda name: reporter)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins), exitstatus=0)
    plugin.pytest_sessionfinish(cast(pytest.Session, session))
    (note,) = notes
    return note["comparisons"], session.exitstatus


def plugin_of(strict: bool = False, gate: tuple[str, ...] = ()) -> CrossHostComparison:
    options = SimpleNamespace(sides=(B, A), strict=strict, tolerance=None, gate=gate)
    return CrossHostComparison(cast(Config, options))


def line(stack: str, **estimates: Any) -> dict[str, Any]:
    fields = {"kind": "performance", "stack": {"name": stack}, "estimates": estimates}
    return {"nodeid": f"test_performance[{stack}-cuda-b1]", **fields}


@pytest.mark.parametrize("strict", [False, True])
def test_a_gate_that_the_hosts_could_not_measure_is_open(strict: bool) -> None:
    plugin = plugin_of(strict, ("peak_memory=0.1",))
    unmeasured = {"value": 1e9, "lacking": "the kernel can't reset the peak"}
    for stack in (f"{A}#1", f"{A}#2", f"{B}#1", f"{B}#2"):
        plugin.add(line(stack, latency_p50={"value": 0.25}, peak_memory=unmeasured))
    comparisons, status = noted(plugin)
    verdicts = {each["quantity"]: each["verdict"] for each in comparisons}
    assert verdicts == {"latency": "PASSED", "peak_memory": "INCONCLUSIVE"}
    assert status == strict
    assert "not measured on both sides" in "".join(plugin._table(200))


def test_a_visit_that_is_measured_again_counts_once() -> None:
    plugin = plugin_of()
    stacks = [f"{side}#{visit}" for side in (A, B) for visit in (1, 2, 3)]
    for stack in stacks:
        plugin.add(line(stack, latency_p50={"value": 0.25}))
    for stack in stacks[3:]:
        plugin.add(line(stack, latency_p50={"value": 0.50}))
    (comparison,), status = noted(plugin)
    assert comparison["ratio"] == pytest.approx(2)
    assert (comparison["replicates"], comparison["verdict"], status) == (3, "REGRESSED", 1)
