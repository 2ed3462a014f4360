"""Device locks between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.errors import MlmsError, Unavailable
from pytest_mlms.host.capabilities import uuid_of
from pytest_mlms.host.gpus import Gpu
from pytest_mlms.host.locks import _shared_folder, exclusive
from tests.support.project import Project

HOLD = """
import os, sys, time
from pathlib import Path
from pytest_mlms.host.locks import exclusive
if len(sys.argv) > 2:
    os.sched_setaffinity(0, {int(sys.argv[2])})
with exclusive("cpu", 300, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def hold(folder: Path, *core: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *core], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def test_a_device_has_one_holder_whom_the_next_is_told(tmp_path: Path) -> None:
    with hold(tmp_path) as holder:
        with pytest.raises(Unavailable, match=f"device cpu is in use by process {holder.pid}"):
            exclusive("cpu", 0.1, tmp_path).__enter__()
        holder.kill()
    with exclusive("cpu", 300, tmp_path):
        pass  # the kernel gave up the dead holder's locks


def test_who_waits_gets_the_device_when_it_is_free(tmp_path: Path) -> None:
    with hold(tmp_path) as holder:
        began = time.monotonic()
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {holder.pid}"])
        with exclusive("cpu", 300, tmp_path):
            assert time.monotonic() - began > 0.4
        killer.wait()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_sessions_on_disjoint_cores_do_not_wait(tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    with hold(tmp_path, str(first)) as one, hold(tmp_path, str(second)) as other:
        with pytest.raises(Unavailable):
            exclusive("cpu", 0.1, tmp_path).__enter__()
        one.kill()
        other.kill()


def test_the_locks_are_for_every_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with exclusive("cuda", 1, tmp_path / "locks"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "locks").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "locks" / "cuda-0.lock").stat().st_mode & 0o666 == 0o666


def test_the_folder_of_the_locks_is_the_hosts_unless_the_environment_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "ours"))
    with hold(tmp_path / "ours") as holder:
        with pytest.raises(Unavailable):
            exclusive("cpu", 0.1).__enter__()
        holder.kill()
    monkeypatch.delenv("MLMS_LOCKS")
    assert _shared_folder().name == "pytest-mlms-locks"


def test_a_folder_that_takes_no_locks_is_named(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    with pytest.raises(
        MlmsError, match="can't lock device cpu in .*occupied: .*; grant access to it"
    ):
        exclusive("cpu", 1, tmp_path / "occupied").__enter__()


def test_two_gpus_are_two_devices_and_cuda_is_the_first(tmp_path: Path) -> None:
    with (
        exclusive("cuda", 1, tmp_path),
        exclusive("cuda:1", 1, tmp_path),
        pytest.raises(Unavailable),
    ):
        exclusive("cuda:0", 0.1, tmp_path).__enter__()


def test_a_gpu_is_locked_by_its_uuid_whatever_a_session_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [Gpu("GPU-aa", "A", 1, "1"), Gpu("GPU-bb", "B", 1, "1")]
    monkeypatch.setattr("pytest_mlms.host.capabilities.visible_gpus", lambda: gpus)
    hook = SimpleNamespace(pytest_mlms_devices=lambda config: [])
    one: Any = SimpleNamespace(stash=pytest.Stash(), hook=hook)
    assert uuid_of("cuda:1", one) == "GPU-bb"
    monkeypatch.setattr("pytest_mlms.host.capabilities.visible_gpus", lambda: gpus[1:])
    other: Any = SimpleNamespace(stash=pytest.Stash(), hook=hook)
    assert uuid_of("cuda", other) == "GPU-bb"
    with exclusive("cuda:1", 1, tmp_path, uuid="GPU-bb"), pytest.raises(Unavailable):
        exclusive("cuda", 0.1, tmp_path, uuid="GPU-bb").__enter__()


def test_a_device_that_a_host_announces_is_locked_by_its_uuid(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMS_HOST", "mlms2")  # where the framework has a device
    project.use_faulty()
    project.edit("devices: [cpu]", "devices: [cuda]")
    project.pytester.makeconftest(
        "def pytest_mlms_devices(config):\n    return [{'name': 'cuda:0', 'uuid': 'rack 3/slot 2'}]\n"
    )
    assert project.run("-kaccuracy").ret == 0
    assert [path.name for path in (tmp_path / "locks").glob("*.owner")] == ["rack-3-slot-2.owner"]
