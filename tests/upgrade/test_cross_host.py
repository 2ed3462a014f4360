"""Two hosts as the two sides of an upgrade: what the comparison says, and what it can't."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pytest_mlms.stacks.labels import is_label, label_of, side_stacks, visit_of
from pytest_mlms.upgrade.cross_host import compare_sides
from tests.items.test_resume import cut
from tests.support.project import Project

A, B = "gpu=old", "gpu=new"


def visits(side: str, case: str, values: list[float]) -> list[dict[str, Any]]:
    return [
        {
            "nodeid": f"m.yaml::test_performance[{side}#{visit}-cuda-{case}]",
            "kind": "performance",
            "stack": {"name": f"{side}#{visit}"},
            "estimates": {"latency_p50": {"value": value}},
        }
        for visit, value in enumerate(values, start=1)
    ]


def verdict(a: list[float], b: list[float], **tolerances: float) -> str:
    found = compare_sides(visits(A, "b1", a) + visits(B, "b1", b), A, B, tolerances)
    (comparisons,) = found.values()
    return comparisons[0].verdict.value


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, 1.001, 0.999], [1.2, 1.201, 1.199], "REGRESSED"),
        ([1.0, 1.001, 0.999], [1.0, 1.001, 0.999], "PASSED"),
        ([1.0, 1.001, 0.999], [0.8, 0.801, 0.799], "IMPROVED"),
        ([1.0, 1.2, 0.8], [1.2, 1.4, 1.0], "INCONCLUSIVE"),
        ([1.0], [1.2], "INCONCLUSIVE"),
    ],
)
def test_a_change_counts_only_beyond_the_drift_of_the_hosts(
    a: list[float], b: list[float], expected: str
) -> None:
    assert verdict(a, b) == expected


def test_the_drift_is_pooled_over_the_cases_of_a_side() -> None:
    cases = [(side, case) for side in (A, B) for case in ("b1", "b8", "b64")]
    quiet = [result for side, case in cases for result in visits(side, case, [1.0, 1.001, 0.999])]
    noisy = visits(A, "b2", [1.0, 1.3, 0.8]) + visits(B, "b2", [1.0, 1.2, 0.9])
    alone = compare_sides(quiet, A, B, {})
    among = compare_sides(quiet + noisy, A, B, {})
    case = next(iter(alone))
    assert among[case][0].floor > alone[case][0].floor


def test_a_tolerance_that_is_asked_for_is_used() -> None:
    assert verdict([1.0, 1.001, 0.999], [1.1, 1.101, 1.099], latency=0.2) == "PASSED"


def test_hosts_that_are_alike_are_seldom_called_worse() -> None:
    draw = random.Random(7)
    wrong = 0
    for _ in range(300):
        sides = [[2.0 ** draw.gauss(0, 0.05) for _ in range(3)] for _ in range(2)]
        wrong += verdict(*sides, latency=0.0) == "REGRESSED"
    assert wrong <= 12  # 1 % are 3; 12 or more have a chance of 1 in 20,000


def test_labels_are_told_from_requirements() -> None:
    assert is_label("gpu=new-driver")
    assert not is_label("onnxruntime==1.30.0")
    names = [stack.name for stack in side_stacks([B])]
    assert [label_of(name) for name in names] == [("gpu", "new")] * len(names)
    assert [visit_of(name) for name in names] == [1, 2, 3]
    assert visit_of("here") == 0
    assert label_of("pytorch#1") is None


def worse(project: Project) -> bool:
    """Tell whether anything of the last run was called worse, which a machine that is busy may be."""
    sides = [line for line in project.lines() if line["type"] == "sides"]
    return any(one["verdict"] == "REGRESSED" for line in sides for one in line["comparisons"])


@pytest.mark.slow
def test_each_side_runs_on_hosts_of_its_label_and_the_weaker_design_is_said(
    project: Project,
) -> None:
    project.use_faulty()
    workers = [f"--tx=popen//env:MLMS_LABELS={label}" for label in (A, B)]
    result = project.run(f"--mlms-stack={B}", f"--mlms-against={A}", *workers, "--dist=load")
    items = [item for item in project.items() if item["kind"] == "performance"]
    assert len(items) == 6
    by_worker = {
        item["worker"]: {
            name["stack"]["name"].partition("#")[0]
            for name in items
            if name["worker"] == item["worker"]
        }
        for item in items
    }
    assert by_worker == {"gw0": {A}, "gw1": {B}}
    lines = [line for line in project.lines() if line["type"] == "sides"]
    assert [(line["a"], line["b"]) for line in lines] == [(A, B)]
    assert result.ret == worse(project)
    result.stdout.fnmatch_lines(
        ["*mlms: gpu=new (B) against gpu=old (A), on different hosts*", "The sides are unpaired*"]
    )
    cut(project, 3)
    again = project.run(
        f"--mlms-stack={B}", f"--mlms-against={A}", *workers, "--dist=load", "--mlms-resume"
    )
    assert again.ret == worse(project)
    (line,) = (line for line in project.lines() if line["type"] == "sides")
    assert [one["replicates"] for one in line["comparisons"]] == [3] * len(line["comparisons"])


def test_a_label_without_the_other_side_is_refused(project: Project) -> None:
    result = project.run("--mlms-stack=gpu=new")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: gpu=new is a label of hosts: name one with --mlms-stack and one with *gpu==new)"]
    )


def test_a_side_that_no_host_carries_is_no_answer(project: Project) -> None:
    project.use_faulty()
    result = project.run(
        f"--mlms-stack={B}",
        f"--mlms-against={A}",
        f"--tx=popen//env:MLMS_LABELS={A}",
        "--dist=load",
    )
    assert {item["verdict"] for item in project.items() if B in item["stack"]["name"]} == {
        "SKIPPED"
    }
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["mlms: nothing was compared: no case was measured on both sides"])
