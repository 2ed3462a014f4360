"""Device locks between real processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.core.errors import DeviceInUse, MlmsError, Unavailable
from pytest_mlms.provide.host import locks
from pytest_mlms.provide.host.locks import exclusive, locks_folder, own_cores
from tests.support.project import Project

HOLD = """
import os, sys, time
from pathlib import Path
from pytest_mlms.provide.host.locks import exclusive
if len(sys.argv) > 2:
    os.sched_setaffinity(0, {int(sys.argv[2])})
with exclusive("cpu", 300, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def holder(folder: Path, *core: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the CPU, or one core of it."""
    command = [sys.executable, "-c", HOLD, str(folder), *core]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def try_to_hold(device: str, folder: Path, uuid: str = "") -> None:
    with exclusive(device, 0.1, folder, uuid=uuid):
        pass


def test_a_held_device_is_unavailable_and_its_holder_named(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        known = f"process {process.pid}" if Path("/proc/locks").exists() else "another process"
        message = f"device cpu is in use by {known}"
        with pytest.raises(Unavailable, match=message):
            try_to_hold("cpu", tmp_path)


def test_the_locks_of_a_killed_process_are_released(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
    with exclusive("cpu", 300, tmp_path):
        pass


def test_a_thread_does_not_wait_for_a_device_that_it_holds_itself(tmp_path: Path) -> None:
    with (
        exclusive("cpu", timeout=3600, folder=tmp_path),
        pytest.raises(DeviceInUse, match="cpu is in use by this process itself, which would wait"),
        exclusive("cpu", timeout=3600, folder=tmp_path),
    ):
        pass
    with exclusive("cpu", timeout=0, folder=tmp_path):
        pass


def test_a_session_waits_until_the_device_is_free(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        began = time.monotonic()
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {process.pid}"])
        with exclusive("cpu", 300, tmp_path):
            assert time.monotonic() - began > 0.4
        killer.wait()


@pytest.mark.skipif(len(own_cores()) < 2, reason="needs two cores")
def test_sessions_on_disjoint_cores_do_not_wait(tmp_path: Path) -> None:
    first, second, *_ = own_cores()
    with (
        holder(tmp_path, str(first)),
        holder(tmp_path, str(second)),
        pytest.raises(Unavailable),
    ):
        try_to_hold("cpu", tmp_path)


def test_threads_of_one_core_have_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for core in (3, 35):
        folder = tmp_path / f"cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("3,35\n")
    monkeypatch.setattr(locks, "_CPUS", tmp_path)
    folder = tmp_path / "locks"
    first = exclusive("cpu", 1, folder, cores=[35])
    other = exclusive("cpu", 0, folder, cores=[3, 4])
    with first, pytest.raises(Unavailable), other:
        pass


@pytest.mark.skipif(len(own_cores()) < 2, reason="needs two cores")
def test_the_time_to_wait_is_that_of_all_cores_together(tmp_path: Path) -> None:
    first, second, *_ = own_cores()
    with holder(tmp_path, str(first)) as one, holder(tmp_path, str(second)):
        killer = subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -9 {one.pid}"])
        began = time.monotonic()
        with pytest.raises(Unavailable, match="for over 0"), exclusive("cpu", 2, tmp_path):
            pass
        assert time.monotonic() - began > 1.5
        killer.wait()


def test_the_cores_of_a_stack_are_held_alone(tmp_path: Path) -> None:
    with exclusive("cpu", 1, tmp_path, cores=[7, 5]):
        locks = sorted(path.name for path in tmp_path.glob("*.lock"))
    assert locks == ["core-5.lock", "core-7.lock"]


def test_the_locks_are_for_every_user_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    before = os.umask(0o077)
    try:
        with exclusive("cuda", 1, folder):
            pass
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert (folder / "cuda-0.lock").stat().st_mode & 0o666 == 0o666


def test_the_environment_may_name_the_folder_of_the_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ours"
    monkeypatch.setenv("MLMS_LOCKS", str(folder))
    with holder(folder), pytest.raises(Unavailable), exclusive("cpu", 0.1):
        pass


def test_the_folder_of_the_locks_is_the_same_for_all_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLMS_LOCKS", raising=False)
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert locks_folder() == Path("/tmp/pytest-mlms-locks")


def test_a_folder_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "occupied"
    folder.write_text("")
    message = "can't lock device cpu by .*occupied: .*; grant access to it"
    with pytest.raises(MlmsError, match=message):
        try_to_hold("cpu", folder)


def test_cuda_is_the_first_gpu_and_the_others_are_free(tmp_path: Path) -> None:
    with exclusive("cuda", 1, tmp_path):
        try_to_hold("cuda:1", tmp_path)
        with pytest.raises(Unavailable):
            try_to_hold("cuda:0", tmp_path)


def test_a_gpu_is_locked_by_its_uuid_whatever_a_session_calls_it(tmp_path: Path) -> None:
    with exclusive("cuda:1", 1, tmp_path, uuid="GPU-bb"), pytest.raises(Unavailable):
        try_to_hold("cuda", tmp_path, uuid="GPU-bb")


CONFTEST = """
def pytest_mlms_devices(config):
    return [{'name': 'cuda:0', 'uuid': 'rack 3/slot 2'}]
"""


def test_a_device_that_a_hook_announces_is_locked_by_its_uuid(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLMS_HOST", "mlms2")  # where the framework has a device
    project.use_faulty()
    project.edit("devices: [cpu]", "devices: [cuda]")
    project.pytester.makeconftest(CONFTEST)
    assert project.run("-kaccuracy").ret == 0
    locks = [path.name for path in (tmp_path / "locks").glob("*.lock")]
    assert locks == ["rack-3-slot-2.lock"]
