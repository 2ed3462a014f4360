"""Runs over three hosts with a real sshd each, some of which are lost on the way."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.distribute.test_controller import SPANS
from tests.support.hosts import Hosts, some_hosts
from tests.support.project import PREDICTORS, QUICK, Project

pytestmark = pytest.mark.slow

DEVICES = """
import os

def pytest_mlms_devices(config):
    if os.environ.get("MLMS_HOST") != "mlms2":
        return []
    device = {"name": "cuda:0", "kind": "Fake A1", "uuid": "GPU-fake"}
    return [{**device, "memory": 64 << 30, "driver": "1.2"}]
"""


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with some_hosts(3, tmp_path_factory.getbasetemp()) as found:
        yield found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if condition():
            return
        assert process.poll() is None, "the run ended too early"
        time.sleep(0.1)
    process.kill()
    pytest.fail("the condition did not become true")


def wait_for_result_of(host: str, project: Project, process: subprocess.Popen[bytes]) -> None:
    lines = project.path / "mlms-results" / "latest" / "results.jsonl"
    text = f'"host": "{host}"'
    wait_for(lambda: lines.exists() and text in lines.read_text(), process)


def use_many_items(project: Project, devices: str) -> None:
    """Have 30 items of performance for each of the devices."""
    project.use_faulty()
    project.edit("batch_sizes: [8]", f"batch_sizes: {list(range(1, 16))}")
    project.edit("[single_stream]", "[single_stream, offline]")
    project.edit("devices: [cpu]", f"devices: {devices}")


def start(project: Project, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a run that a test disturbs; its output goes to a file."""
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *QUICK]
    command = [sys.executable, "-m", "pytest", *options, "-kperformance", *arguments]
    with (project.path / "output").open("wb") as output:
        return subprocess.Popen(command, cwd=project.path, stdout=output, stderr=output)


def hosts_of(items: list[dict[str, Any]]) -> set[str]:
    return {item["machine"]["host"] for item in items}


def test_items_run_on_other_hosts_and_their_files_come_back(project: Project, hosts: Hosts) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    result = project.run(hosts.tx(1), hosts.tx(2), "--dist=load")
    assert result.ret == 0
    items = project.items()
    assert len(items) == 3
    assert hosts_of(items) <= {"mlms1", "mlms2"}
    run = project.path / "mlms-results" / "latest"
    for item in items:
        assert not item["artifacts_lost"]
        assert item["artifacts"]
        for path in item["artifacts"].values():
            assert (run / path).stat().st_size
        for path in item["logs"]:
            assert (run / path).is_file()
    assert not list(run.rglob("*.part"))
    models = hosts.ssh(1, "find .cache -type f -name '*.onnx'").split()
    assert len(models) <= 1
    left = hosts.ssh(1, "find . -name '*.npz' | grep -v travelled || true")
    assert left == ""


def test_the_secrets_of_the_controller_stay_there(project: Project, hosts: Hosts) -> None:
    (project.path / "token").write_text("a-secret-of-the-controller")
    push = ("--mlms-push=http://127.0.0.1:9", "--mlms-push-token-file=token")
    history = "--mlms-history=postgresql://user:a-secret-of-the-controller@127.0.0.1:9/history"
    result = project.run(hosts.tx(1), "--dist=load", "-kaccuracy", *push, history)
    assert result.ret == 0
    assert hosts_of(project.items()) == {"mlms1"}
    assert hosts.ssh(1, "grep -rl a-secret-of-the-controller . || true") == ""


def test_a_node_id_selects_an_item_on_another_host(project: Project, hosts: Hosts) -> None:
    nodeid = "manifests/digits.yaml::test_accuracy[onnxruntime-cpu]"
    assert project.run(hosts.tx(1), "--dist=load", nodeid).ret == 0
    assert len(project.items()) == 1


def test_sixty_items_run_each_on_a_host_that_fits_and_alone_on_its_device(
    project: Project, hosts: Hosts
) -> None:
    use_many_items(project, "[cpu, cuda]")
    project.pytester.makeconftest(DEVICES + SPANS)
    workers = [hosts.tx(number) for number in (1, 1, 2, 2, 3)]
    passed = "--mlms-env-passthrough=MLMS_HOST"
    result = project.run(*workers, passed, "--dist=load", "-kperformance")
    assert result.ret == 0
    # the field that this test adds is not documented, as project.items() wants
    items = [line for line in project.lines() if line["type"] == "item"]
    assert len(items) == len({item["nodeid"] for item in items}) == 60
    assert hosts_of([item for item in items if item["device"] == "cuda"]) == {"mlms2"}
    by_device: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for item in items:
        device = (item["machine"]["host"], item["device"])
        span = (item["span"]["start"], item["span"]["end"])
        by_device.setdefault(device, []).append(span)
    for spans in by_device.values():
        for (_, end), (next_start, _) in itertools.pairwise(sorted(spans)):
            assert end <= next_start


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_host_that_is_lost_costs_no_result(project: Project, hosts: Hosts, how: str) -> None:
    use_many_items(project, "[cpu]")
    workers = [hosts.tx(number) for number in (1, 2, 2)]
    # a busy host is heard of more often than that
    process = start(project, *workers, "--dist=load", "--mlms-worker-timeout=30")
    wait_for_result_of("mlms2", project, process)
    getattr(hosts.hosts[1], how)()
    assert process.wait(timeout=900) == 1, (project.path / "output").read_text()
    items = project.items()
    assert len(items) == len({item["nodeid"] for item in items}) == 30
    assert {item["verdict"] for item in items} == {"PASSED"}
    for item in items:
        if "attempt" in item:
            assert "mlms2 (gw" in item["earlier"]
    output = (project.path / "output").read_text()
    assert "INTERNALERROR" not in output
    assert "mlms: mlms2 is left out" in output
    assert "30 passed" in output


def test_a_run_whose_only_host_is_lost_ends_with_errors(project: Project, hosts: Hosts) -> None:
    use_many_items(project, "[cpu]")
    two_workers = f"--tx=2*{hosts.tx(2).removeprefix('--tx=')}"
    process = start(project, two_workers, "--dist=load")
    wait_for_result_of("mlms2", project, process)
    hosts.hosts[1].kill()
    assert process.wait(timeout=900) == 1, (project.path / "output").read_text()
    items = project.items()
    assert len(items) == len({item["nodeid"] for item in items}) == 30
    assert {item["verdict"] for item in items} == {"PASSED", "ERROR"}
    assert "INTERNALERROR" not in (project.path / "output").read_text()


FILLS_DISK = """
import os, time, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    begun = os.path.join(os.path.expanduser("~"), "..", "begun")  # all hosts see it
    if os.environ["MLMS_HOST"] == "mlms1":
        open(begun, "w").close()
        with open("filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
    while not os.path.exists(begun):
        time.sleep(0.05)
"""


def test_an_item_whose_host_fills_its_disk_runs_again_on_another_once(
    project: Project, hosts: Hosts
) -> None:
    project.use_faulty()
    project.pytester.makeconftest(FILLS_DISK)
    hosts.ssh(1, "mount -t tmpfs -o size=8m none $HOME")
    result = project.run(hosts.tx(1), hosts.tx(2), "--dist=load")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    items = project.items()
    assert len(items) == 2
    assert hosts_of(items) == {"mlms2"}
    for item in items:
        assert item["verdict"] == "PASSED"
        assert not item["artifacts_lost"]
    # both items, where the other host is slow to start
    retried = [item for item in items if "attempt" in item]
    assert retried
    for item in retried:
        assert item["attempt"] == 2
        assert item["earlier"].startswith("mlms1 (gw0) had a full disk: ")
        assert "No space left on device" in item["earlier"]
    result.stdout.fnmatch_lines(
        ["mlms: mlms1 (gw0) had a full disk in *, which is run again elsewhere: *"]
    )


def test_an_item_that_no_other_host_can_take_from_a_full_disk_is_an_error_with_its_reason(
    project: Project, hosts: Hosts
) -> None:
    cache = ".cache/pytest-mlms"
    hosts.ssh(1, f"mkdir -p {cache} && mount -t tmpfs -o size=4k none {cache}")
    assert project.run(hosts.tx(1), "--dist=load", "-kaccuracy").ret == 1
    (item,) = project.items()
    assert item["verdict"] == "ERROR"
    assert "No space left on device in " in item["message"]
    assert "manifests/digits.yaml:" in item["message"]


def test_a_host_that_can_not_be_reached_is_left_out_and_named(
    project: Project, hosts: Hosts
) -> None:
    use_many_items(project, "[cpu]")
    hosts.hosts[1].kill()
    result = project.run(hosts.tx(1), hosts.tx(2), "--dist=load", "-kb1-")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["mlms: mlms2 can't be used: no * there, or no connection; see 'mlms worker check mlms2'*"]
    )


def test_a_run_without_any_host_that_can_be_reached_is_a_usage_error(
    project: Project, hosts: Hosts
) -> None:
    hosts.hosts[1].kill()
    result = project.run(hosts.tx(2), "--dist=load")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: no worker could be started", "mlms2 can't be used*"])


def run_worker_command(hosts: Hosts, action: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_mlms", "worker", action, "mlms1"]
    command += ["--ssh-config", str(hosts.config)]
    command += ["--python", str(Path(sys.executable).resolve())]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_host_with_a_bare_interpreter_becomes_a_worker(project: Project, hosts: Hosts) -> None:
    project.use_faulty()
    checked = run_worker_command(hosts, "check")
    assert checked.returncode == 1
    assert "without pytest-mlms" in checked.stderr
    installed = run_worker_command(hosts, "install")
    if "can't fetch what the worker needs" in installed.stderr:
        pytest.skip(f"no package index here: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    assert "mlms1: ready" in installed.stdout
    result = project.run(f"--tx=ssh=mlms1//ssh_config={hosts.config}", "--dist=load")
    assert result.ret == 0
    items = project.items()
    assert hosts_of(items) == {"mlms1"}
    for item in items:
        assert str(hosts.hosts[0].home) in item["executable"]


def test_a_host_without_the_plugin_is_named_with_what_to_do(project: Project, hosts: Hosts) -> None:
    result = project.run(f"--tx=ssh=mlms3//ssh_config={hosts.config}", "--dist=load")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*'mlms worker install mlms3'*"])
