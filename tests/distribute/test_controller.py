"""Runs over local workers of xdist."""

from __future__ import annotations

import itertools
import sys

import pytest

from tests.support.project import Project

GPU = """
def pytest_mlms_devices(config):
    device = {"name": "cuda:0", "kind": "Fake A1", "uuid": "GPU-fake"}
    return [{**device, "memory": 16 << 30, "driver": "1.2"}]
"""

SPANS = """
import time, pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    start = time.monotonic()
    try:
        return (yield)
    finally:
        item.span = {"start": start, "end": time.monotonic()}

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if hasattr(report, "mlms"):
        report.mlms["span"] = getattr(item, "span", None)
    return report
"""
"""Adds to each result when its item ran."""

SLEEPERS = """
import os, time, pytest

@pytest.mark.parametrize("n", range(12))
@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_sleep(mlms_case, n):
    time.sleep(0.05)

@pytest.mark.parametrize("n", range(6))
def test_other(n):
    pass
"""
"""Twelve items of a manifest, and six other tests."""

WAIT_FOR_OTHER_WORKER = """open(f"met/{os.getpid()}", "w").close()
    while len(os.listdir("met")) < 2:  # the other worker may still be starting
        time.sleep(0.05)"""

SURPRISES = """
import os, time, pytest

@pytest.mark.parametrize("n", range(90))
@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_n(mlms_case, n):
    if n == 41:
        open("met/41", "w").close()
    while n == 40 and not os.path.exists("met/41"):  # takes until somebody runs the next one
        time.sleep(0.01)
"""

RECORD_PROTOCOL = """
def pytest_runtest_protocol(item, nextitem):
    open("seen", "a").write(item.name + "\\n")
"""

PRINT_IMPORTED = """
import sys, pytest
pytest.main(sys.argv[1:])
prefix = "pytest_mlms.distribute."
print("imported:", *[name for name in sys.modules if name.startswith(prefix)])
"""


def use_one_case(project: Project) -> None:
    """Have one case of accuracy, and one of performance."""
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("scenarios: [single_stream, offline]", "scenarios: [single_stream]")
    project.set_thresholds()


@pytest.mark.parametrize(
    "workers",
    [
        ["-n2"],
        pytest.param(["--tx", "2*popen", "--dist", "load"], marks=pytest.mark.slow),
        pytest.param(["-n2", "--dist", "worksteal"], marks=pytest.mark.slow),
    ],
)
def test_every_item_runs_once_and_measurements_of_a_device_do_not_overlap(
    project: Project, workers: list[str]
) -> None:
    use_one_case(project)
    project.edit("batch_sizes: [8]", "batch_sizes: [1, 8]")
    project.pytester.makeconftest(SPANS)
    result = project.run(*workers)
    assert result.ret == 0, result.outlines
    # the field that this test adds is not documented, as project.items() wants
    items = [line for line in project.lines() if line["type"] == "item"]
    assert len(items) == len({item["nodeid"] for item in items}) == 3
    spans = sorted((item["span"]["start"], item["span"]["end"]) for item in items)
    for (_, end), (next_start, _) in itertools.pairwise(spans):
        assert end <= next_start


@pytest.mark.parametrize("workers", [["-n2"], []])
def test_mlms_fleet_shows_the_hosts_and_runs_nothing(project: Project, workers: list[str]) -> None:
    project.pytester.makeconftest(GPU)
    result = project.run("--mlms-fleet", *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*mlms: the fleet, 1 host*",
            "  cpu *",
            "  cuda:0     Fake A1, 16.0 GiB, driver 1.2, GPU-fake",
        ]
    )
    assert not (project.path / "mlms-results").exists()


@pytest.mark.parametrize("workers", [["-n1"], []])
def test_an_announced_device_that_is_none_is_an_error_that_says_what_it_must_be(
    project: Project, workers: list[str]
) -> None:
    project.pytester.makeconftest(GPU.replace("16 << 30", "'16 GiB'"))
    result = project.run("-k", "performance", *workers)
    assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.TESTS_FAILED)
    result.stdout.no_fnmatch_line("*Traceback*")
    text = "".join([*result.outlines, *result.errlines])
    assert "pytest_mlms_devices announced {'name': 'cuda:0'" in text
    assert "; its memory must be a number of bytes, as in 64 << 30" in text


def ask_for_a_larger_gpu(project: Project) -> None:
    use_one_case(project)
    project.pytester.makeconftest(GPU)
    project.edit("devices: [cpu]", "devices: [cuda]")
    project.edit("evaluate:", 'hardware: {memory: ">= 32 GiB", gpu: A1}\nevaluate:')


def test_what_no_host_can_run_is_skipped_once_with_the_nearest_host(project: Project) -> None:
    ask_for_a_larger_gpu(project)
    result = project.run("-n2", "-rs")
    result.assert_outcomes(skipped=2)
    for item in project.items():
        assert item["verdict"] == "SKIPPED"
        assert "no host of 1 can run this; nearest is " in item["message"]
        assert "which has 16.0 GiB on cuda:0, not >= 32 GiB" in item["message"]


def test_what_no_host_can_run_fails_under_strict(project: Project) -> None:
    ask_for_a_larger_gpu(project)
    result = project.run("-n2", "--mlms-strict")
    assert result.ret == 1
    result.assert_outcomes(errors=2)
    assert "not >= 32 GiB" in project.items()[0]["message"]


def test_hardware_is_checked_without_workers_too(project: Project) -> None:
    use_one_case(project)
    project.edit("evaluate:", "hardware: {architecture: vax}\nevaluate:")
    result = project.run("-rs", "-k", "accuracy")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*manifests/digits.yaml:*: * is *, not vax"])


def test_an_error_in_the_hardware_of_a_manifest_has_its_line(project: Project) -> None:
    project.edit("evaluate:", "hardware: {memory: 32 GiB}\nevaluate:")
    result = project.run()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*digits.yaml:*'32 GiB' has no comparison; write '>= 32 GiB'*"])


@pytest.mark.parametrize(
    "dist",
    [
        "load",
        pytest.param("worksteal", marks=pytest.mark.slow),
        pytest.param("loadfile", marks=pytest.mark.slow),
    ],
)
def test_other_tests_of_the_session_are_scheduled_by_xdist(project: Project, dist: str) -> None:
    code = SLEEPERS.replace("time.sleep(0.05)", WAIT_FOR_OTHER_WORKER)
    project.pytester.makepyfile(test_sleepers=code)
    (project.path / "met").mkdir()
    result = project.run("-n2", "--dist", dist, "test_sleepers.py")
    assert result.ret == 0
    result.assert_outcomes(passed=18)
    items = project.items()
    assert len(items) == 12
    assert {item["worker"] for item in items} == {"gw0", "gw1"}


def test_what_waits_behind_a_long_item_is_run_by_an_idle_worker(project: Project) -> None:
    project.pytester.makepyfile(test_surprises=SURPRISES)
    (project.path / "met").mkdir()
    result = project.run("-n2", "test_surprises.py")
    assert result.ret == 0
    result.assert_outcomes(passed=90)


@pytest.mark.slow
def test_a_run_without_manifests_keeps_the_scheduler_of_xdist(project: Project) -> None:
    project.pytester.makepyfile("def test_one():\n    pass\n")
    result = project.pytester.runpytest_subprocess("-n1", "-v")
    result.stdout.fnmatch_lines(["scheduling tests via LoadScheduling"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "scheduler"), [([], "Fleet*"), (["-p", "no:mlms-fleet"], "Load*")]
)
def test_p_no_mlms_fleet_leaves_the_items_to_xdist(
    project: Project, arguments: list[str], scheduler: str
) -> None:
    result = project.run("-n1", "-v", "-k", "accuracy", *arguments)
    result.stdout.fnmatch_lines([f"scheduling tests via {scheduler}"])


@pytest.mark.slow
def test_no_hook_ever_sees_the_sentinel_item(project: Project) -> None:
    project.pytester.makeconftest(RECORD_PROTOCOL)
    use_one_case(project)
    assert project.run("-n2").ret == 0
    assert "sentinel" not in (project.path / "seen").read_text()


def test_the_first_failure_ends_the_run_with_x(project: Project) -> None:
    project.use_faulty(at="predict", fault="vanish")
    project.edit("batch_sizes: [8]", "batch_sizes: [1, 2, 4, 8, 16, 32]")
    result = project.run("-n2", "-x")
    assert result.ret == 2
    assert 1 <= len(project.items()) <= 3


def test_distribution_is_not_imported_where_nothing_is_distributed(project: Project) -> None:
    use_one_case(project)
    options = ["--mlms-manifests=manifests", "-k", "accuracy", "-p", "no:xdist"]
    result = project.pytester.run(sys.executable, "-c", PRINT_IMPORTED, *options)
    assert result.outlines[-1] == "imported:"
