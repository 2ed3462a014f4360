"""Manifests over three hosts with a real sshd each.

Who runs what, what travels, and what a lost host costs.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.distribute.test_controller import SPANS
from tests.support.hosts import Hosts, some_hosts
from tests.support.project import PREDICTORS, QUICK, Project

pytestmark = pytest.mark.slow

DEVICES = """
import os

def pytest_mlms_devices(config):
    if os.environ.get("MLMS_HOST") == "mlms2":
        return [{"name": "cuda:0", "kind": "Fake A1", "uuid": "GPU-fake", "memory": 64 << 30, "driver": "1.2"}]
"""


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with some_hosts(3, tmp_path_factory.getbasetemp()) as found:
        yield found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, "the run ended too early"
        time.sleep(0.1)
    process.kill()
    pytest.fail("what was waited for did not come")


def many_items(project: Project, devices: str) -> None:
    project.use_faulty()
    project.edit("batch_sizes: [8]", f"batch_sizes: {list(range(1, 16))}")
    project.edit("[single_stream]", "[single_stream, offline]")
    project.edit("devices: [cpu]", f"devices: {devices}")


def start(project: Project, *arguments: str) -> subprocess.Popen[bytes]:
    options = [
        "--mlms-manifests=manifests",
        f"--mlms-predictors={PREDICTORS}",
        *QUICK,
        "-kperformance",
    ]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    with (project.path / "output").open("wb") as output:
        return subprocess.Popen(command, cwd=project.path, stdout=output, stderr=output)


def test_items_run_on_other_hosts_and_their_files_come_back(project: Project, hosts: Hosts) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    result = project.run(hosts.tx(1), hosts.tx(2), "--dist=load")
    assert result.ret == 0
    items = project.items()
    assert len(items) == 3
    assert {item["machine"]["host"] for item in items} <= {"mlms1", "mlms2"}
    run = project.path / "mlms-results" / "latest"
    for item in items:
        assert not item["artifacts_lost"]
        assert item["artifacts"]
        assert all((run / path).stat().st_size for path in item["artifacts"].values())
        assert all((run / path).is_file() for path in item["logs"])
    assert not list(run.rglob("*.part"))
    sent = hosts.ssh(
        1, "find .cache -type f -name '*.onnx'; find . -name '*.npz' | grep -v travelled || true"
    ).split()
    assert len(sent) <= 1  # the model came once, and what was measured is here now
    assert (
        project.run(
            hosts.tx(1), "--dist=load", "manifests/digits.yaml::test_accuracy[onnxruntime-cpu]"
        ).ret
        == 0
    )
    assert len(project.items()) == 1


def test_sixty_items_run_each_on_a_host_that_fits_and_alone_on_its_device(
    project: Project, hosts: Hosts
) -> None:
    many_items(project, "[cpu, cuda]")
    project.pytester.makeconftest(DEVICES + SPANS)
    workers = [hosts.tx(number) for number in (1, 1, 2, 2, 3)]
    result = project.run(*workers, "--dist=load", "-kperformance")
    assert result.ret == 0
    items = [
        line for line in project.lines() if line["type"] == "item"
    ]  # with a field of the test's own
    assert len(items) == len({item["nodeid"] for item in items}) == 60
    assert {item["machine"]["host"] for item in items if item["device"] == "cuda"} == {"mlms2"}
    by_device: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for item in items:
        span = item["span"]["start"], item["span"]["end"]
        by_device.setdefault((item["machine"]["host"], item["device"]), []).append(span)
    for spans in by_device.values():
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(spans)))


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_host_that_is_lost_costs_no_result(project: Project, hosts: Hosts, how: str) -> None:
    many_items(project, "[cpu]")
    timeout = (
        "--mlms-worker-timeout=60"  # of the host that is cut off; a busy one is heard of more often
    )
    process = start(project, *(hosts.tx(number) for number in (1, 2, 2)), "--dist=load", timeout)
    lines = project.path / "mlms-results" / "latest" / "results.jsonl"
    wait_for(lambda: lines.exists() and '"host": "mlms2"' in lines.read_text(), process)
    getattr(hosts.hosts[1], how)()
    assert process.wait(timeout=3600) == 1
    items = project.items()
    assert sorted(item["nodeid"] for item in items) == sorted({item["nodeid"] for item in items})
    assert len(items) == 30
    assert {item["verdict"] for item in items} == {"PASSED"}
    assert all("mlms2 (gw" in item["earlier"] for item in items if item.get("attempt"))
    output = (project.path / "output").read_text()
    assert "INTERNALERROR" not in output
    assert "mlms: mlms2 is left out" in output
    assert "30 passed" in output


def test_the_only_host_is_lost_with_all_its_workers_and_the_run_ends(
    project: Project, hosts: Hosts
) -> None:
    many_items(project, "[cpu]")
    process = start(project, f"--tx=2*{hosts.tx(2).removeprefix('--tx=')}", "--dist=load")
    lines = project.path / "mlms-results" / "latest" / "results.jsonl"
    wait_for(lambda: lines.exists() and '"host": "mlms2"' in lines.read_text(), process)
    hosts.hosts[1].kill()
    assert process.wait(timeout=3600) == 1
    items = project.items()
    assert len(items) == len({item["nodeid"] for item in items}) == 30
    assert {item["verdict"] for item in items} == {"PASSED", "ERROR"}
    assert "INTERNALERROR" not in (project.path / "output").read_text()


FILLS = """
import os, time, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    begun = os.path.join(os.path.expanduser("~"), "..", "begun")  # of all hosts
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
    project.pytester.makeconftest(FILLS)
    hosts.ssh(1, "mount -t tmpfs -o size=8m none $HOME")
    result = project.run(hosts.tx(1), hosts.tx(2), "--dist=load")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    items = project.items()
    assert len(items) == 2
    assert {
        (item["machine"]["host"], item["verdict"], bool(item["artifacts_lost"])) for item in items
    } == {("mlms2", "PASSED", False)}
    again = [
        item for item in items if "attempt" in item
    ]  # both, where the other host is slow to start
    assert again
    for item in again:
        assert item["attempt"] == 2
        assert item["earlier"].startswith("mlms1 (gw0) had a full disk: ")
        assert "No space left on device" in item["earlier"]
    result.stdout.fnmatch_lines(
        ["mlms: mlms1 (gw0) had a full disk in *, which is run again elsewhere: *"]
    )


def test_an_item_that_no_other_host_can_take_from_a_full_disk_is_an_error_with_its_reason(
    project: Project, hosts: Hosts
) -> None:
    hosts.ssh(1, "mkdir -p .cache/pytest-mlms && mount -t tmpfs -o size=4k none .cache/pytest-mlms")
    assert project.run(hosts.tx(1), "--dist=load", "-kaccuracy").ret == 1
    (item,) = project.items()
    assert item["verdict"] == "ERROR"
    assert "No space left on device in " in item["message"]
    assert "manifests/digits.yaml:" in item["message"]


def test_a_host_that_cannot_be_reached_is_left_out_and_named(
    project: Project, hosts: Hosts
) -> None:
    many_items(project, "[cpu]")
    hosts.hosts[1].kill()
    result = project.run(hosts.tx(1), hosts.tx(2), "--dist=load", "-kb1-")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["mlms: mlms2 can't be used: no * there, or no connection; see 'mlms worker check mlms2'*"]
    )
    result = project.run(hosts.tx(2), "--dist=load")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: no worker could be started", "mlms2 can't be used*"])


def test_a_host_with_a_bare_interpreter_becomes_a_worker(project: Project, hosts: Hosts) -> None:
    project.use_faulty()
    command = [sys.executable, "-m", "pytest_mlms", "worker"]
    options = ["--ssh-config", str(hosts.config), "--python", str(Path(sys.executable).resolve())]
    checked = subprocess.run(
        [*command, "check", "mlms1", *options], capture_output=True, text=True, timeout=600
    )
    assert checked.returncode == 1
    assert "without pytest-mlms" in checked.stderr
    installed = subprocess.run(
        [*command, "install", "mlms1", *options], capture_output=True, text=True, timeout=600
    )
    if "can't fetch what the worker needs" in installed.stderr:
        pytest.skip(f"no package index here: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    assert "mlms1: ready" in installed.stdout
    result = project.run(f"--tx=ssh=mlms1//ssh_config={hosts.config}", "--dist=load")
    assert result.ret == 0
    assert {item["machine"]["host"] for item in project.items()} == {"mlms1"}
    assert all(str(hosts.hosts[0].home) in item["executable"] for item in project.items())


def test_a_host_without_the_plugin_is_named_with_what_to_do(project: Project, hosts: Hosts) -> None:
    result = project.run(f"--tx=ssh=mlms3//ssh_config={hosts.config}", "--dist=load")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*'mlms worker install mlms3'*"])
